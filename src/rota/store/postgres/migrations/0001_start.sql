-- The tables of Rota. `shard` leads every key that grows with the work; the small tables are the same everywhere.

create table cluster (
    -- How many shards new jobs are spread over. Only grows: an id keeps the shard it was made with.
    shards smallint not null check (shards between 1 and 256),
    -- Signs the claims of remote workers.
    secret bytea not null default sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea)
);
insert into cluster (shards) values (1);

create type job_state as enum ('ACTIVE', 'PAUSED', 'FINISHED', 'CANCELLED');
create type ended_state as enum ('COMPLETED', 'FAILED', 'CANCELLED', 'SKIPPED');
create type worker_state as enum ('ALIVE', 'DEAD', 'STOPPED');

-- Whatever makes two executions different to a claimer, as one small number.
create table lanes (
    id integer generated always as identity primary key,
    queue text not null,
    task_id text not null,
    priority smallint not null,
    -- Users are hashed into a few buckets; buckets take turns.
    bucket smallint not null,
    unique (queue, task_id, priority, bucket)
);

-- What is open, and only that. Held by a worker = running, otherwise pending.
create table executions (
    shard smallint not null,
    job_id uuid not null,
    fires_at timestamptz not null,
    run integer not null,
    lane integer not null,
    due_at timestamptz not null,
    user_id text not null,
    task_id text not null,
    queue text not null,
    priority smallint not null,
    parameters text not null,
    policy text,
    recurring boolean not null,
    exclusive boolean not null,
    attempt integer not null default 0,
    failures integer not null default 0,
    crashes integer not null default 0,
    lapses integer not null default 0,
    worker_id text,
    lease_id bigint,
    claimed_at timestamptz,
    cancel_requested boolean not null default false,
    error text,
    created_at timestamptz not null,
    primary key (shard, job_id, fires_at, run)
) with (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
-- For `claim`.
create index executions_ready on executions (shard, lane, due_at) where worker_id is null;
-- For `expired`, `give_back` and "what runs on this worker".
create index executions_held on executions (shard, worker_id) where worker_id is not null;
-- For `cancelled_of`: nearly always empty.
create index executions_cancelling on executions (shard, worker_id) where cancel_requested;
-- A job whose overlap policy is not `allow` has one open execution at most.
create unique index executions_exclusive on executions (shard, job_id) where exclusive;
-- For lists by user, and for lists of everything. None of the columns of the key stands in them as such: on a table that
-- is empty for the moment the planner would take any index with one of them for as good as the key (decision 1).
create index executions_listed on executions (user_id, recurring, (fires_at at time zone 'UTC'));
create index executions_all on executions (recurring, (fires_at at time zone 'UTC'));

-- Recurring jobs. Few and long-lived.
create table jobs (
    shard smallint not null,
    id uuid not null,
    user_id text not null,
    task_id text not null,
    queue text not null,
    priority smallint not null,
    lane integer not null,
    parameters text not null,
    policy text,
    schedule text not null,
    overlap text not null,
    state job_state not null,
    -- The cursor: everything before it is accounted for.
    next_fires_at timestamptz,
    -- The SKIPPED row that the next skip for the same reason belongs to.
    skip_from timestamptz,
    skip_because text,
    revision integer not null default 0,
    created_at timestamptz not null,
    primary key (shard, id)
);
-- For `unplanned`.
create index jobs_unplanned on jobs (shard, next_fires_at) where state = 'ACTIVE';
-- For lists by user, and for lists of everything.
create index jobs_listed on jobs (user_id, state, created_at);
create index jobs_all on jobs (state, created_at);

-- What has ended, appended once and never changed, but for a SKIPPED row that grows by the skips that follow it for the
-- same reason; dropped whole, a day at a time.
create table history (
    shard smallint not null,
    job_id uuid not null,
    fires_at timestamptz not null,
    run integer not null,
    state ended_state not null,
    due_at timestamptz not null,
    started_at timestamptz,
    finished_at timestamptz not null,
    user_id text not null,
    task_id text not null,
    queue text not null,
    priority smallint not null,
    parameters text not null,
    policy text,
    recurring boolean not null,
    attempt integer not null,
    failures integer not null,
    worker_id text,
    lease_id bigint,
    error text,
    result text,
    -- SKIPPED rows only: why, and how many firings up to which one share this row.
    skipped_because text,
    skipped_to timestamptz,
    skipped_count integer,
    created_at timestamptz not null
) partition by range (finished_at);
-- For a job's own executions, and for an ending told twice.
create index history_job on history (shard, job_id, fires_at, run);
-- For lists by user and status, and for lists of everything by status.
create index history_listed on history (user_id, recurring, state, (fires_at at time zone 'UTC'));
create index history_all on history (recurring, state, (fires_at at time zone 'UTC'));
create table history_default partition of history default;

-- Tries that did not end their execution well.
create table attempts (
    shard smallint not null,
    job_id uuid not null,
    fires_at timestamptz not null,
    run integer not null,
    attempt integer not null,
    lease_id bigint not null,
    worker_id text not null,
    verdict text not null,
    error text,
    started_at timestamptz,
    ended_at timestamptz not null
) partition by range (ended_at);
-- For an execution's tries, and for an ending told twice.
create index attempts_execution on attempts (shard, job_id, fires_at, run, attempt);
create table attempts_default partition of attempts default;

-- FAILED executions, complete enough to run again, until redriven or discarded.
create table dead_letters (
    shard smallint not null,
    job_id uuid not null,
    fires_at timestamptz not null,
    run integer not null,
    died_at timestamptz not null,
    user_id text not null,
    task_id text not null,
    queue text not null,
    priority smallint not null,
    lane integer not null,
    parameters text not null,
    policy text,
    recurring boolean not null,
    exclusive boolean not null,
    attempt integer not null,
    failures integer not null,
    error text,
    created_at timestamptz not null,
    primary key (shard, job_id, fires_at, run)
);
-- For lists by user, and for lists of everything.
create index dead_letters_listed on dead_letters (user_id, (fires_at at time zone 'UTC'));
create index dead_letters_all on dead_letters ((fires_at at time zone 'UTC'));

-- Names that stand for jobs: idempotency keys.
create table names (
    user_id text not null,
    kind text not null,
    name text not null,
    job_ids uuid[] not null,
    digest bytea not null,
    expires_at timestamptz not null,
    primary key (user_id, kind, name)
);
-- For `maintain`.
create index names_expiring on names (expires_at);

-- One row per life of a worker process. DEAD and STOPPED are final.
create table workers (
    id text primary key,
    host text not null,
    pid integer not null,
    queues text[] not null,
    tasks text[] not null,
    concurrency integer not null,
    state worker_state not null,
    started_at timestamptz not null,
    renewed_at timestamptz not null,
    lease interval not null,
    ended_at timestamptz
);

-- Only the SHA-256 of a key is kept.
create table api_keys (
    id text primary key,
    hash bytea not null unique,
    user_id text not null,
    scopes text[] not null,
    created_at timestamptz not null,
    revoked_at timestamptz
);
