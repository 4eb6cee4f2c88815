-- name: server
select
    current_setting('server_version') as version, current_setting('server_version_num')::int as number,
    current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit,
    current_setting('full_page_writes') as full_page_writes;

-- name: clock
select clock_timestamp();

-- name: migrations
select number
from migrations;

-- name: workers
-- The most silent first.
select w.id, w.host, now() - w.renewed_at as silent, w.lease
from workers w
where w.state = 'ALIVE'
order by w.renewed_at
limit 1000;

-- name: overdue
-- The job whose firing has waited longest for a planner.
select j.id, now() - j.next_fires_at as late
from cluster c
cross join lateral generate_series(0, c.shards - 1) as s (shard)
cross join lateral (
    select j.id, j.next_fires_at
    from jobs j
    where j.shard = s.shard
      and j.state = 'ACTIVE'
      and j.next_fires_at < now()
    order by j.next_fires_at
    limit 1
) j
order by j.next_fires_at
limit 1;

-- name: dead_letters
select count(*)
from (select from dead_letters limit $1) d;

-- name: missing_partitions
-- Of today and tomorrow, as `maintain` names them.
select n.name
from unnest(array['history', 'attempts', 'logs']) as p (parent)
cross join unnest(array[0, 1]) as d (ahead)
cross join lateral (
    select p.parent || to_char(now() at time zone 'UTC' + d.ahead * interval '1 day', '_YYYYMMDD') as name
) n
where not exists (
    select from pg_inherits i
    where i.inhparent = to_regclass(p.parent)
      and i.inhrelid = to_regclass(n.name)
)
order by n.name;
