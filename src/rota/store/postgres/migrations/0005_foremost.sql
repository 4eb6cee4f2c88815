-- Whoever looks for the foremost at a gate looks for what backfills made apart; without this it went through all that
-- wait there to find none.
drop index executions_gated;
create index executions_gated on executions (shard, gate, (priority >= 0), due_at) where gate is not null and lane < 0;
