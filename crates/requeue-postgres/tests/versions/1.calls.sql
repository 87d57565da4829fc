-- The statements of programs of version 1, one a line, as they are prepared.
select requeue.open($1)
select 1 from requeue.add($1, $2, $3, $4, $5, $6, $7)
select k, what from requeue.add($1, $2, $3, $4, $5, $6, $7)
select requeue.cancel($1, $2)
select r, requeue.wake($1) from requeue.retry($1, $2) r
update requeue.queue set paused = true where id = $1 returning id
update requeue.queue set paused = false where id = $1 returning requeue.wake(id)
select requeue.pause_group($1, $2, true)
select requeue.pause_group($1, $2, false)
select substr(grp, 5) as name, paused, weight, cap from requeue.groups where queue = $1 order by name
with gone as (delete from requeue.dead where ctid = any(array(select ctid from requeue.dead where queue = $1 limit $2 for update skip locked)) returning 1) select count(*) from gone
select ready, held, waiting, inbox, dead, oldest_us, s.paused, owners, expired, lease_us, snapshot_us, group_cap, paused_groups, ruled_groups, u.base_us, u.max_us, u.rate, u.burst from requeue.stats($1, $2) s left join requeue.queue u on u.id = $1
select key, delay_us, priority, value, age_us, id from requeue.triggers($1, $2, $3, $4)
select key, state, dirty, due_us, every_us, failures, attempt, priority, value, age_us, error, place from requeue.keys($1, $2, $3, $4)
select name from requeue.queue order by name
select to_regclass('requeue.meta') is not null
select version from requeue.meta
select requeue.group_rules($1, $2, $3, $4, $5)
select requeue.beat($1, $2)
select requeue.maintain($1, $2)
select requeue.renew($1)
select requeue.epoch()
select requeue.join_($1, $2, $3)
select requeue.settle($1, $2, $3, $4)
select kind, k, f, att, fails, prio, val from requeue.next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
select requeue.sleeps($1, true)
select requeue.sleeps($1, false)
select requeue.spill($1, $2, $3)
update requeue.queue set base_us = coalesce($2, base_us), max_us = coalesce($3, max_us), rate = case when $4 then $5 else rate end, burst = case when $4 then $6 else burst end where id = $1 and coalesce($2, base_us) <= coalesce($3, max_us) returning base_us, max_us
select base_us, max_us from requeue.queue where id = $1
select requeue.add_tx($1, array[$2::bytea], array[$3::bigint], array[$4::int], array[$5::jsonb], array[$6::bytea])
select requeue.guard($1, $2, $3)
select requeue.succeed($1, $2, $3)
select set_config('synchronous_commit', 'off', true), requeue.wake($1, $2)
