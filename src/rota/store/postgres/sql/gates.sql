-- name: lock
-- One scheduler at a time: the counts are those of the whole cluster.
select
    pg_try_advisory_xact_lock(7682001338) as ours, coalesce($1::timestamptz, now()) as now,
    (select shards from cluster) as shards;

-- name: waiting_gates
-- The gates at which somebody waits, each once: from one to the next in the index, however many wait there.
with recursive heads as (
    (
        select e.gate
        from executions e
        where e.shard = $1
          and e.gate is not null
          and e.lane < 0
        order by e.gate
        limit 1
    )
    union all
    select n.gate
    from heads h
    cross join lateral (
        select e.gate
        from executions e
        where e.shard = $1
          and e.gate is not null
          and e.lane < 0
          and e.gate > h.gate
        order by e.gate
        limit 1
    ) n
)
select gate from heads;

-- name: under_way
select t.gate, c.count
from unnest($2::text[]) as t (gate)
cross join lateral (
    select count(*) as count
    from executions e
    where e.shard = $1
      and e.gate = t.gate
      and e.gate is not null
      and e.lane > 0
) c;

-- name: at_gates
-- The foremost at each gate that are due and have their turn; what backfills made apart, or it would hide the others.
select w.job_id, w.fires_at, w.run, t.gate, w.policy, w.due_at - w.priority * interval '5 seconds' as rank
from unnest($2::text[]) as t (gate)
cross join unnest(array[true, false]) as l (live)
cross join lateral (
    select e.job_id, e.fires_at, e.run, e.policy, e.due_at, e.priority
    from executions e
    where e.shard = $1
      and e.gate = t.gate
      and e.gate is not null
      and e.lane < 0
      and e.due_at <= $3
      and not e.waits
      and (e.priority >= 0) = l.live
    order by e.due_at
    limit $4
) w;

-- name: rates
select g.gate, g.next_at
from gates g
where g.gate = any($1::text[]);

-- name: passed
with found as materialized (
    select e.place
    from unnest($2::uuid[], $3::timestamptz[], $4::int[]) as t (job_id, fires_at, run)
    cross join lateral (
        select e.ctid as place
        from executions e
        where e.shard = $1
          and e.job_id = t.job_id
          and e.fires_at = t.fires_at
          and e.run = t.run
        for update
    ) e
    limit cardinality($2::uuid[])
)
update executions e
set lane = abs(e.lane),
    due_at = greatest(e.due_at, $5)
from found
where e.shard = $1
  and e.ctid = found.place
  and e.lane < 0
  and e.due_at <= $5
returning 1;

-- name: remember
insert into gates (gate, next_at)
select *
from unnest($1::text[], $2::timestamptz[])
on conflict (gate) do update
set next_at = excluded.next_at;

-- name: forget
delete from gates
where next_at < coalesce($1::timestamptz, now()) - interval '1 day';
