-- name: create
insert into api_keys (id, hash, user_id, scopes, created_at)
values ($1, $2, $3, $4, coalesce($5::timestamptz, now()))
returning id, user_id, scopes, created_at, revoked_at;

-- name: all
select id, user_id, scopes, created_at, revoked_at
from api_keys
order by created_at;

-- name: revoke
update api_keys
set revoked_at = coalesce($2::timestamptz, now())
where id = $1
  and revoked_at is null
returning 1;

-- name: principal
select user_id, scopes
from api_keys
where hash = $1
  and revoked_at is null;
