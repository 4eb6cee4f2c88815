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
    add column labels text[] not null default '{}';
