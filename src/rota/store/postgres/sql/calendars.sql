-- name: put
insert into calendars (user_id, name, days, changed_at)
values ($1, $2, $3, coalesce($4::timestamptz, now()))
on conflict (user_id, name) do update
set days = excluded.days,
    changed_at = excluded.changed_at
returning user_id, name, days, changed_at;

-- name: all
select user_id, name, days, changed_at
from calendars
where $1::text is null or user_id = $1
order by user_id, name;

-- name: find
select user_id, name, days, changed_at
from calendars
where user_id = $1
  and name = $2;

-- name: hold
-- Holds a calendar against jobs that are about to refer to it, until the end of the transaction.
select user_id, name, days, changed_at
from calendars
where user_id = $1
  and name = $2
for update;

-- name: users
-- The jobs that still heed a calendar.
select count(*)
from jobs
where user_id = $1
  and calendar = $2
  and state not in ('CANCELLED', 'FINISHED');

-- name: delete
delete from calendars
where user_id = $1
  and name = $2;
