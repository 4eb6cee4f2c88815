-- name: intern_lanes
insert into lanes (queue, task_id, priority, bucket, needs)
select distinct *
from unnest($1::text[], $2::text[], $3::smallint[], $4::smallint[], $5::text[])
on conflict do nothing;

-- name: lanes_of
select l.*
from unnest($1::text[], $2::text[], $3::smallint[], $4::smallint[], $5::text[])
    as t (queue, task_id, priority, bucket, needs)
cross join lateral (
    select l.id, l.queue, l.task_id, l.priority, l.bucket, l.needs
    from lanes l
    where l.queue = t.queue
      and l.task_id = t.task_id
      and l.priority = t.priority
      and l.bucket = t.bucket
      and l.needs = t.needs
    limit 1
) l;

-- name: take_names
-- A name is free when it was never used or has expired. Ordered, so that two batches cannot wait for each other.
insert into names (user_id, kind, name, job_ids, digest, expires_at)
select t.user_id, 'idempotency', t.name, string_to_array(t.job_ids, ',')::uuid[], t.digest,
       coalesce($6::timestamptz, now()) + $5::interval
from unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) as t (user_id, name, job_ids, digest)
order by t.user_id, t.name
on conflict (user_id, kind, name) do update
set job_ids = excluded.job_ids,
    digest = excluded.digest,
    expires_at = excluded.expires_at
where names.expires_at <= coalesce($6::timestamptz, now())
returning user_id, name;

-- name: hold_unique
-- Makes or holds a unique key until the end of the transaction: whose it is, and whether that is us.
insert into names (user_id, kind, name, job_ids, digest, expires_at)
values ($1, 'unique', $2, array[$3::uuid], ''::bytea, coalesce($5::timestamptz, now()) + $4::interval)
on conflict (user_id, kind, name) do update
set name = excluded.name
returning job_ids[1] as job_id;

-- name: still_unique
-- Whether the job that has the key is still pending, or still pending or running.
select exists (
    select from executions e
    where e.shard = $1
      and e.job_id = $2
      and ($3 or e.worker_id is null)
) or exists (
    select from jobs j
    where j.shard = $1
      and j.id = $2
      and j.state in ('ACTIVE', 'PAUSED')
) as it_is;

-- name: forget_name
delete from names
where user_id = $1
  and kind = 'idempotency'
  and name = $2;

-- name: take_unique
update names
set job_ids = array[$3::uuid],
    -- Said anew: a janitor that waits for this row finds that it is not to be forgotten.
    expires_at = coalesce($5::timestamptz, now()) + $4::interval
where user_id = $1
  and kind = 'unique'
  and name = $2;

-- name: names_taken
select n.*
from unnest($1::text[], $2::text[]) as t (user_id, name)
cross join lateral (
    select n.user_id, n.name, n.job_ids, n.digest
    from names n
    where n.user_id = t.user_id
      and n.kind = 'idempotency'
      and n.name = t.name
    limit 1
) n;

-- name: submit_one_shots
-- A one-shot job is this one row and nothing else. Answers with the database's time.
with asked as materialized (
    select coalesce($11::timestamptz, now()) as at
),
stored as (
    insert into executions (
        shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, policy,
        recurring, exclusive, created_at, gate, start_by, deadline
    )
    select
        $1, t.job_id, f.fires_at, 0, case when p.policy ? 'gate' then -t.lane else t.lane end, f.fires_at, t.user_id,
        t.task_id, t.queue, t.priority, t.parameters, t.policy, false, false, asked.at, p.policy #>> '{gate,key}',
        f.fires_at + (p.policy ->> 'start_by')::float8 * interval '1 second',
        f.fires_at + (p.policy ->> 'deadline')::float8 * interval '1 second'
    from unnest(
        $2::uuid[], $3::timestamptz[], $4::int[], $5::text[], $6::text[], $7::text[], $8::smallint[],
        $9::text[], $10::text[]
    ) as t (job_id, fires_at, lane, user_id, task_id, queue, priority, parameters, policy)
    cross join asked
    cross join lateral (select coalesce(t.fires_at, date_trunc('milliseconds', asked.at)) as fires_at) f
    cross join lateral (select t.policy::jsonb as policy) p
)
select at from asked;

-- name: submit_recurring
insert into jobs (
    shard, id, user_id, task_id, queue, priority, lane, parameters, policy, schedule, rules, overlap, calendar,
    pauses_after, state, since, next_fires_at, created_at, watched_from
)
select
    $1, t.id, t.user_id, t.task_id, t.queue, t.priority, t.lane, t.parameters, t.policy, t.schedule, t.rules,
    t.overlap, t.calendar, t.pauses_after, 'ACTIVE', t.since, t.next_fires_at, asked.at, asked.at
from unnest(
    $2::uuid[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::int[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::int[], $15::timestamptz[], $16::timestamptz[]
) as t (
    id, user_id, task_id, queue, priority, lane, parameters, policy, schedule, rules, overlap, calendar, pauses_after,
    since, next_fires_at
)
cross join (select coalesce($17::timestamptz, now()) as at) asked;

-- name: change_recurring
-- Another schedule accounts for what comes after `since`; the old one is kept for what it accounts for.
with seen as materialized (
    select
        j.ctid as place, j.since as old_since, j.schedule as old_schedule,
        -- What would have come after the end of a job that goes on is nobody's to account for.
        case when j.state = 'FINISHED' then j.next_fires_at - interval '1 microsecond' end as ended_at
    from jobs j
    where j.shard = $1
      and j.id = $2
      and j.revision = $3
      and j.next_fires_at is not distinct from $4
    for update
),
kept as (
    insert into revisions (shard, job_id, since, until, schedule)
    select $1, $2, s.old_since, least($16::timestamptz, s.ended_at), s.old_schedule
    from seen s
    where (s.old_schedule <> $11 or s.ended_at is not null)
      and s.old_since < least($16::timestamptz, s.ended_at)
)
update jobs j
set task_id = $5,
    queue = $6,
    priority = $7,
    lane = $8,
    parameters = $9,
    policy = $10,
    schedule = $11,
    rules = $12,
    overlap = $13,
    calendar = $14,
    pauses_after = $15,
    since = case when s.old_schedule <> $11 or s.ended_at is not null then $16::timestamptz else j.since end,
    next_fires_at = $17::timestamptz,
    state = case
        when $17::timestamptz is null then 'FINISHED'
        when j.state = 'PAUSED' then 'PAUSED'
        else 'ACTIVE'
    end::job_state,
    skip_from = null,
    skip_because = null,
    revision = j.revision + 1
from seen s
where j.shard = $1
  and j.ctid = s.place
returning 1;

-- name: withdraw
-- Takes back what was planned and lies ahead; what is due will run.
delete from executions
where shard = $1
  and job_id = $2
  and run = 0
  and worker_id is null
  and attempt = 0
  and fires_at > coalesce($3::timestamptz, now())
returning fires_at;

-- name: begun_ahead
-- The newest firing ahead of its time that somebody holds, has tried, or cancelled; else now.
select greatest(
    coalesce($3::timestamptz, now()),
    (
        select max(e.fires_at) from executions e
        where e.shard = $1
          and e.job_id = $2
          and e.run = 0
          and (e.worker_id is not null or e.attempt > 0)
    ),
    (
        select max(h.fires_at) from history h
        where h.shard = $1
          and h.job_id = $2
          and h.run = 0
          and h.fires_at > coalesce($3::timestamptz, now())
    )
);

-- name: release_all
-- Of a job that allows overlap nobody waits for a turn.
update executions
set lane = case when gate is null then abs(lane) else lane end,
    waits = false
where shard = $1
  and job_id = $2
  and waits;

-- name: unfire
-- What was withdrawn has not been fired.
update jobs
set fired = fired - $3
where shard = $1
  and id = $2;

-- name: hold_state
-- Holds a job against planners and other changes until the end of the transaction.
select state::text as state, revision, next_fires_at
from jobs
where shard = $1
  and id = $2
for update;

-- name: pause
update jobs
set state = 'PAUSED',
    paused_at = coalesce(paused_at, $3::timestamptz, now()),
    paused_until = $4,
    pause_note = $5,
    next_fires_at = $6,
    fired = fired - $7,
    revision = revision + 1
where shard = $1
  and id = $2;

-- name: resume
update jobs
set state = 'ACTIVE',
    paused_through = case when $3 then paused_through else coalesce($4::timestamptz, now()) end,
    watched_from = coalesce($4::timestamptz, now()),
    paused_at = null,
    paused_until = null,
    pause_note = null,
    revision = revision + 1
where shard = $1
  and id = $2
  and state = 'PAUSED'
returning 1;

-- name: change_one_shot
update executions
set task_id = $5,
    queue = $6,
    priority = $7,
    -- What has a gate passes it anew.
    lane = case when gate is null then $8::int else -$8::int end,
    parameters = $9,
    policy = $10::text,
    -- Once it was tried, or is a further run, its nominal time is what its past is known by.
    fires_at = case when attempt = 0 and run = 0 then coalesce($11::timestamptz, fires_at) else fires_at end,
    due_at = coalesce($11::timestamptz, due_at),
    start_by = case
        when attempt > 0 or run > 0 then start_by
        else coalesce($11::timestamptz, fires_at) + ($10::jsonb ->> 'start_by')::float8 * interval '1 second'
    end,
    deadline = case
        when $11::timestamptz is null and $10::jsonb -> 'deadline' is not distinct from policy::jsonb -> 'deadline'
        then deadline
        else coalesce($11::timestamptz, case when run > 0 then created_at else fires_at end)
            + ($10::jsonb ->> 'deadline')::float8 * interval '1 second'
    end
where shard = $1
  and job_id = $2
  and fires_at = $3
  and run = $4
  and worker_id is null
returning 1;

-- name: cancel_recurring
-- The cursor stays: from there on the ledger knows every firing as cancelled.
update jobs
set state = 'CANCELLED',
    paused_at = null,
    paused_until = null,
    pause_note = null,
    revision = revision + 1
where shard = $1
  and id = any($2::uuid[])
  and state in ('ACTIVE', 'PAUSED');

-- name: ask_jobs_to_stop
-- First every open row is marked, and so locked; then `end_pending` ends those nobody holds. By key, not by ctid: a row
-- that a claim or an ending is changing at this moment is waited for and marked in its newest form.
update executions
set cancel_requested = true,
    terminate = terminate or $3
where shard = $1
  and job_id = any($2::uuid[])
  and not (cancel_requested and (terminate or not $3))
  and (backfill_id is null or not $4);

-- name: cancel_backfills
update backfills
set state = 'CANCELLED',
    ended_at = coalesce($3::timestamptz, now())
where shard = $1
  and job_id = any($2::uuid[])
  and state = 'RUNNING';

-- name: ask_execution_to_stop
update executions
set cancel_requested = true
where shard = $1
  and job_id = $2
  and fires_at = $3
  and run = $4
  and not cancel_requested;

-- name: open_of_jobs
select job_id, fires_at, run
from executions
where shard = $1
  and job_id = any($2::uuid[]);

-- name: end_pending
with found as materialized (
    select e.ctid
    from unnest($2::uuid[], $3::timestamptz[], $4::int[]) as t (job_id, fires_at, run)
    cross join lateral (
        select e.ctid
        from executions e
        where e.shard = $1
          and e.job_id = t.job_id
          and e.fires_at = t.fires_at
          and e.run = t.run
        for update
    ) e
    limit cardinality($2::uuid[])
),
gone as (
    delete from executions e
    using found
    where e.shard = $1
      and e.ctid = found.ctid
      and e.worker_id is null
      and e.cancel_requested
    returning e.*
)
insert into history (
    shard, job_id, fires_at, run, state, due_at, finished_at, user_id, task_id, queue, priority,
    parameters, policy, recurring, attempt, failures, error, created_at
)
select
    shard, job_id, fires_at, run, 'CANCELLED', due_at, coalesce($5::timestamptz, now()), user_id, task_id, queue,
    priority, parameters, policy, recurring, attempt, failures, error, created_at
from gone;

-- name: hold_job
-- Holds a recurring job against planners and other changes until the end of the transaction.
update jobs
set revision = revision + 1
where shard = $1
  and id = $2
  and state <> 'CANCELLED'
returning 1;

-- name: rewind
-- What was withdrawn is not accounted for any more, so the cursor stands before it again.
update jobs
set next_fires_at = $3,
    state = case when state = 'FINISHED' then 'ACTIVE' else state end,
    fired = fired - $4,
    skip_from = null,
    skip_because = null
where shard = $1
  and id = $2;

-- name: run_again
-- One more execution of a firing, due at once; its run is the next one free.
insert into executions (
    shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, policy,
    recurring, exclusive, created_at, gate, deadline
)
select
    $1, $2, f.fires_at, 1 + greatest(
        coalesce((select max(run) from executions e where e.shard = $1 and e.job_id = $2 and e.fires_at = f.fires_at), 0),
        coalesce((select max(run) from history h where h.shard = $1 and h.job_id = $2 and h.fires_at = f.fires_at), 0)
    ),
    case when $10::jsonb ? 'gate' then -$4::int else $4::int end, asked.at, $5, $6, $7, $8, $9, $10::text, $11, $12,
    asked.at, $10::jsonb #>> '{gate,key}', asked.at + ($10::jsonb ->> 'deadline')::float8 * interval '1 second'
from (select coalesce($13::timestamptz, now()) as at) asked
cross join lateral (select coalesce($3::timestamptz, date_trunc('milliseconds', asked.at)) as fires_at) f
where not $12::boolean
   or not exists (
       select from executions e
       where e.shard = $1
         and e.job_id = $2
         and e.backfill_id is null
         and not e.waits
   )
on conflict do nothing
returning fires_at, run;

-- name: make_due
update executions
set due_at = least(due_at, coalesce($5::timestamptz, now()))
where shard = $1
  and job_id = $2
  and fires_at = $3
  and run = $4
  and worker_id is null
returning 1;

-- name: forget_letters
delete from dead_letters
where shard = $1
  and job_id = $2;

-- name: hold_jobs_of_letters
update jobs
set revision = revision + 1
where shard = $1
  and id = any($2::uuid[]);

-- name: redrive
-- Dead letters become the next run of their firing. Of a job that allows no overlap, as it is now, one waits until the
-- job has nothing else open, and of several such letters only the oldest goes. What a backfill made is in nobody's way.
with asked as materialized (
    select coalesce($5::timestamptz, now()) as at
),
chosen as materialized (
    select d.place, x.exclusive, row_number() over (partition by d.job_id order by d.fires_at, d.run) as nth
    from unnest($2::uuid[], $3::timestamptz[], $4::int[]) as t (job_id, fires_at, run)
    cross join lateral (
        select d.ctid as place, d.job_id, d.fires_at, d.run, d.recurring and d.backfill_id is null as live
        from dead_letters d
        where d.shard = $1
          and d.job_id = t.job_id
          and d.fires_at = t.fires_at
          and d.run = t.run
        for update
    ) d
    cross join lateral (
        select d.live and exists (
            select from jobs j where j.shard = $1 and j.id = d.job_id and j.overlap <> 'allow'
        ) as exclusive
    ) x
    where not x.exclusive
       or not exists (
           select from executions e
           where e.shard = $1
             and e.job_id = d.job_id
             and e.backfill_id is null
             and not e.waits
       )
    limit cardinality($2::uuid[])
),
letters as (
    delete from dead_letters d
    using chosen c
    where d.shard = $1
      and d.ctid = c.place
      and (c.nth = 1 or not c.exclusive)
    returning d.*, c.exclusive as alone
),
numbered as materialized (
    select
        l.*,
        greatest(l.run, o.run, h.run) + row_number() over (partition by l.job_id, l.fires_at order by l.run) as new_run
    from letters l
    cross join lateral (
        select max(e.run) as run
        from executions e
        where e.shard = $1
          and e.job_id = l.job_id
          and e.fires_at = l.fires_at
    ) o
    cross join lateral (
        select max(h.run) as run
        from history h
        where h.shard = $1
          and h.job_id = l.job_id
          and h.fires_at = l.fires_at
    ) h
),
again as (
    insert into executions (
        shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, policy,
        recurring, exclusive, created_at, backfill_id, gate, deadline, checkpoint
    )
    select
        d.shard, d.job_id, d.fires_at, d.new_run,
        case when d.policy::jsonb ? 'gate' then -abs(d.lane) else d.lane end, asked.at, d.user_id, d.task_id, d.queue,
        d.priority, d.parameters, d.policy, d.recurring, d.alone, asked.at, d.backfill_id,
        d.policy::jsonb #>> '{gate,key}',
        asked.at + (d.policy::jsonb ->> 'deadline')::float8 * interval '1 second',
        d.checkpoint
    from numbered d
    cross join asked
)
select n.job_id, n.fires_at, n.run as old_run, n.new_run::int as run
from numbered n;

-- name: letters_left
select d.job_id, d.fires_at, d.run
from dead_letters d
where d.shard = $1
  and d.job_id = any($2::uuid[]);
