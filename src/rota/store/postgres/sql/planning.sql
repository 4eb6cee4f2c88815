-- name: unplanned
-- Recurring jobs whose next firing lies within the horizon. One that must not overlap and has an execution open is
-- left alone until that firing is due: the way may be free by then. What a backfill runs is nobody's way.
select
    asked.at as now, j.id, j.revision, j.next_fires_at, j.schedule, j.rules, j.fired, j.paused_through, o.has_open,
    w.waiting, f.failed_in_a_row, (
        select c.days from calendars c where c.user_id = j.user_id and c.name = j.calendar
    ) as days
from (select coalesce($4::timestamptz, now()) as at) asked
cross join lateral (
    select *
    from jobs j
    where j.shard = $1
      and j.state = 'ACTIVE'
      and j.next_fires_at <= asked.at + $2::interval
) j
cross join lateral (
    select exists (
        select from executions e where e.shard = $1 and e.job_id = j.id and e.backfill_id is null
    ) as has_open
) o
cross join lateral (
    select count(*) as waiting
    from executions e
    where e.shard = $1
      and e.job_id = j.id
      and e.waits
      and j.overlap in ('buffer_one', 'buffer_all')
) w
cross join lateral (
    select count(*) filter (where ended.state = 'FAILED') as failed_in_a_row
    from (
        select h.state
        from history h
        where h.shard = $1
          and h.job_id = j.id
          and h.state in ('COMPLETED', 'FAILED')
          and h.finished_at > j.watched_from
          -- What a backfill runs has another priority than any job.
          and h.priority >= 0
          and j.pauses_after is not null
        order by h.fires_at desc, h.run desc
        limit j.pauses_after
    ) ended
) f
where j.overlap = 'allow' or not o.has_open or j.next_fires_at <= asked.at
order by j.next_fires_at
limit $3;

-- name: plan
-- Compare and set on (revision, cursor); only the jobs won get their executions and skips. A skip that follows another
-- for the same reason, with nothing fired in between, is added to its row; a new row begins every day, so that none
-- outlives its partition. What waits for its turn gets a negative lane, and is no rival of what runs.
with asked as materialized (
    select coalesce($9::timestamptz, now()) as at
),
seen as materialized (
    select
        j.ctid as place, p.becomes, p.finishes, p.firings, p.waits, p.skips, p.trails, j.skip_from as old_from,
        coalesce(
            p.leads and j.skip_because = p.skips -> 0 ->> 'because' and j.skip_from > asked.at - interval '1 day', false
        ) as continues
    from (
        select
            t.id, t.revision, t.next_fires_at, t.becomes, t.flags like '%f%' as finishes, t.flags like '%w%' as waits,
            t.flags like '%l%' as leads, t.flags like '%t%' as trails, t.firings, t.skips::jsonb as skips
        from unnest(
            $2::uuid[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[], $8::text[]
        ) as t (id, revision, next_fires_at, becomes, flags, firings, skips)
    ) p
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
      and j.state in ('ACTIVE', 'PAUSED')
    limit cardinality($2::uuid[])
),
won as (
    update jobs j
    set next_fires_at = s.becomes,
        state = case when s.finishes then 'FINISHED' else j.state end,
        fired = j.fired + case when s.firings = '' then 0 else cardinality(string_to_array(s.firings, ',')) end,
        skip_from = case
            when not s.trails then null
            when s.continues and jsonb_array_length(s.skips) = 1 then s.old_from
            else (s.skips -> -1 ->> 'first')::timestamptz
        end,
        skip_because = case when s.trails then s.skips -> -1 ->> 'because' end
    from seen s
    where j.shard = $1
      and j.ctid = s.place
    returning j.*, s.firings, s.waits, s.skips, s.old_from, s.continues
),
fired as (
    insert into executions (
        shard, job_id, fires_at, run, lane, due_at, user_id, task_id, queue, priority, parameters, policy,
        recurring, exclusive, created_at, waits, gate, start_by, deadline
    )
    select
        $1, w.id, f.fires_at, 0, case when w.waits or p.policy ? 'gate' then -w.lane else w.lane end, f.due_at,
        w.user_id, w.task_id, w.queue, w.priority, w.parameters, w.policy, true, w.overlap <> 'allow' and not w.waits,
        asked.at, w.waits, p.policy #>> '{gate,key}',
        f.fires_at + (p.policy ->> 'start_by')::float8 * interval '1 second',
        f.fires_at + (p.policy ->> 'deadline')::float8 * interval '1 second'
    from won w
    cross join asked
    cross join lateral (select w.policy::jsonb as policy) p
    cross join lateral unnest(string_to_array(w.firings, ',')) as t (pair)
    cross join lateral (
        select split_part(t.pair, '|', 1)::timestamptz as fires_at, split_part(t.pair, '|', 2)::timestamptz as due_at
    ) f
    on conflict (shard, job_id, fires_at, run) do nothing
),
skipped as (
    insert into history (
        shard, job_id, fires_at, run, state, due_at, finished_at, user_id, task_id, queue, priority, parameters,
        policy, recurring, attempt, failures, skipped_because, skipped_to, skipped_count, created_at
    )
    select
        $1, w.id, s.first, 0, 'SKIPPED', s.first, asked.at, w.user_id, w.task_id, w.queue, w.priority, w.parameters,
        w.policy, true, 0, 0, s.because, s.last, s.count, asked.at
    from won w
    cross join asked
    cross join lateral rows from (
        jsonb_to_recordset(w.skips) as (first timestamptz, last timestamptz, count int, because text)
    ) with ordinality as s (first, last, count, because, place)
    where not (w.continues and s.place = 1)
),
grown as (
    update history h
    set skipped_to = (w.skips -> 0 ->> 'last')::timestamptz,
        skipped_count = h.skipped_count + (w.skips -> 0 ->> 'count')::int
    from won w
    where w.continues
      and h.shard = $1
      and h.job_id = w.id
      and h.fires_at = w.old_from
      and h.run = 0
      and h.state = 'SKIPPED'
)
select count(*) from won;

-- name: waiting_jobs
-- The jobs that have something waiting, each once: from one to the next in the index, however many each of them has.
with recursive heads as (
    (
        select e.job_id
        from executions e
        where e.shard = $1
          and e.waits
        order by e.job_id
        limit 1
    )
    union all
    select n.job_id
    from heads h
    cross join lateral (
        select e.job_id
        from executions e
        where e.shard = $1
          and e.waits
          and e.job_id > h.job_id
        order by e.job_id
        limit 1
    ) n
)
select job_id from heads;

-- name: release
-- The oldest that waits, of each job that has nothing else open. Its time has come only now. Not locked before it is
-- changed: whoever comes second must find that it is gone, not take the one behind it.
with found as materialized (
    select e.place
    from unnest($2::uuid[]) as t (job_id)
    cross join lateral (
        select e.ctid as place
        from executions e
        where e.shard = $1
          and e.job_id = t.job_id
          and e.waits
        order by e.fires_at, e.run
        limit 1
    ) e
    where not exists (
        select from executions e
        where e.shard = $1
          and e.job_id = t.job_id
          and not e.waits
          and e.backfill_id is null
    )
    limit cardinality($2::uuid[])
)
update executions e
set lane = case when e.gate is null then -e.lane else e.lane end,
    waits = false,
    exclusive = true,
    due_at = greatest(e.due_at, coalesce($3::timestamptz, now()))
from found
where e.shard = $1
  and e.ctid = found.place
  and e.waits
returning 1;

-- name: resume_due
update jobs
set state = 'ACTIVE',
    paused_through = paused_until,
    watched_from = paused_until,
    paused_at = null,
    paused_until = null,
    pause_note = null,
    revision = revision + 1
where shard = $1
  and state = 'PAUSED'
  and paused_until <= coalesce($3::timestamptz, now()) + $2::interval
returning 1;

-- name: partitions
select c.relname::text as name
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent in ('history'::regclass, 'attempts'::regclass, 'logs'::regclass);

-- name: forget_names
-- A unique key is kept as long as its job is there to have it.
delete from names n
where n.expires_at < coalesce($1::timestamptz, now())
  and (
      n.kind <> 'unique'
      or not exists (
          select from executions e
          where e.shard = get_byte(uuid_send(n.job_ids[1]), 15)
            and e.job_id = n.job_ids[1]
      )
      and not exists (
          select from jobs j
          where j.shard = get_byte(uuid_send(n.job_ids[1]), 15)
            and j.id = n.job_ids[1]
            and j.state in ('ACTIVE', 'PAUSED')
      )
  );

-- name: forget_revisions
delete from revisions
where until < coalesce($1::timestamptz, now()) - $2::interval;

-- name: forget_backfills
delete from backfills
where ended_at < coalesce($1::timestamptz, now()) - $2::interval;

-- name: forget_progress
-- Of what no longer runs. A word that comes while we look may go too; the next one comes soon.
delete from progress p
where not exists (
    select from executions e
    where e.shard = p.shard
      and e.job_id = p.job_id
      and e.fires_at = p.fires_at
      and e.run = p.run
      and e.attempt = p.attempt
      and e.worker_id is not null
);

-- name: forget_workers
-- Long gone, and holding nothing.
delete from workers w
where w.state <> 'ALIVE'
  and w.ended_at < coalesce($1::timestamptz, now()) - interval '1 day'
  and not exists (select from executions e where e.shard = any($2::smallint[]) and e.worker_id = w.id);
