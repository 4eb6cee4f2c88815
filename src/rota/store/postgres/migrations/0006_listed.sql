-- A claim wrote into both listing indexes, and nothing in them had changed. What is held is few rows and has an index of
-- its own (decision 15).
drop index executions_listed;
drop index executions_all;
create index executions_listed on executions (user_id, recurring, (fires_at at time zone 'UTC'))
    where worker_id is null;
create index executions_all on executions (recurring, (fires_at at time zone 'UTC'))
    where worker_id is null;
