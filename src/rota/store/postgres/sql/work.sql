-- How these statements are written. On a fresh table the planner knows nothing, so their plans must not depend on what
-- it believes. Rows are found by a lateral look-up of their key, which is a nested loop whatever the statistics say, and
-- locked; then they are changed by `ctid`. A list of rows found so ends in a `limit` that the planner cannot read: it
-- takes the list for one row, and so a look-up by `ctid` is always the cheapest way to join it.
-- tests/store/test_plans.py holds them to it.

-- name: claim
-- Gives each due execution to exactly one caller. Buckets of users take turns; within a bucket the one with the
-- earliest due time goes first, a priority step counting as five seconds of head start. Who has a handicap instead, as
-- backfills have, comes after all buckets until it is over.
-- The first pass only reads how much each lane should give, the second locks just that much: locking the full limit
-- in every lane would write to thousands of rows that are not taken. $9 may say where in a lane to begin (fronts.py).
with asked as materialized (
    select coalesce($8::timestamptz, now()) as at, coalesce($8::timestamptz, now()) + $6::interval as until
),
heads as materialized (
    select l.id, l.bucket, l.priority * interval '5 seconds' as head_start, f.floor
    from lanes l
    cross join asked
    cross join lateral (select coalesce(($9::jsonb ->> l.id::text)::timestamptz, '-infinity') as floor) f
    cross join lateral (
        select from executions e
        where e.shard = $1
          and e.lane = l.id
          and e.worker_id is null
          and e.due_at between f.floor and asked.until
        -- Not for the order: only one index has it, so no other one will do on a table that is nearly empty.
        order by e.due_at
        limit 1
    ) waiting
    where l.queue = any($3::text[])
      and l.task_id = any($4::text[])
      and l.needs = ''
      -- Neither the dead claim nor strangers: nobody would take their work back.
      and exists (select from workers w where w.id = $2 and w.state = 'ALIVE')
),
lanes_due as materialized (
    select count(*) as n from heads
),
foremost as (
    select
        h.id,
        h.floor,
        c.due_at - h.head_start as rank,
        c.due_at - h.head_start > asked.until as is_behind,
        row_number() over (partition by h.bucket order by c.due_at - h.head_start) as turn
    from heads h
    cross join asked
    cross join lateral (
        select e.due_at
        from executions e
        where e.shard = $1
          and e.lane = h.id
          and e.worker_id is null
          and e.due_at between h.floor and asked.until
        order by e.due_at
        -- Exact for up to four lanes; beyond that a share of four times the limit is close enough.
        limit (select least($5::bigint, 4 * $5::bigint / n + 1) from lanes_due)
    ) c
    where (select n from lanes_due) > 1
),
shares as materialized (
    select id, floor, count(*) as share
    from (select id, floor from foremost order by is_behind, turn, rank limit $5::bigint) taken
    group by id, floor
    union all
    select id, floor, $5::bigint
    from heads
    where (select n from lanes_due) = 1
),
picked as materialized (
    select e.ctid, 1 as one, 1 as two
    from shares s
    cross join asked
    cross join lateral (
        select e.ctid
        from executions e
        where e.shard = $1
          and e.lane = s.id
          and e.worker_id is null
          and e.due_at between s.floor and asked.until
        order by e.due_at
        limit s.share
        for update skip locked
    ) e
    limit $5::bigint
)
{take};

-- name: take
-- However many lanes there are, two comparisons that the planner knows nothing of make it take the list for one row.
update executions e
set worker_id = $2,
    lease_id = $7,
    attempt = e.attempt + 1,
    claimed_at = (select at from asked)
from picked
where e.shard = $1
  and e.ctid = picked.ctid
  and picked.one = 1
  and picked.two = 1
returning
    e.job_id,
    e.fires_at,
    e.run,
    e.attempt,
    e.failures,
    e.crashes,
    e.lapses,
    e.task_id,
    e.user_id,
    e.parameters,
    e.policy,
    e.priority,
    extract(epoch from e.due_at - (select at from asked))::float8 as due_in,
    e.lease_id,
    extract(epoch from e.start_by - (select at from asked))::float8 as start_within,
    extract(epoch from e.deadline - (select at from asked))::float8 as deadline_in,
    e.checkpoint,
    e.lane

-- name: lanes_in_need
-- Whether anybody asks for anything of a worker at all.
select exists (select from lanes l where l.needs <> '') as there;

-- name: queued_in_need
-- What is due in each lane that asks for something: how many, and how long the first has waited, head start included.
select
    l.id, l.needs, c.count,
    asked.at - c.first_due_at + l.priority * interval '5 seconds' as waited
from (select coalesce($7::timestamptz, now()) as at) asked
cross join lateral (
    select *
    from lanes l
    where l.queue = any($3::text[])
      and l.task_id = any($4::text[])
      and l.needs <> ''
      and exists (select from workers w where w.id = $2 and w.state = 'ALIVE')
) l
cross join lateral (
    select count(*) as count, min(first.due_at) as first_due_at
    from (
        select e.due_at
        from executions e
        where e.shard = $1
          and e.lane = l.id
          and e.worker_id is null
          and e.due_at <= asked.at + $6::interval
        order by e.due_at
        limit $5::bigint
    ) first
) c
where c.count > 0;

-- name: claim_in_need
-- So many of each of these lanes.
with asked as materialized (
    select coalesce($8::timestamptz, now()) as at, coalesce($8::timestamptz, now()) + $6::interval as until
),
picked as materialized (
    select e.ctid, 1 as one, 1 as two
    from unnest($3::int[], $4::bigint[]) as s (id, share)
    cross join asked
    cross join lateral (
        select e.ctid
        from executions e
        where e.shard = $1
          and e.lane = s.id
          and e.worker_id is null
          and e.due_at <= asked.until
        order by e.due_at
        limit s.share
        for update skip locked
    ) e
    limit $5::bigint
)
{take};

-- name: finish
-- Ends attempts, fenced by attempt and lease. Answers with the places in the list of those that it has ended: what is
-- not among them was refused and nothing of it changed.
-- The row goes to history, or becomes pending again with its new counters and due time. What should be tried again
-- after its cancellation was asked for is cancelled.
with endings as materialized (
    select *
    from unnest(
        $2::uuid[], $3::timestamptz[], $4::int[], $5::int[], $6::bigint[], $7::text[], $8::int[], $9::int[],
        $10::int[], $11::float8[], $12::text[], $13::text[], $14::float8[]
    ) with ordinality as t (
        job_id, fires_at, run, attempt, lease_id, verdict, failures, crashes, lapses, after, error, result, started_ago,
        number
    )
),
asked as materialized (
    select coalesce($15::timestamptz, now()) as at
),
held as materialized (
    select
        t.*,
        e.ctid as place,
        e.worker_id,
        case
            when t.verdict not in ('RETRY', 'RELEASE') then t.verdict
            when e.cancel_requested then 'CANCELLED'
            when t.verdict = 'RETRY' and e.deadline <= asked.at + t.after * interval '1 second' then 'FAILED'
        end::ended_state as ended_as,
        asked.at,
        asked.at + t.after * interval '1 second' as due_again_at,
        asked.at - t.started_ago * interval '1 second' as started_at
    from endings t
    cross join asked
    cross join lateral (
        select e.ctid, e.worker_id, e.cancel_requested, e.deadline
        from executions e
        where e.shard = $1
          and e.job_id = t.job_id
          and e.fires_at = t.fires_at
          and e.run = t.run
          and e.attempt = t.attempt
          and e.lease_id = t.lease_id
        for update
    ) e
    limit cardinality($2::uuid[])
),
gone as (
    delete from executions e
    using held h
    where e.shard = $1
      and e.ctid = h.place
      and e.lease_id = h.lease_id
      and h.ended_as is not null
    returning
        e.*, h.ended_as, h.verdict, h.failures as failures_now, h.error as error_told,
        case
            when h.ended_as = 'FAILED' and h.verdict = 'RETRY' then
                'DeadlineExceeded: another try would begin too late' || coalesce(E'\n\nThe last one:\n' || h.error, '')
            else h.error
        end as error_now,
        h.result, h.at, h.started_at, h.number
),
again as (
    update executions e
    set worker_id = null,
        lease_id = null,
        claimed_at = null,
        due_at = coalesce(h.due_again_at, e.due_at),
        failures = h.failures,
        crashes = h.crashes,
        lapses = h.lapses,
        error = coalesce(h.error, e.error),
        -- What has begun once may go on later; what was handed back before it began may not.
        start_by = case when h.verdict = 'RELEASE' and h.started_at is null then e.start_by end,
        -- To its gate again: whoever does not run holds no place.
        lane = case when e.gate is null then e.lane else -abs(e.lane) end
    from held h
    where e.shard = $1
      and e.ctid = h.place
      and e.lease_id = h.lease_id
      and h.ended_as is null
    returning h.*
),
ended as (
    insert into history (
        shard, job_id, fires_at, run, state, due_at, started_at, finished_at, user_id, task_id, queue, priority,
        parameters, policy, recurring, attempt, failures, worker_id, lease_id, error, result, created_at,
        skipped_because, skipped_to, skipped_count
    )
    select
        shard, job_id, fires_at, run, ended_as, due_at, started_at, at, user_id, task_id, queue, priority,
        parameters, policy, recurring, attempt, failures_now, worker_id, lease_id, error_now, result, created_at,
        case when ended_as = 'SKIPPED' then 'start_by' end, case when ended_as = 'SKIPPED' then fires_at end,
        case when ended_as = 'SKIPPED' then 1 end
    from gone
),
dead as (
    insert into dead_letters (
        shard, job_id, fires_at, run, died_at, user_id, task_id, queue, priority, lane, parameters, policy, recurring,
        exclusive, attempt, failures, error, created_at, backfill_id, checkpoint
    )
    select
        shard, job_id, fires_at, run, at, user_id, task_id, queue, priority, lane, parameters, policy, recurring,
        exclusive, attempt, failures_now, error_now, created_at, backfill_id, checkpoint
    from gone
    where ended_as = 'FAILED'
    on conflict do nothing
),
tried as (
    insert into attempts (
        shard, job_id, fires_at, run, attempt, lease_id, worker_id, verdict, error, started_at, ended_at
    )
    select $1, job_id, fires_at, run, attempt, lease_id, worker_id, verdict, error, started_at, at
    from again
    union all
    select $1, job_id, fires_at, run, attempt, lease_id, worker_id, verdict, error_told, started_at, at
    from gone
    where verdict in ('RETRY', 'RELEASE', 'FAILED')
)
select array(select number from gone union all select number from again) as ended;

-- name: still_held
-- Which of these attempts are still held under their lease.
select t.job_id, t.fires_at, t.run, t.attempt, t.lease_id
from unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::int[], $6::bigint[])
    as t (job_id, fires_at, run, attempt, lease_id)
cross join lateral (
    select
    from executions e
    where e.shard = $1
      and e.job_id = t.job_id
      and e.fires_at = t.fires_at
      and e.run = t.run
      and e.attempt = t.attempt
      and e.lease_id = t.lease_id
    limit 1
) e;

-- name: told_before
-- Which of these endings have been applied already. The same words must have been used: a reaper that ended the same
-- attempt in another way came first, and this ending was refused.
select t.job_id, t.fires_at, t.run, t.attempt, t.lease_id
from unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::int[], $6::bigint[], $7::text[], $8::text[])
    as t (job_id, fires_at, run, attempt, lease_id, verdict, error)
where exists (
    select from history h
    where h.shard = $1
      and h.job_id = t.job_id
      and h.fires_at = t.fires_at
      and h.run = t.run
      and h.attempt = t.attempt
      and h.lease_id = t.lease_id
      and h.state::text = t.verdict
)
or exists (
    select from attempts a
    where a.shard = $1
      and a.job_id = t.job_id
      and a.fires_at = t.fires_at
      and a.run = t.run
      and a.attempt = t.attempt
      and a.lease_id = t.lease_id
      and a.verdict = t.verdict
      and a.error is not distinct from t.error
);

-- name: checkpoint
-- Keeps where attempts have got to, fenced as their endings are: what is not returned was refused.
with told as materialized (
    select *
    from unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::int[], $6::bigint[], $7::text[])
        as t (job_id, fires_at, run, attempt, lease_id, value)
),
held as materialized (
    select t.lease_id, t.value, e.ctid as place
    from told t
    cross join lateral (
        select e.ctid
        from executions e
        where e.shard = $1
          and e.job_id = t.job_id
          and e.fires_at = t.fires_at
          and e.run = t.run
          and e.attempt = t.attempt
          and e.lease_id = t.lease_id
        for update
    ) e
    limit cardinality($2::uuid[])
)
update executions e
set checkpoint = h.value
from held h
where e.shard = $1
  and e.ctid = h.place
  and e.lease_id = h.lease_id
returning e.job_id, e.fires_at, e.run, e.attempt, e.lease_id;

-- name: keep_logs
insert into logs (shard, job_id, fires_at, run, attempt, seq, at, text)
select
    $1, t.job_id, t.fires_at, t.run, t.attempt, t.seq,
    coalesce($9::timestamptz, now()) - t.ago * interval '1 second', t.text
from unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::int[], $6::int[], $7::float8[], $8::text[])
    as t (job_id, fires_at, run, attempt, seq, ago, text);

-- name: note_progress
insert into progress as p (shard, job_id, fires_at, run, attempt, fraction, note, at)
select $1, t.job_id, t.fires_at, t.run, t.attempt, t.fraction, t.note, coalesce($8::timestamptz, now())
from unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::int[], $6::float8[], $7::text[])
    as t (job_id, fires_at, run, attempt, fraction, note)
on conflict (shard, job_id, fires_at, run) do update
set attempt = excluded.attempt,
    fraction = excluded.fraction,
    note = excluded.note,
    at = excluded.at
where p.attempt <= excluded.attempt;

-- name: give_back
update executions e
set worker_id = null,
    lease_id = null,
    claimed_at = null
where e.shard = $1
  and e.worker_id = $2
  and e.lease_id = any($3::bigint[])
returning e.job_id, e.fires_at, e.run, e.cancel_requested;

-- name: held
-- What a worker has held for so long that it must know of it.
select
    e.job_id, e.fires_at, e.run, e.attempt, e.failures, e.crashes, e.lapses, e.task_id, e.user_id, e.parameters,
    e.policy, e.priority, 0::float8 as due_in, e.lease_id, null::float8 as start_within, null::float8 as deadline_in
from executions e
where e.shard = $1
  and e.worker_id = $2
  and e.claimed_at < coalesce($4::timestamptz, now()) - $3::interval;

-- name: cancelled_of
-- What this worker runs and should stop.
select e.job_id, e.fires_at, e.run, e.terminate
from executions e
where e.shard = $1
  and e.worker_id = $2
  and e.cancel_requested;

-- name: expired
-- What dead workers still hold. A claim may commit just after its worker's death, so the dead are asked as long as
-- they are known.
select
    e.job_id, e.fires_at, e.run, e.attempt, e.failures, e.crashes, e.lapses, e.task_id, e.user_id, e.parameters,
    e.policy, e.priority, 0::float8 as due_in, e.lease_id, null::float8 as start_within,
    null::float8 as deadline_in, e.worker_id
from workers w
cross join lateral (
    select *
    from executions e
    where e.shard = $1
      and e.worker_id = w.id
    limit $2
) e
where w.state <> 'ALIVE'
limit $2;

-- name: expire
-- What nobody holds and may not begin any more is SKIPPED; what may not be tried any more has FAILED.
with asked as materialized (
    select coalesce($3::timestamptz, now()) as at
),
found as materialized (
    select e.ctid as place
    from executions e
    where e.shard = $1
      and least(e.start_by, e.deadline) <= (select at from asked)
      and (e.start_by is not null or e.deadline is not null)
      -- Said so that the ready index does not offer itself.
      and coalesce(e.worker_id, '') = ''
    order by least(e.start_by, e.deadline)
    limit $2
    for update skip locked
),
gone as (
    delete from executions e
    using found
    where e.shard = $1
      and e.ctid = found.place
      and e.worker_id is null
    returning
        e.*, case when e.start_by <= (select at from asked) then 'SKIPPED' else 'FAILED' end as ended_as
),
ended as (
    insert into history (
        shard, job_id, fires_at, run, state, due_at, finished_at, user_id, task_id, queue, priority, parameters, policy,
        recurring, attempt, failures, error, created_at, skipped_because, skipped_to, skipped_count
    )
    select
        g.shard, g.job_id, g.fires_at, g.run, g.ended_as::ended_state, g.due_at, asked.at, g.user_id, g.task_id, g.queue,
        g.priority, g.parameters, g.policy, g.recurring, g.attempt, g.failures,
        case when g.ended_as = 'FAILED' then coalesce(g.error || E'\n\n', '') || $4 end, g.created_at,
        case when g.ended_as = 'SKIPPED' then 'start_by' end, case when g.ended_as = 'SKIPPED' then g.fires_at end,
        case when g.ended_as = 'SKIPPED' then 1 end
    from gone g
    cross join asked
),
dead as (
    insert into dead_letters (
        shard, job_id, fires_at, run, died_at, user_id, task_id, queue, priority, lane, parameters, policy, recurring,
        exclusive, attempt, failures, error, created_at, backfill_id, checkpoint
    )
    select
        g.shard, g.job_id, g.fires_at, g.run, asked.at, g.user_id, g.task_id, g.queue, g.priority, abs(g.lane),
        g.parameters, g.policy, g.recurring, g.exclusive or g.waits, g.attempt, g.failures,
        coalesce(g.error || E'\n\n', '') || $4, g.created_at, g.backfill_id, g.checkpoint
    from gone g
    cross join asked
    where g.ended_as = 'FAILED'
    on conflict do nothing
)
select count(*) from gone;

-- name: register
insert into workers (
    id, host, pid, queues, tasks, concurrency, resources, labels, state, started_at, renewed_at, lease
)
select $1, $2, $3, $4, $5, $6, $7, $8, 'ALIVE', t.now, t.now, $9
from (select coalesce($10::timestamptz, now()) as now) t
on conflict do nothing
returning 1;

-- name: renew
update workers
set renewed_at = coalesce($2::timestamptz, now())
where id = $1
  and state = 'ALIVE'
returning wish;

-- name: wish
update workers
set wish = $2
where id = $1
  and state = 'ALIVE'
returning 1;

-- name: retire
update workers
set state = 'STOPPED',
    ended_at = coalesce($2::timestamptz, now())
where id = $1
  and state = 'ALIVE';

-- name: bury
update workers
set state = 'DEAD',
    ended_at = coalesce($1::timestamptz, now())
where state = 'ALIVE'
  and renewed_at + lease < coalesce($1::timestamptz, now())
returning id;
