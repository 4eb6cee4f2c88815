-- name: clock
with clock as materialized (select coalesce($now::timestamptz, now()) as now)

-- name: open_status
case
    when e.worker_id is not null and e.due_at <= (select now from clock) then 'RUNNING'
    when e.failures + e.crashes + e.lapses > 0 then 'RETRYING'
    when e.due_at > (select now from clock) then 'SCHEDULED'
    else 'QUEUED'
end

-- name: open
-- While an execution runs, its start is known as the moment it was handed out for; its ending tells it exactly.
select
    e.fires_at as listed_at, e.job_id, e.fires_at, e.run, false as is_job,
    {status} as status,
    e.due_at,
    case
        when e.worker_id is not null and e.due_at <= (select now from clock) then greatest(e.claimed_at, e.due_at)
    end as started_at,
    null::timestamptz as finished_at, e.user_id, e.task_id, e.queue, e.priority, e.parameters, e.policy, e.recurring,
    e.attempt, e.failures, e.worker_id, e.cancel_requested, e.error, null::text as result,
    null::text as skipped_because, null::timestamptz as skipped_to, null::int as skipped_count, e.created_at
from {source} e

-- name: ended
select
    e.fires_at as listed_at, e.job_id, e.fires_at, e.run, false as is_job, e.state::text as status, e.due_at,
    e.started_at, e.finished_at, e.user_id, e.task_id, e.queue, e.priority, e.parameters, e.policy, e.recurring,
    e.attempt, e.failures, e.worker_id, false as cancel_requested, e.error, e.result,
    e.skipped_because, e.skipped_to, e.skipped_count, e.created_at
from history e

-- name: dead_letters
select
    e.fires_at as listed_at, e.job_id, e.fires_at, e.run, false as is_job, 'FAILED' as status, e.fires_at as due_at,
    null::timestamptz as started_at, e.died_at as finished_at, e.user_id, e.task_id, e.queue, e.priority, e.parameters,
    e.policy, e.recurring, e.attempt, e.failures, null::text as worker_id, false as cancel_requested, e.error,
    null::text as result, null::text as skipped_because, null::timestamptz as skipped_to, null::int as skipped_count,
    e.created_at
from dead_letters e

-- name: listed_jobs
-- Only the place of a recurring job in a list; the job itself is looked up by its id.
select
    e.created_at as listed_at, e.id as job_id, null::timestamptz as fires_at, 0 as run, true as is_job,
    null::text as status, null::timestamptz as due_at, null::timestamptz as started_at,
    null::timestamptz as finished_at, e.user_id, e.task_id, e.queue, e.priority, null::text as parameters,
    null::text as policy, true as recurring, 0 as attempt, 0 as failures, null::text as worker_id,
    false as cancel_requested, null::text as error, null::text as result, null::text as skipped_because,
    null::timestamptz as skipped_to, null::int as skipped_count, e.created_at
from jobs e

-- name: newer_run
select from executions n
where n.shard = e.shard
  and n.job_id = e.job_id
  and (n.fires_at, n.run) > (e.fires_at, e.run)
union all
select from history n
where n.shard = e.shard
  and n.job_id = e.job_id
  and (n.fires_at, n.run) > (e.fires_at, e.run)

-- name: recurring_jobs
-- What is planned and lies ahead is what fires next; the cursor stands behind it. What is due counts as begun, and so
-- does a firing ahead that was cancelled: it is accounted for.
with clock as materialized (select coalesce($3::timestamptz, now()) as now)
select
    j.id, j.user_id, j.task_id, j.queue, j.priority, j.parameters, j.policy, j.schedule, j.rules,
    j.state::text as state, j.next_fires_at as cursor, j.revision, j.created_at, o.has_open, o.planned, o.waiting,
    j.fired, j.paused_at, j.paused_until, j.pause_note, j.paused_through,
    greatest(o.begun_at, c.cancelled_at) as begun_at,
    least(case when j.state = 'ACTIVE' then j.next_fires_at end, o.planned[1]) as next_fires_at
from jobs j
cross join lateral (
    select
        count(*) filter (where e.backfill_id is null) > 0 as has_open,
        count(*) filter (where e.waits) as waiting,
        coalesce(
            array_agg(e.fires_at order by e.fires_at) filter (where e.run = 0 and a.untouched),
            array[]::timestamptz[]
        ) as planned,
        max(e.fires_at) filter (where e.run = 0 and not a.untouched) as begun_at
    from executions e
    cross join lateral (
        select e.worker_id is null and e.attempt = 0 and e.fires_at > (select now from clock) as untouched
    ) a
    where e.shard = $1
      and e.job_id = j.id
) o
cross join lateral (
    select max(h.fires_at) as cancelled_at
    from history h
    where h.shard = $1
      and h.job_id = j.id
      and h.fires_at > (select now from clock)
      and h.run = 0
) c
where j.shard = $1
  and j.id = any($2::uuid[]);

-- name: ledger_job
select
    j.schedule, j.since, j.state::text as state, j.next_fires_at as cursor, coalesce($3::timestamptz, now()) as now
from jobs j
where j.shard = $1
  and j.id = $2;

-- name: ledger_revisions
select r.since, r.until, r.schedule
from revisions r
where r.shard = $1
  and r.job_id = $2
  and r.until >= $3
  and r.since < $4
order by r.since
limit 10000;

-- name: ledger_runs
-- Of each firing the newest run.
with clock as materialized (select coalesce($6::timestamptz, now()) as now)
select distinct on (e.fires_at) e.*
from (
    (
        select distinct on (o.fires_at) o.*
        from (
            {open}
            where e.shard = $1
              and e.job_id = $2
              and e.fires_at between $3 and $4
        ) o
        order by o.fires_at, o.run desc
        limit $5
    )
    union all
    (
        select distinct on (h.fires_at) h.*
        from (
            {ended}
            where e.shard = $1
              and e.job_id = $2
              and e.fires_at between $3 and $4
              and e.state <> 'SKIPPED'
        ) h
        order by h.fires_at, h.run desc
        limit $5
    )
) e
order by e.fires_at, e.run desc
limit $5;

-- name: ledger_skips
-- The row that `start` may fall into, and those that begin after it.
select e.*
from (
    (
        {ended}
        where e.shard = $1
          and e.job_id = $2
          and e.fires_at <= $3
          and e.state = 'SKIPPED'
        order by e.fires_at desc
        limit 1
    )
    union all
    (
        {ended}
        where e.shard = $1
          and e.job_id = $2
          and e.fires_at > $3
          and e.fires_at <= $4
          and e.state = 'SKIPPED'
        order by e.fires_at
        limit $5
    )
) e
order by e.fires_at;

-- name: latest_executions
-- The newest execution of each job. Of a recurring job what lies ahead does not count yet.
with clock as materialized (select coalesce($3::timestamptz, now()) as now)
select l.*
from unnest($2::uuid[]) as t (job_id)
cross join lateral (
    select * from (
        (
            {open}
            where e.shard = $1
              and e.job_id = t.job_id
              and (not e.recurring or e.fires_at <= (select now from clock))
            order by e.fires_at desc, e.run desc
            limit 1
        )
        union all
        (
            {ended}
            where e.shard = $1
              and e.job_id = t.job_id
            order by e.fires_at desc, e.run desc
            limit 1
        )
    ) e
    order by e.fires_at desc, e.run desc
    limit 1
) l;

-- name: find_executions
with clock as materialized (select coalesce($5::timestamptz, now()) as now)
select l.*
from unnest($2::uuid[], $3::timestamptz[], $4::int[]) as t (job_id, fires_at, run)
cross join lateral (
    {open}
    where e.shard = $1
      and e.job_id = t.job_id
      and e.fires_at = t.fires_at
      and e.run = t.run
    union all
    {ended}
    where e.shard = $1
      and e.job_id = t.job_id
      and e.fires_at = t.fires_at
      and e.run = t.run
) l;

-- name: find_letters
select l.*
from unnest($2::uuid[], $3::timestamptz[], $4::int[]) as t (job_id, fires_at, run)
cross join lateral (
    {letters}
    where e.shard = $1
      and e.job_id = t.job_id
      and e.fires_at = t.fires_at
      and e.run = t.run
) l;

-- name: attempts
select a.attempt, a.worker_id, a.verdict, a.error, a.started_at, a.ended_at
from attempts a
where a.shard = $1
  and a.job_id = $2
  and a.fires_at = $3
  and a.run = $4
order by a.attempt, a.ended_at
limit 1000;

-- name: progress
-- Of these attempts, and not of those before them.
select p.job_id, p.fires_at, p.run, p.fraction, p.note, p.at
from unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::int[]) as t (job_id, fires_at, run, attempt)
cross join lateral (
    select *
    from progress p
    where p.shard = $1
      and p.job_id = t.job_id
      and p.fires_at = t.fires_at
      and p.run = t.run
      and p.attempt = t.attempt
) p;

-- name: logs
-- A line that was written twice is told once.
select distinct on (l.attempt, l.seq) l.attempt, l.seq, l.at, l.text
from logs l
where l.shard = $1
  and l.job_id = $2
  and l.fires_at = $3
  and l.run = $4
  and (l.attempt, l.seq) > ($5::int, $6::int)
  and ($7::int is null or l.attempt = $7)
order by l.attempt, l.seq
limit $8;

-- name: workers
select
    w.id, w.host, w.pid, w.queues, w.tasks, w.concurrency, w.state::text as state, w.started_at, w.renewed_at,
    w.ended_at, w.resources, w.labels, w.wish,
    (select count(*) from executions e where e.worker_id = w.id and e.shard = any($1::smallint[])) as running
from workers w
order by w.state, w.started_at desc
limit 1000;
