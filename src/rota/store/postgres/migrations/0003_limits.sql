-- What a job needs of its worker is part of its lane: what does not fit here does not stand in the way.

alter table lanes
    -- Resources and labels as canonical JSON; empty where nothing is asked for.
    add column needs text not null default '';
alter table lanes
    drop constraint lanes_queue_task_id_priority_bucket_key;
alter table lanes
    add constraint lanes_alike unique (queue, task_id, priority, bucket, needs);

alter table workers
    add column resources text not null default '{}',
    add column labels text[] not null default '{}',
    -- What its operator wants of it: to pause, or to drain and end.
    add column wish text;

-- Limits in time and by key.

alter table executions
    -- Not to begin after this; not to be tried any more after that.
    add column start_by timestamptz,
    add column deadline timestamptz,
    -- Until its gate lets it through its lane is negative, so nobody claims it.
    add column gate text;
-- For `expire`.
create index executions_expiring on executions (shard, (least(start_by, deadline)))
    where start_by is not null or deadline is not null;
-- For the gatekeeper: what waits at a gate, and what was let through.
create index executions_gated on executions (shard, gate, due_at) where gate is not null and lane < 0;
create index executions_passed on executions (shard, gate) where gate is not null and lane > 0;

-- When the next may pass a gate that counts in time.
create table gates (
    gate text primary key,
    next_at timestamptz not null
);
