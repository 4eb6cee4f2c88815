-- A claim wrote into both listing indexes, and nothing in them had changed. What is held is few rows and has an index of
-- its own (decision 15).
drop index executions_listed;
drop index executions_all;
create index executions_listed on executions (user_id, recurring, (fires_at at time zone 'UTC'))
    where worker_id is null;
create index executions_all on executions (recurring, (fires_at at time zone 'UTC'))
    where worker_id is null;

-- Cleaning up reads all indexes, however little there is to clean: of ten million rows not for every five thousand.
alter table executions set (autovacuum_vacuum_scale_factor = 0.05);
