-- name: create
-- A job that is being cancelled is waited for: either it finds this backfill, or this finds it CANCELLED.
insert into backfills (
    shard, id, job_id, user_id, starts_at, ends_at, max_parallel, reprocess, state, next_fires_at, total, created_at
)
select
    $1, $2, j.id, j.user_id, $4, $5, $6, $7, 'RUNNING', $8, $9, coalesce($10::timestamptz, now())
from jobs j
where j.shard = $1
  and j.id = $3
  and j.state <> 'CANCELLED'
for share
returning *, 0 as open;

-- name: shown
select b.*, o.open
from backfills b
cross join lateral (
    select count(*) as open
    from executions e
    where e.shard = $1
      and e.backfill_id = b.id
) o

-- name: find
{shown}
where b.shard = $1
  and b.id = $2;

-- name: of_job
{shown}
where b.shard = $1
  and b.job_id = $2
order by b.created_at desc, b.id desc
limit $3;

-- name: cancel
update backfills
set state = 'CANCELLED',
    ended_at = coalesce($3::timestamptz, now())
where shard = $1
  and id = $2
  and state = 'RUNNING'
returning 1;

-- name: ask_to_stop
-- Not by ctid: a row that a claim or an ending is changing at this moment is waited for and marked in its newest form.
update executions
set cancel_requested = true
where shard = $1
  and backfill_id = $2
returning job_id, fires_at, run, cancel_requested;

-- name: unfilled
-- What runs and has room for more, or has nothing left to make and nothing open. The firings from the cursor of an
-- active job on are yet to be settled by the planner.
select
    b.id, b.job_id, b.next_fires_at, b.ends_at, b.reprocess, b.max_parallel - o.open as room, j.revision, j.user_id,
    j.task_id, j.queue, j.priority, j.parameters, j.policy, j.schedule,
    case when j.state = 'ACTIVE' then j.next_fires_at end as unsettled_from, (
        select c.days from calendars c where c.user_id = j.user_id and c.name = j.calendar
    ) as days
from backfills b
cross join lateral (
    select count(*) as open
    from executions e
    where e.shard = $1
      and e.backfill_id = b.id
) o
cross join lateral (
    select *
    from jobs j
    where j.shard = $1
      and j.id = b.job_id
    limit 1
) j
where b.shard = $1
  and b.state = 'RUNNING'
  and o.open < case when b.next_fires_at is null then 1 else b.max_parallel end
order by b.created_at
limit $2;

-- name: runs
-- What became of each firing in a range that has executions. Skips are none.
select
    e.fires_at,
    max(e.run) as newest,
    bool_or(e.state is null) as is_open,
    (array_agg(e.state order by e.run desc) filter (where e.state is not null))[1]::text as ended_as
from (
    select e.fires_at, e.run, null::ended_state as state
    from executions e
    where e.shard = $1
      and e.job_id = $2
      and e.fires_at between $3 and $4
    union all
    select h.fires_at, h.run, h.state
    from history h
    where h.shard = $1
      and h.job_id = $2
      and h.fires_at between $3 and $4
      and h.state <> 'SKIPPED'
) e
group by e.fires_at;

-- name: fill
-- Compare and set on the cursor, the state and the revision of the job; then the executions. One that is not made,
-- because another made that run of its firing meanwhile, is missing in the answer. What has neither a cursor nor an
-- open execution is COMPLETED: no more can come, as only whoever moves the cursor makes any.
with asked as materialized (
    select
        coalesce($16::timestamptz, now()) as at,
        $5::timestamptz is null and cardinality($6::timestamptz[]) = 0 and not exists (
            select from executions e where e.shard = $1 and e.backfill_id = $2
        ) as is_over
),
won as (
    update backfills b
    set next_fires_at = $5,
        made = b.made + cardinality($6::timestamptz[]),
        passed_over = b.passed_over + $8,
        state = case when asked.is_over then 'COMPLETED' else b.state end,
        ended_at = case when asked.is_over then asked.at end
    from asked
    where b.shard = $1
      and b.id = $2
      and b.state = 'RUNNING'
      and b.next_fires_at is not distinct from $3
      and exists (select from jobs j where j.shard = $1 and j.id = b.job_id and j.revision = $4)
    returning b.job_id, asked.at
),
made as (
    insert into executions (
        shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, policy,
        recurring, exclusive, created_at, backfill_id, gate
    )
    select
        $1, w.job_id, t.fires_at, t.run, case when $15::jsonb ? 'gate' then -$9::int else $9::int end, w.at, $10, $11,
        $12, $13, $14, $15::text, true, false, w.at, $2,
        $15::jsonb #>> '{gate,key}'
    from won w
    cross join unnest($6::timestamptz[], $7::int[]) as t (fires_at, run)
    where not exists (
        select from history h
        where h.shard = $1
          and h.job_id = w.job_id
          and h.fires_at = t.fires_at
          and h.run = t.run
    )
    returning 1
)
select (select count(*) from won) as won, (select count(*) from made) as made;
