-- Triggers of several queues, with values and without, in one transaction.

-- Adds keys: those of the queues `qs`, `ds` microseconds later, or now where that is 0; with ranks, and with values, periods and names of
-- groups where `vs`, `es` and `gs` are given. It tells of each key that was changed what has become of it: 1 it came in line, 2 it runs again after
-- its run, 3 its timer was set, 4 only its value or its rank changed. A key is told of once, however often it is in `ks`. A key that is
-- known keeps its group.
--
-- A trigger that changes nothing is only looked up: it locks nothing, writes nothing and does not wait for the disk. Keys
-- are looked up by equality in a lateral subquery with a limit, here and below: a planner that thinks the queue is small
-- would make key = any(..) a filter over the whole queue.
-- On a standby nothing is accepted, nor is a trigger known there: what it shows may be long past.
--
-- A key is locked by another transaction while its run is guarded in a transaction of the handler's. With `aside` this call does not wait
-- for that: the key's triggers go to the inbox, and are folded in when the transaction has ended. So do its later triggers with values,
-- which would overtake them. (The inbox has no periods: they wait in requeue.schedule.) Without `aside` the call waits, and is refused
-- before its process gives the connection up (after 10 s): the session would go on waiting, one more each time.
create or replace function requeue.adds(qs int[], ks bytea[], ds bigint[], rs int[], vs jsonb[], es bigint[], gs bytea[], aside boolean)
returns table(q int, k bytea, what smallint) language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
set lock_timeout = '8s' as $$
declare t timestamptz := clock_timestamp(); known bigint[]; gone int; is_known boolean; apart bigint[];
begin
  if pg_is_in_recovery() then raise read_only_sql_transaction using message = 'the server is a standby'; end if;
  select coalesce(array_agg(u.o) filter (where x.same and u.d <= 0 and u.v is null and u.e is null), '{}'), bool_or(x.same is not null)
    into known, is_known
    from unnest(qs, ks, ds, rs, vs, es) with ordinality u(queue, key, d, r, v, e, o)
    left join lateral (select i.rank <= u.r and (i.state = 1 or i.state = 2 and i.dirty) as same from requeue.item i
      where i.queue = u.queue and i.key = u.key limit 1) x on true;
  if cardinality(known) = cardinality(ks) then return; end if;
  select u.queue into gone from unnest(qs) u(queue) where not exists(select 1 from requeue.queue w where w.id = u.queue) limit 1;
  if found then perform requeue.is_gone(gone); end if;
  perform pg_current_xact_id(); -- before a place is drawn: see advance()
  if not aside or not is_known then
    return query select * from requeue.put(qs, ks, ds, rs, vs, es, gs, known, t);
    return;
  end if;
  -- the transaction that locks a key may be about to commit
  if not exists(select 1 from unnest(qs) u(queue) cross join lateral (select x.inbox from requeue.floor x where x.queue = u.queue limit 1) f
      cross join lateral (select 1 from requeue.inbox b where b.queue = u.queue and b.id >= f.inbox order by b.id limit 1) b) then
    begin
      perform set_config('lock_timeout', '50ms', true);
      return query select * from requeue.put(qs, ks, ds, rs, vs, es, gs, known, t);
      return;
    exception when lock_not_available then
      perform set_config('lock_timeout', '8s', true);
    end;
  end if;
  apart := requeue.locked(qs, ks, vs, known);
  insert into requeue.inbox(queue, key, delay_us, rank, value, grp)
    select u.queue, u.key, greatest(u.d, 0), u.r, u.v, u.g
    from unnest(qs, ks, ds, rs, vs, gs) with ordinality u(queue, key, d, r, v, g, o)
    where u.o = any(apart) order by u.o;
  if es is not null then
    insert into requeue.schedule as s(queue, key, every_us, waits)
      select u.queue, u.key, (array_agg(u.e order by u.o desc))[1], true from unnest(qs, ks, es) with ordinality u(queue, key, e, o)
      where u.o = any(apart) and u.e is not null group by u.queue, u.key order by u.queue, u.key
    on conflict (queue, key) do update set every_us = excluded.every_us, rule = null, next_at = null, waits = true;
  end if;
  return query select u.queue, u.key, (case when bool_or(u.d <= 0) then 2 else 3 end)::smallint
    from unnest(qs, ks, ds) with ordinality u(queue, key, d, o) where u.o = any(apart) group by u.queue, u.key;
  if cardinality(known || apart) < cardinality(ks) then
    return query select * from requeue.put(qs, ks, ds, rs, vs, es, gs, known || apart, t);
  end if;
end $$;

-- Of these triggers, those whose keys another transaction locks, and those with values whose keys have values in the inbox: by their
-- numbers in the arrays. It locks nothing.
create or replace function requeue.locked(qs int[], ks bytea[], vs jsonb[], known bigint[]) returns bigint[] language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare free tid[]; apart bigint[];
begin
  begin
    free := array(select x.id from unnest(qs, ks) with ordinality u(queue, key, o) cross join lateral (
      select i.ctid as id from requeue.item i where i.queue = u.queue and i.key = u.key limit 1 for update skip locked) x
      where not u.o = any(known));
    raise exception using errcode = 'RQ003';
  exception when sqlstate 'RQ003' then
    null; -- gives these locks back
  end;
  apart := array(select u.o from unnest(qs, ks) with ordinality u(queue, key, o) cross join lateral (
      select 1 from requeue.item i where i.queue = u.queue and i.key = u.key and not i.ctid = any(free) limit 1) x
    where not u.o = any(known));
  if vs is not null then
    apart := apart || array(select u.o from unnest(qs, ks, vs) with ordinality u(queue, key, v, o)
      join (
        select w.queue, array(select b.key from requeue.inbox b where b.queue = w.queue and b.id >= f.inbox order by b.id limit 1001) as keys
        from (select distinct a.queue from unnest(qs) a(queue)) w
        cross join lateral (select x.inbox from requeue.floor x where x.queue = w.queue limit 1) f) p on p.queue = u.queue
      -- more than these are not searched: all triggers go behind them
      where u.v is not null and not u.o = any(apart) and (u.key = any(p.keys) or cardinality(p.keys) > 1000));
  end if;
  return apart;
end $$;

-- Writes these triggers, but for those of the numbers `without`. Called by adds(), which has the settings for it.
-- A key that is raised to the rank with a floor gets a new place: its old one may lie before the floor, see advance().
create or replace function requeue.put(qs int[], ks bytea[], ds bigint[], rs int[], vs jsonb[], es bigint[], gs bytea[], without bigint[],
  t timestamptz)
returns table(q int, k bytea, what smallint) language plpgsql as $$
begin
  -- a new period takes the place of times of the calendar, and of a period that waits
  if es is not null and exists(select 1 from requeue.schedule) then
    delete from requeue.schedule s where s.ctid = any(array(
      select x.id from (select u.queue, u.key from unnest(qs, ks, es) with ordinality u(queue, key, e, o)
        where u.e is not null and not u.o = any(without) order by u.queue, u.key) u
      cross join lateral (select y.ctid as id from requeue.schedule y where y.queue = u.queue and y.key = u.key limit 1 for update) x));
  end if;
  return query
  insert into requeue.item as i(queue, key, state, rank, pos, due_at, every_us, value, since, grp)
    select p.queue, p.key, case when p.now_ then 1 else 0 end, p.r, p.pos, t + p.d * interval '1 us', p.e, p.v, t,
      requeue.ring(gs[p.o])
    from (
      select s.*, case when s.now_ then nextval('requeue.pos_seq') else 0 end as pos
      from (
        select u.queue, u.key, min(u.o) as o, bool_or(u.d <= 0) as now_, min(u.d) filter (where u.d > 0) as d, min(u.r) as r,
          jsonb_agg(u.v order by u.o) filter (where u.v is not null) as v, (array_agg(u.e order by u.o desc) filter (where u.e is not null))[1] as e
        from unnest(qs, ks, ds, rs, vs, es) with ordinality u(queue, key, d, r, v, e, o)
        where not u.o = any(without)
        group by u.queue, u.key order by o -- places are drawn in the order of the call
      ) s
    ) p order by p.queue, p.key -- rows are locked in one order in all transactions
  on conflict (queue, key) do update set
    state = case when i.state = 0 and excluded.state = 1 then 1 else i.state end,
    pos = case when i.state = 0 and excluded.state = 1 then excluded.pos
      when i.state = 1 and i.grp is null and i.rank > 0 and excluded.rank = 0 then nextval('requeue.pos_seq') else i.pos end,
    since = case when i.state = 0 and excluded.state = 1 then excluded.since else i.since end,
    attempt = case when i.state = 0 and excluded.state = 1 then 0 else i.attempt end,
    dirty = i.dirty or (i.state = 2 and excluded.state = 1),
    -- a schedule takes the place of an earlier one, and of the time that is set for it; a retry keeps its time
    due_at = case when excluded.every_us is not null and i.every_us is not null and i.failures = 0 then excluded.due_at
      else least(i.due_at, excluded.due_at) end,
    every_us = coalesce(excluded.every_us, i.every_us),
    rank = least(i.rank, excluded.rank),
    value = case when excluded.value is null then i.value else coalesce(i.value, '[]') || excluded.value end
  where (excluded.state = 1 and (i.state = 0 or i.state = 2 and not i.dirty))
    or (excluded.due_at is not null and (i.due_at is null or excluded.due_at < i.due_at))
    or excluded.rank < i.rank or excluded.value is not null
    or excluded.every_us is not null
      and (excluded.every_us is distinct from i.every_us or excluded.due_at is distinct from i.due_at)
  returning i.queue, i.key, (case when i.state = 1 and i.since = t then 1 when i.state = 2 and i.dirty then 2
    when i.due_at is not null then 3 else 4 end)::smallint;
  -- behind the keys, as claim() locks them
  if gs is not null then
    update requeue.queue w set grouped = true where not w.grouped and w.id = any(array(
      select u.queue from unnest(qs, gs) u(queue, g) where u.g is not null));
  end if;
end $$;

-- Keys of one queue, whose triggers wait for the transactions that lock them, as adds() says. All have one period, or none.
create or replace function requeue.add(q int, ks bytea[], ds bigint[], rs int[], vs jsonb[] default null, every bigint default null,
  gs bytea[] default null)
returns table(k bytea, what smallint) language sql as $$
  select a.k, a.what from requeue.adds(array_fill(q, array[cardinality(ks)]), ks, ds, rs, vs,
    case when every is not null then array_fill(every, array[cardinality(ks)]) end, gs, false) a $$;

-- Adds keys as adds() does, and wakes the processes that sleep in their queues, except `who`. A transaction that notifies is committed
-- alone: all others that notify wait for the disk, or the replica, that it waits for. So one at a time of those that call this notifies,
-- and none where commits wait for a replica. The others are told so (queue 0), and call wake() when this is committed.
create or replace function requeue.adds_and_wakes(qs int[], ks bytea[], ds bigint[], rs int[], vs jsonb[], es bigint[], gs bytea[], who text)
returns table(q int, k bytea, what smallint) language plpgsql as $$
begin
  return query select * from requeue.adds(qs, ks, ds, rs, vs, es, gs, true);
  if not found then return; end if;
  if current_setting('synchronous_standby_names') = '' and pg_try_advisory_xact_lock(hashtext('requeue.wake'), 0) then
    perform requeue.wake(u.queue, who) from (select distinct a.queue from unnest(qs) a(queue)) u;
  else
    return query select 0, ''::bytea, 0::smallint;
  end if;
end $$;

-- Adds keys of one queue that come at times of the calendar: first at that one (microseconds since 1970), then as `rule_` says, of which
-- two are about `every_` apart.
create or replace function requeue.add_scheduled(q int, ks bytea[], first_ bigint, rank_ int, rule_ text, every_ bigint, gs bytea[])
returns void language plpgsql as $$
declare n int := cardinality(ks);
begin
  perform requeue.adds(array_fill(q, array[n]), ks,
    array_fill(greatest(1, first_ - (extract(epoch from clock_timestamp()) * 1000000)::bigint), array[n]),
    array_fill(rank_, array[n]), null, array_fill(every_, array[n]), gs, true);
  insert into requeue.schedule as s(queue, key, every_us, rule) select distinct q, u.k, every_, rule_ from unnest(ks) u(k) order by u.k
    on conflict (queue, key) do update set every_us = excluded.every_us, rule = excluded.rule, next_at = null;
end $$;
