-- What attempts say while they run: where they have got to, what they log, how far they are.

alter table executions
    -- JSON; the next attempt goes on from it.
    add column checkpoint text;
alter table dead_letters
    add column checkpoint text;

-- Lines that attempts have logged, appended once; dropped whole, a day at a time.
create table logs (
    shard smallint not null,
    job_id uuid not null,
    fires_at timestamptz not null,
    run integer not null,
    attempt integer not null,
    seq integer not null,
    at timestamptz not null,
    text text not null
) partition by range (at);
-- For an execution's log. Not unique: a batch whose answer was lost is written twice and read once.
create index logs_execution on logs (shard, job_id, fires_at, run, attempt, seq);
create table logs_default partition of logs default;

-- How far running attempts are. Worth no disk write: after a crash of the database the next report comes soon.
create unlogged table progress (
    shard smallint not null,
    job_id uuid not null,
    fires_at timestamptz not null,
    run integer not null,
    attempt integer not null,
    fraction float8 not null,
    note text not null,
    at timestamptz not null,
    primary key (shard, job_id, fires_at, run)
) with (fillfactor = 70);
