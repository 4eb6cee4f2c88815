-- Rules of recurring jobs, pauses, past schedules, calendars, backfills.

alter table jobs
    -- How firings are treated that come too late, too thick or on the wrong day; `overlap`, `calendar` and
    -- `pauses_after` repeat what statements ask for.
    add column rules text not null default '{}',
    add column calendar text,
    add column pauses_after integer,
    -- The schedule accounts for every firing after this instant; what was before stands in `revisions`.
    add column since timestamptz,
    -- How many executions it has made, for `max_executions`.
    add column fired integer not null default 0,
    add column paused_at timestamptz,
    add column paused_until timestamptz,
    add column pause_note text,
    -- What fell due before this fell into a pause.
    add column paused_through timestamptz,
    -- Failures from before it do not count towards `pauses_after`.
    add column watched_from timestamptz;
update jobs
set since = created_at,
    watched_from = created_at,
    rules = jsonb_build_object('overlap', overlap)::text;
alter table jobs
    alter column since set not null,
    alter column watched_from set not null,
    alter column rules drop default;
-- For `resume_due`.
create index jobs_resuming on jobs (shard, paused_until) where state = 'PAUSED';
-- For "who uses this calendar".
create index jobs_calendar on jobs (user_id, calendar) where calendar is not null;

alter table executions
    -- Whose cancellation is not to be waited for: its process is killed.
    add column terminate boolean not null default false,
    -- For its turn: its lane is negative, so nobody claims it.
    add column waits boolean not null default false,
    add column backfill_id uuid;
alter table dead_letters
    add column backfill_id uuid;
-- For `release`.
create index executions_waiting on executions (shard, job_id, fires_at, run) where waits;
-- For `unfilled`, and for what a backfill has open.
create index executions_backfill on executions (shard, backfill_id) where backfill_id is not null;

-- The schedules that a job had: each accounts for the firings after `since` up to `until`.
create table revisions (
    shard smallint not null,
    job_id uuid not null,
    since timestamptz not null,
    until timestamptz not null,
    schedule text not null,
    primary key (shard, job_id, since)
);
-- For `maintain`.
create index revisions_past on revisions (until);

-- For the ledger: the row of skips that an instant falls into.
create index history_skipped on history (shard, job_id, fires_at) where state = 'SKIPPED';

-- Named lists of days on which jobs that refer to them do not fire.
create table calendars (
    user_id text not null,
    name text not null,
    days text not null,
    changed_at timestamptz not null,
    primary key (user_id, name)
);

create type backfill_state as enum ('RUNNING', 'COMPLETED', 'CANCELLED');

-- Firings of a range of the past that are to run, a few at a time.
create table backfills (
    shard smallint not null,
    id uuid not null,
    job_id uuid not null,
    user_id text not null,
    starts_at timestamptz not null,
    ends_at timestamptz not null,
    max_parallel integer not null,
    reprocess text not null,
    state backfill_state not null,
    -- The cursor: every firing before it was made or passed over.
    next_fires_at timestamptz,
    total integer not null,
    made integer not null default 0,
    passed_over integer not null default 0,
    created_at timestamptz not null,
    ended_at timestamptz,
    primary key (shard, id)
);
-- For the duty that works them off.
create index backfills_running on backfills (shard, created_at) where state = 'RUNNING';
-- For a job's own.
create index backfills_of_job on backfills (job_id, created_at);
