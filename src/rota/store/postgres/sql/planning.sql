-- name: unplanned
-- Recurring jobs whose next firing lies within the horizon. One that must not overlap and has an execution open is
-- left alone until that firing is due: the way may be free by then.
select
    coalesce($4::timestamptz, now()) as now, j.id, j.revision, j.next_fires_at, j.schedule, j.overlap, o.has_open
from jobs j
cross join lateral (
    select exists (
        select from executions e where e.shard = $1 and e.job_id = j.id
    ) as has_open
) o
where j.shard = $1
  and j.state = 'ACTIVE'
  and j.next_fires_at <= coalesce($4::timestamptz, now()) + $2::interval
  and (j.overlap = 'allow' or not o.has_open or j.next_fires_at <= coalesce($4::timestamptz, now()))
order by j.next_fires_at
limit $3;

-- name: plan
-- Compare and set on (revision, cursor); only the jobs won get their executions and skips. A skip that follows another
-- for the same reason, with nothing fired in between, is added to its row; a new row begins every day, so that none
-- outlives its partition.
with asked as materialized (
    select coalesce($11::timestamptz, now()) as at
),
seen as materialized (
    select
        j.ctid as place, p.becomes, p.firings, p.first, p.last, p.count, p.because, j.skip_from as old_from,
        coalesce(j.skip_because = p.because and j.skip_from > asked.at - interval '1 day', false) as continues
    from unnest(
        $2::uuid[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::timestamptz[],
        $8::timestamptz[], $9::int[], $10::text[]
    ) as p (id, revision, next_fires_at, becomes, firings, first, last, count, because)
    cross join asked
    cross join lateral (
        -- By its key and nothing else: a hundred thousand jobs may share a cursor.
        select j.ctid, j.revision, j.next_fires_at, j.state, j.skip_from, j.skip_because
        from jobs j
        where j.shard = $1
          and j.id = p.id
        limit 1
        for update
    ) j
    where j.revision = p.revision
      and j.next_fires_at = p.next_fires_at
      and j.state = 'ACTIVE'
    limit cardinality($2::uuid[])
),
won as (
    update jobs j
    set next_fires_at = s.becomes,
        state = case when s.becomes is null then 'FINISHED' else 'ACTIVE' end::job_state,
        skip_from = case when s.firings <> '' then null when s.continues then s.old_from else s.first end,
        skip_because = case when s.firings = '' then s.because end
    from seen s
    where j.shard = $1
      and j.ctid = s.place
    returning j.*, s.firings, s.first, s.last, s.count, s.because, s.old_from, s.continues
),
fired as (
    insert into executions (
        shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, policy,
        recurring, exclusive, created_at
    )
    select
        $1, w.id, f.fires_at, 0, w.lane, f.fires_at, w.user_id, w.task_id, w.queue, w.priority, w.parameters, w.policy,
        true, w.overlap <> 'allow', asked.at
    from won w
    cross join asked
    cross join lateral unnest(string_to_array(w.firings, ',')::timestamptz[]) as f (fires_at)
    on conflict (shard, job_id, fires_at, run) do nothing
),
skipped as (
    insert into history (
        shard, job_id, fires_at, run, state, due_at, finished_at, user_id, task_id, queue, priority, parameters,
        policy, recurring, attempt, failures, skipped_because, skipped_to, skipped_count, created_at
    )
    select
        $1, w.id, w.first, 0, 'SKIPPED', w.first, asked.at, w.user_id, w.task_id, w.queue, w.priority, w.parameters,
        w.policy, true, 0, 0, w.because, w.last, w.count, asked.at
    from won w
    cross join asked
    where w.because is not null
      and not w.continues
),
grown as (
    update history h
    set skipped_to = w.last,
        skipped_count = h.skipped_count + w.count
    from won w
    where w.continues
      and h.shard = $1
      and h.job_id = w.id
      and h.fires_at = w.old_from
      and h.run = 0
      and h.state = 'SKIPPED'
)
select count(*) from won;

-- name: partitions
select c.relname::text as name
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent in ('history'::regclass, 'attempts'::regclass);

-- name: forget_names
delete from names
where expires_at < coalesce($1::timestamptz, now());

-- name: forget_workers
-- Long gone, and holding nothing.
delete from workers w
where w.state <> 'ALIVE'
  and w.ended_at < coalesce($1::timestamptz, now()) - interval '1 day'
  and not exists (select from executions e where e.shard = any($2::smallint[]) and e.worker_id = w.id);
