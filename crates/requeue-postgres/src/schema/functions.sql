-- Functions of the newest version: how keys go through the tables. Others are in adds.sql (triggers of processes), tick.sql (a call a
-- second) and operators.sql (views, and calls with names). Each migration makes all of them anew, over those of the version before.
--
-- A key goes through the tables so:
--   add           adds() -> put(): item.state 1, in line, or 0 with a timer; of a held key item.dirty
--   user's add    add_tx(): inbox. Later fold() -> take_in() -> adds()
--   claim         next() -> claim(): 1 -> 2, with fence and owner; its values move to run_value
--   end           next() -> finish(): the row is deleted, or 2 -> 1 or 0
--   owner dead    tick() answers 5 -> maintain() -> reap() -> put_back(): 2 -> 1
--   lost reply    settle(): 2 stays, with the new owner, or put_back(): 2 -> 1
--
-- Processes of the versions since `requeue.meta.version` call them too, by name and with their arguments. So a function of theirs keeps
-- its name, its arguments and what it returns until that version is raised: a new argument or a new column is a new function,
-- which stands beside the old one. CONTRIBUTING.md says what a new version needs.
--
-- Times are the server's: clients say how long, never when. Each function that is called by name is one transaction.
--
-- Functions whose statements are about many rows set what keeps the planner to the index that is meant, whatever it believes of
-- the tables. Where rows are read in the order of an index, that is "enable_sort = off" as well: soon after renew() it read all keys by
-- item_pkey, and sorted what was in line. They are never compiled: see jit.sql.

-- The version of the schema, and the oldest one whose programs it serves.
create or replace function requeue.version(out newest int, out oldest int) language sql as $$
  select 2, m.version from requeue.meta m $$;

-- Which server this is, and which table, see epoch(). One that was promoted just now has its new timeline as the end of its recovery,
-- until its first checkpoint is done.
create or replace function requeue.server() returns table(timeline int, system bigint, home oid) language sql as $$
  select greatest(timeline_id, min_recovery_end_timeline), system_identifier, 'requeue.meta'::regclass::oid
    from pg_control_checkpoint(), pg_control_recovery(), pg_control_system() $$;

-- A key or a group's name as text; '\x...' where its bytes are not text.
create or replace function requeue.as_text(b bytea) returns text language plpgsql immutable strict parallel safe as $$
begin
  return convert_from(b, 'UTF8');
exception when character_not_in_repertoire or untranslatable_character then
  return b::text;
end $$;

-- The names of queues that are most like this one: those with which it shares the most pairs of letters.
create or replace function requeue.similar_names(n text) returns text language sql stable as $$
  select string_agg(quote_literal(x.name), ', ' order by x.shared desc, x.name) from (
    select w.name, (select count(*) from generate_series(1, length(n) - 1) i where position(substr(n, i, 2) in w.name) > 0) as shared
    from requeue.queue w order by 2 desc, abs(length(w.name) - length(n)), w.name limit 3) x $$;

-- The number of a queue that is there.
create or replace function requeue.queue_id(queue text) returns int language plpgsql as $$
declare i int; near text;
begin
  select w.id into i from requeue.queue w where w.name = queue_id.queue;
  if found then return i; end if;
  near := requeue.similar_names(queue_id.queue);
  raise exception 'there is no queue %; %', coalesce(quote_literal(queue_id.queue), 'null'),
    coalesce('the most similar names are ' || near, 'there is none at all')
    using errcode = 'RQ006', hint = 'A new queue is made by requeue.make_queue(), or by the first process that opens it.';
end $$;

-- A key, or the name of a group, as it is stored.
create or replace function requeue.as_bytes(t text) returns bytea language plpgsql stable as $$
declare b bytea := convert_to(t, 'UTF8');
begin
  if b is null then raise null_value_not_allowed using message = 'a key is null'; end if;
  if octet_length(b) > 2600 then
    raise program_limit_exceeded using message = format('the key that begins with %L has %s bytes; a server keeps 2600 at most', left(t, 40), octet_length(b));
  end if;
  return b;
end $$;

-- The number of a queue, which is made if it is not there.
create or replace function requeue.open(n text) returns int language plpgsql as $$
declare i int;
begin
  select id into i from requeue.queue where name = n;
  if found then return i; end if;
  if n is null or octet_length(n) not between 1 and 200 or n ~ '[[:cntrl:]]' then
    raise exception 'the name of a queue has 1 to 200 bytes and no control characters: %',
      case when octet_length(n) > 200 then format('this one has %s bytes', octet_length(n)) else coalesce(to_json(n)::text, 'null') end
      using errcode = 'RQ008';
  end if;
  begin
    -- Its number may be one that another queue has had, see epoch(). That is not called: this may be a user's transaction, which would
    -- keep all others from it.
    perform setval('requeue.queue_id_seq', nextval('requeue.queue_id_seq') + 1000) from requeue.meta m
      where (m.timeline, m.system, m.home) is distinct from (select (x.timeline, x.system, x.home) from requeue.server() x);
  exception when insufficient_privilege then
    null; -- a role that only adds
  end;
  insert into requeue.queue(name) values (n) on conflict do nothing;
  select id into i from requeue.queue where name = n;
  insert into requeue.floor values (i, 0, 0) on conflict do nothing;
  return i;
end $$;

-- A process knows a queue by its number, which may be that of another server: one whose last queues were not replicated to this one.
create or replace function requeue.is_gone(q int) returns void language plpgsql as $$
begin
  raise exception 'there is no queue with the number % on this server; open it again', q using errcode = 'RQ004';
end $$;

-- The place of a group in the ring of groups that take turns: by a hash of its name, so that no run of names (of days, of customers'
-- numbers) comes before all others again and again. The name is behind it.
create or replace function requeue.ring(name bytea) returns bytea language sql immutable strict as $$
  select substr(sha256(name), 1, 4) || name $$;

-- Wakes the processes that sleep, but for the one of this name. Most adds call it after their commit, in a transaction of its
-- own (adds_and_wakes() is the exception); everything else calls it in its own transaction. From a notification queue that is
-- 0.9 full on it sends nothing: a transaction that notifies fails once the queue is full, and a process that sleeps looks once
-- a second anyway. A session that listens and has a forgotten transaction, in any database, fills it.
create or replace function requeue.wake(q int, who text default null) returns void language sql as $$
  select pg_notify('requeue', concat_ws(' ', q, who))
    where case when exists(select 1 from requeue.owner where queue = q and idle and name is distinct from who)
      then pg_notification_queue_usage() < 0.9 end $$;

-- Adds keys in a user's transaction: the triggers exist when it commits. It locks no row that anybody else locks. While a process
-- sleeps it notifies, and PostgreSQL commits transactions that notify one after another.
create or replace function requeue.add_tx(q int, ks bytea[], ds bigint[], rs int[] default null, vs jsonb[] default null,
  gs bytea[] default null)
returns void language plpgsql as $$
begin
  perform pg_current_xact_id();
  if exists(select 1 from unnest(vs) v where pg_column_size(v) > 134217728) then
    raise program_limit_exceeded using message = 'a value has more than 128 MB';
  end if;
  insert into requeue.inbox(queue, key, delay_us, rank, value, grp)
    select q, k, d, coalesce(rs[o], 0), vs[o], gs[o] from unnest(ks, ds) with ordinality u(k, d, o);
  perform requeue.wake(q);
end $$;

-- The same for one key that is text, in SQL of any language: select requeue.add_tx('orders', 'order-4711'). The queue must be there.
create or replace function requeue.add_tx(name text, key text, delay interval default '0', priority int default 0, value jsonb default null,
  grp text default null)
returns void language sql as $$
  select requeue.add_tx(requeue.queue_id(name), array[convert_to(key, 'UTF8')],
    array[coalesce((extract(epoch from delay) * 1000000)::bigint, 0)], array[-greatest(coalesce(priority, 0), -2147483647)], array[value], array[convert_to(grp, 'UTF8')]) $$;

-- What is left of the delay of a trigger that came `at`. The clock may have been set back meanwhile.
create or replace function requeue.rest(delay_us bigint, at timestamptz) returns bigint language sql as $$
  select greatest(0, delay_us - greatest(0, (extract(epoch from clock_timestamp() - at) * 1000000)::bigint)) $$;

-- These triggers wait for a run that takes the values of their keys, and ask for it.
create or replace function requeue.set_apart(q int, ids tid[]) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare r record;
begin
  with apart_ as (update requeue.inbox b set apart = true where b.ctid = any(ids) returning b.*)
  select array_agg(a.key) ks, array_agg(a.rank) rs, array_agg(requeue.rest(a.delay_us, a.at)) ds into r from apart_ a;
  if r.ks is not null then perform requeue.add(q, r.ks, r.ds, r.rs); end if;
end $$;

-- Takes these triggers out of the inbox and adds their keys, in one call, which locks rows in one order. A trigger whose value is too
-- large to be joined with those that its key has waits until a run has taken these, see maintain(), and so do all of the key behind it. It
-- answers whether any was taken in.
create or replace function requeue.take_in(q int, ids tid[]) returns boolean language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare r record; one record; any_ boolean := false; full_ bytea[] := '{}'; periods requeue.schedule[];
begin
  with taken as (delete from requeue.inbox b where b.ctid = any(ids) returning b.*)
  select bool_and(b.value is null) bare, bool_and(b.grp is null) alone, array_agg(b.key order by b.id) ks,
    array_agg(b.rank order by b.id) rs, array_agg(b.value order by b.id) vs, array_agg(b.grp order by b.id) gs,
    array_agg(requeue.rest(b.delay_us, b.at) order by b.id) ds
  into r from taken b;
  if r.ks is null then return false; end if;
  if exists(select 1 from requeue.schedule s where s.queue = q and s.waits) then
    periods := array(select s from requeue.schedule s where s.queue = q and s.waits and s.key = any(r.ks) order by s.key for update);
  end if;
  perform requeue.adds(array_fill(q, array[cardinality(r.ks)]), r.ks, r.ds, r.rs, case when r.bare then null else r.vs end,
    case when cardinality(periods) > 0 then array(select (select p.every_us from unnest(periods) p where p.key = u.k)
      from unnest(r.ks) with ordinality u(k, o) order by u.o) end,
    case when r.alone then null else r.gs end, false);
  insert into requeue.schedule(queue, key, every_us, rule)
    select p.queue, p.key, p.every_us, p.rule from unnest(periods) p where p.rule is not null on conflict do nothing;
  return true;
exception when program_limit_exceeded then
  if cardinality(ids) = 1 then
    perform requeue.set_apart(q, ids);
    return false;
  end if;
  -- keys are locked in one order here, too
  for one in select b.ctid as id, b.key from requeue.inbox b where b.ctid = any(ids) order by b.key, b.id loop
    if one.key = any(full_) then
      perform requeue.set_apart(q, array[one.id]);
    elsif requeue.take_in(q, array[one.id]) then
      any_ := true;
    else
      full_ := full_ || one.key;
    end if;
  end loop;
  return any_;
end $$;

-- Folds triggers of committed transactions in: up to `most`, or those whose values have 16 MB, because arrays have a limit. One process
-- after another does it, so that the values of a key are joined in the order in which they came. A key that is held and locked, because its
-- run is guarded in a transaction of the handler's, keeps its triggers here until that ends: a process that waited for it would hand out no
-- other key.
create or replace function requeue.fold(q int, from_id bigint, most int) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare ids tid[]; ks bytea[]; held tid[]; locked bytea[]; bytes bigint; behind bigint; m int; r record;
begin
  perform pg_advisory_xact_lock(hashtext('requeue.fold'), q);
  loop
    ids := array(select x.ctid from requeue.inbox x where x.queue = q and x.id >= from_id and not x.apart order by x.id limit most
      for update skip locked);
    if cardinality(ids) = 0 then return; end if;
    if exists(select 1 from requeue.inbox w where w.queue = q and w.apart) then
      select max(b.id) + 1 into behind from requeue.inbox b where b.ctid = any(ids);
      -- none overtakes another one of its key
      perform requeue.set_apart(q, array(select b.ctid from requeue.inbox b where b.ctid = any(ids)
        and exists(select 1 from requeue.inbox w where w.queue = q and w.key = b.key and w.apart)));
      ids := array(select b.ctid from requeue.inbox b where b.ctid = any(ids) order by b.id);
      if cardinality(ids) = 0 then
        from_id := behind;
        continue;
      end if;
    end if;
    if exists(select 1 from requeue.inbox b where b.ctid = any(ids) and b.value is not null) then
      m := 0;
      bytes := 0; -- as text: what is stored may be compressed
      for r in select x.bytes from unnest(ids) with ordinality u(id, nth) cross join lateral (
          select octet_length(b.value::text) as bytes from requeue.inbox b where b.ctid = u.id) x order by u.nth loop
        exit when bytes >= 16777216;
        m := m + 1;
        bytes := bytes + coalesce(r.bytes, 0);
      end loop;
      ids := ids[:m];
    end if;
    select array_agg(distinct b.key), max(b.id) + 1 into ks, from_id from requeue.inbox b where b.ctid = any(ids);
    if exists(select 1 from unnest(ks) u(k) cross join lateral (
        select 1 from requeue.item i where i.queue = q and i.key = u.k and i.state = 2 limit 1) x) then
      begin
        held := array(select x.id from unnest(ks) u(k) cross join lateral (
          select i.ctid as id from requeue.item i where i.queue = q and i.key = u.k and i.state = 2 limit 1 for update skip locked) x);
        raise exception using errcode = 'RQ003';
      exception when sqlstate 'RQ003' then
        null; -- gives these locks back: adds() takes them in its order
      end;
      locked := array(select u.k from unnest(ks) u(k) cross join lateral (
        select 1 from requeue.item i where i.queue = q and i.key = u.k and i.state = 2 and not i.ctid = any(held) limit 1) x);
      if cardinality(locked) > 0 then
        ids := array(select b.ctid from requeue.inbox b where b.ctid = any(ids) and not b.key = any(locked));
      end if;
    end if;
    -- all of these wait for a transaction or a run: there are others behind them
    exit when requeue.take_in(q, ids);
  end loop;
end $$;

-- After a failover to a server that had not got the last of the log, and where a dump was restored (this is another server then, or another
-- table), numbers would come twice: a new time begins far beyond. Each process calls it on a new connection, before it claims.
create or replace function requeue.epoch() returns void language plpgsql as $$
declare now_ record;
begin
  select * into now_ from requeue.server();
  if exists(select 1 from requeue.meta where (timeline, system, home) is distinct from now_) then
    update requeue.meta set timeline = now_.timeline, system = now_.system, home = now_.home
      where (timeline, system, home) is distinct from now_;
    if found then
      perform setval('requeue.fence_seq', nextval('requeue.fence_seq') + 4294967296),
        setval('requeue.pos_seq', nextval('requeue.pos_seq') + 4294967296),
        setval('requeue.owner_seq', nextval('requeue.owner_seq') + 4294967296),
        setval('requeue.queue_id_seq', nextval('requeue.queue_id_seq') + 1000);
    end if;
  end if;
end $$;

-- Makes a process an owner of keys of a queue, with a lease that begins now. Answers the owner's number.
create or replace function requeue.join_(q int, who text, lease_us bigint) returns bigint language sql as $$
  insert into requeue.owner(queue, name, lease_until)
    values (q, who, clock_timestamp() + lease_us * interval '1 us') returning id $$;

-- False: the lease is gone, and with it everything that was held under it.
create or replace function requeue.beat(o bigint, lease_us bigint) returns boolean language plpgsql
set enable_mergejoin = off set enable_hashjoin = off as $$
begin
  perform 1 from requeue.owner w where w.id = o or w.follows = o order by w.id for no key update; -- as settle() locks them
  update requeue.owner set lease_until = clock_timestamp() + lease_us * interval '1 us'
    where id = o and lease_until > clock_timestamp();
  if not found then return false; end if;
  if exists(select 1 from requeue.owner w where w.follows = o) then
    delete from requeue.owner w where w.follows = o and not exists(select 1 from requeue.item i where i.owner = w.id and i.state = 2);
    update requeue.owner set lease_until = clock_timestamp() + lease_us * interval '1 us'
      where follows = o and lease_until > clock_timestamp();
  end if;
  return true;
end $$;

create or replace function requeue.sleeps(o bigint, asleep boolean) returns void language sql as $$
  update requeue.owner set idle = asleep where id = o and idle <> asleep $$;

-- When a key comes again after a run from `began` to `ended`: after its period or, with times of the calendar, at the first one after the
-- beginning of the run. If no process has told that one (one of version 1 cannot), its timer stays or, without one, about a period
-- passes.
create or replace function requeue.again_at(q int, k_ bytea, began timestamptz, due timestamptz, ended timestamptz, every_ bigint)
returns timestamptz language sql as $$
  select coalesce(case when s.next_at > began then s.next_at when s.is_there then due end, ended + every_ * interval '1 us')
  from (select 1) one left join lateral (select true as is_there, x.next_at from requeue.schedule x
    where x.queue = q and x.key = k_ and x.rule is not null and not x.waits limit 1) s on true $$;

-- Ends runs, and answers the fences of those whose ends were accepted. `how` is 0 done, 1 the key comes back (after `ds` microseconds, with
-- these failures and attempts, and with the values `vs` in front of newer ones), 2 given up because of `errs`, 3 put back as it was before
-- the run, 4 as 1 with the values that the run had. Fences of runs whose keys another transaction locks are answered as negative numbers:
-- their ends are to be told again. The others are not the key's runs any more.
create or replace function requeue.finish(q int, ks bytea[], fs bigint[], how smallint[], ds bigint[], fails int[], atts int[],
  vs jsonb[], errs text[]) returns setof bigint language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare t timestamptz := clock_timestamp(); m int; ids tid[]; mine bigint[]; gone bytea[]; ended bigint[]; some_locked boolean;
begin
  perform pg_current_xact_id();
  -- waits for no lock: a run may be guarded in a transaction that its process has forgotten
  select array_agg(x.id), array_agg(u.f) into ids, mine from unnest(ks, fs) u(k, f) cross join lateral (
    select i.ctid as id from requeue.item i where i.queue = q and i.key = u.k and i.fence = u.f limit 1 for update skip locked) x;
  some_locked := cardinality(mine) is distinct from cardinality(fs); -- or are others' by now
  if some_locked then
    return query select -u.f from unnest(ks, fs) u(k, f) cross join lateral (
      select 1 from requeue.item i where i.queue = q and i.key = u.k and i.fence = u.f limit 1) x where not coalesce(u.f = any(mine), false);
  end if;
  if 0 = all(how) then
    with gone_ as (delete from requeue.item d where d.ctid = any(ids) and not d.dirty and d.due_at is null and d.every_us is null
      returning d.key, d.fence)
    select array_agg(g.key), array_agg(g.fence) into gone, ended from gone_ g;
    if gone is not null then
      return query select unnest(ended);
      if exists(select 1 from requeue.dead d where d.queue = q) then
        delete from requeue.dead d where d.ctid = any(array(select x.ctid from unnest(gone) u(k) cross join lateral (
          select e.ctid from requeue.dead e where e.queue = q and e.key = u.k limit 1) x));
      end if;
      if cardinality(gone) = cardinality(ks) then return; end if;
    end if;
  end if;
  for m in 1..cardinality(ks) loop
    continue when some_locked and not coalesce(fs[m] = any(mine), false);
    if how[m] = 2 then
      insert into requeue.dead(queue, key, value, failures, attempt, error, grp)
        select q, i.key, i.run_value, i.failures + 1, i.attempt, errs[m], i.grp from requeue.item i
        where i.queue = q and i.key = ks[m] and i.fence = fs[m]
      on conflict (queue, key) do update set value = excluded.value, failures = excluded.failures,
        attempt = excluded.attempt, error = excluded.error, grp = excluded.grp, at = excluded.at;
    end if;
    delete from requeue.item i where how[m] in (0, 2) and i.queue = q and i.key = ks[m] and i.fence = fs[m]
      and not i.dirty and i.due_at is null and i.every_us is null;
    if not found then
      update requeue.item i set fence = null, owner = null, dirty = false, since = t, run_value = null,
        state = case when i.dirty or how[m] = 3 or how[m] in (1, 4) and ds[m] <= 0 then 1 else 0 end,
        pos = case when i.dirty or how[m] = 3 or how[m] in (1, 4) and ds[m] <= 0 then nextval('requeue.pos_seq') else 0 end,
        due_at = least(i.due_at,
          case when how[m] in (1, 4) and ds[m] > 0 then t + ds[m] * interval '1 us' end,
          case when how[m] in (0, 2) and i.every_us is not null then requeue.again_at(q, ks[m], i.since, i.due_at, t, i.every_us) end),
        failures = case when how[m] in (1, 4) then fails[m] when how[m] = 3 then i.failures else 0 end,
        attempt = case when how[m] = 3 then greatest(0, i.attempt - 1) when i.dirty or how[m] in (0, 2) then 0 else atts[m] end,
        value = case when how[m] = 1 then nullif(coalesce(vs[m], '[]') || coalesce(i.value, '[]'), '[]')
          when how[m] in (3, 4) then nullif(coalesce(i.run_value, '[]') || coalesce(i.value, '[]'), '[]') else i.value end
      where i.queue = q and i.key = ks[m] and i.fence = fs[m];
    end if;
    if found then
      if how[m] = 0 then delete from requeue.dead d where d.queue = q and d.key = ks[m]; end if;
      return next fs[m];
    end if;
  end loop;
end $$;

-- Timers that are due. Any process may call it, at any time.
create or replace function requeue.due(q int, most int) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set enable_sort = off set plan_cache_mode = force_generic_plan as $$
declare t timestamptz := clock_timestamp();
begin
  perform pg_current_xact_id();
  update requeue.item i set due_at = null, dirty = i.dirty or i.state = 2,
    pos = case when i.state = 0 then nextval('requeue.pos_seq') else i.pos end,
    since = case when i.state = 0 then i.due_at else i.since end,
    state = case when i.state = 0 then 1 else i.state end
  where i.ctid = any(array(select x.ctid from requeue.item x where x.queue = q and x.due_at <= t
    order by x.due_at limit most for update skip locked));
end $$;

-- What is newer than the values that a run has waits in the inbox then, for it is too large to be joined with these.
create or replace function requeue.spill(q int, k_ bytea, f_ bigint) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
set lock_timeout = '8s' as $$
begin
  perform pg_current_xact_id();
  -- or triggers that come meanwhile would be removed below
  perform 1 from requeue.item i where i.queue = q and i.key = k_ and i.fence = f_ for update;
  if not found then return; end if;
  insert into requeue.inbox(queue, key, delay_us, rank, value, grp, apart)
    select q, k_, 0, i.rank, e.v, substr(i.grp, 5), true
    from requeue.item i cross join lateral jsonb_array_elements(i.value) with ordinality e(v, nth)
    where i.queue = q and i.key = k_ and i.fence = f_ order by e.nth;
  -- those that wait there already are newer
  with newer as (delete from requeue.inbox b where b.ctid = any(array(select x.ctid from requeue.inbox x
    where x.queue = q and x.key = k_ and x.apart and x.xmin <> pg_current_xact_id()::xid for update skip locked)) returning b.*)
  insert into requeue.inbox(queue, key, delay_us, rank, value, grp, at, apart)
    select n.queue, n.key, n.delay_us, n.rank, n.value, n.grp, n.at, true from newer n order by n.id;
  update requeue.item i set value = null where i.queue = q and i.key = k_ and i.fence = f_;
end $$;

-- Puts runs back in line, with the values that they had in front of newer ones; `less` is taken from their attempts.
create or replace function requeue.put_back(ids tid[], less int) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare one record;
begin
  update requeue.item i set state = 1, pos = nextval('requeue.pos_seq'), dirty = false, fence = null, owner = null,
    attempt = greatest(0, i.attempt - less), since = clock_timestamp(), run_value = null,
    value = case when i.value is null then i.run_value when i.run_value is null then i.value else i.run_value || i.value end
  where i.ctid = any(ids);
exception when program_limit_exceeded then
  for one in select i.ctid as id, i.queue, i.key, i.fence from requeue.item i where i.ctid = any(ids) loop
    if cardinality(ids) = 1 then
      perform requeue.spill(one.queue, one.key, one.fence);
      select i.ctid into one.id from requeue.item i where i.queue = one.queue and i.key = one.key and i.fence = one.fence;
    end if;
    perform requeue.put_back(array[one.id], less);
  end loop;
end $$;

-- Gives back the keys of owners whose leases are over, of all queues: their runs count as attempts. Any process may call it, at any time.
create or replace function requeue.reap(most int) returns int language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare n int := 0; o record; ids tid[];
begin
  perform pg_current_xact_id();
  for o in select id, queue from requeue.owner where lease_until <= clock_timestamp() for update skip locked loop
    ids := array(select x.ctid from requeue.item x where x.owner = o.id and x.state = 2 limit most - n for update skip locked);
    if cardinality(ids) > 0 then
      perform requeue.put_back(ids, 0), requeue.wake(o.queue);
    end if;
    n := n + cardinality(ids);
    if n >= most then return n; end if;
    -- another transaction locks a row: the rest comes with the next call
    if not exists(select 1 from requeue.item x where x.owner = o.id and x.state = 2) then
      delete from requeue.owner where id = o.id;
    end if;
  end loop;
  return n;
end $$;

-- Moves the floors. It is called in a transaction of its own.
create or replace function requeue.advance(q int) returns void language plpgsql as $$
declare np bigint; nb bigint;
begin
  select last_value into np from requeue.pos_seq;
  select last_value into nb from requeue.inbox_id_seq;
  perform requeue.advance(q, np, nb);
end $$;

-- Clears up triggers that wait apart in the inbox, and keys that dead owners held. tick() says when that is needed. It answers how many
-- runs were put back: if these are `most`, there may be more. (Processes of version 1 call it once a second.)
create or replace function requeue.maintain(q int, most int) returns int language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  -- First: epoch() may draw an id and then wait. A place that is drawn meanwhile would be before P, by a transaction above the horizon.
  perform requeue.advance(q);
  perform requeue.epoch(); -- behind a pooler nobody sees that another server answers
  if exists(select 1 from requeue.inbox w where w.queue = q and w.apart) and pg_try_advisory_xact_lock(hashtext('requeue.fold'), q) then
    update requeue.inbox w set apart = false where w.queue = q and w.apart and not exists(
      select 1 from requeue.item i where i.queue = q and i.key = w.key and i.value is not null);
    if found then perform requeue.wake(q); end if;
  end if;
  return requeue.reap(most);
end $$;

-- Whether a pg_dump of this database is connected. It says so itself, unless PGAPPNAME says something else.
create or replace function requeue.is_dumped() returns boolean language plpgsql as $$
begin
  perform pg_stat_clear_snapshot(); -- or the sessions are those of an earlier look
  return exists(select 1 from pg_stat_activity a where a.datname = current_database() and a.application_name = 'pg_dump');
end $$;

-- Keeps the tables short while a snapshot is held, of a forgotten transaction or a long report. Vacuum can't take away the
-- versions of rows that died since, and each look-up of a key visits all those of that key: within half a minute the queue
-- would do a fifth of what it did. The table is copied instead: truncate() leaves the dead versions behind, and the
-- snapshot would see an empty table.
--
-- `seen` is what this function answered the last time: how many dead versions all look-ups had visited, how many look-ups there
-- had been, and when, as a window began. A window goes on while a look-up visits 8 dead versions or more (of a queue without a
-- held snapshot it is 2). The table is copied when visits of the window took 0.2 s and 23 us a row (measured: a visit 0.23 us;
-- copying 13 ms and 5 us a row), at most every 2 s, and for up to 200,000 rows: the table is locked meanwhile, for about a second
-- at most. The time does not matter: on a busy machine the visits are fewer a second, and take as large a part of the work.
--
-- A transaction that has read or written the table itself keeps it from being copied: that is tried again
-- after ten seconds. It is called in a transaction of its own, and not within a snapshot: what others commit until the table is
-- locked has to be copied too.
--
-- A snapshot that is older than the copy sees an empty table. pg_dump takes its snapshot first and locks its tables later, and
-- would write an empty queue down without a word: nothing is copied while one is connected. It is looked for before the copy, and
-- once more after it, because one that came meanwhile has a snapshot in which the copy is not committed.
create or replace function requeue.renew(seen bigint[]) returns bigint[] language plpgsql set lock_timeout = '200ms' as $$
declare now_ bigint[]; live bigint; name text; n int; later interval := '0 s';
begin
  select array[coalesce(sum(x.idx_tup_read - x.idx_tup_fetch), 0), coalesce(sum(x.idx_scan), 0),
      extract(epoch from clock_timestamp()) * 1000000] into now_
    from pg_stat_user_indexes x where x.relid = 'requeue.item'::regclass;
  -- the server may have begun to count anew, after a crash
  if seen is null or now_[1] < seen[1] or now_[1] - seen[1] < 8 * (now_[2] - seen[2])
      or exists(select 1 from requeue.meta m where m.renewed > to_timestamp(seen[3] / 1e6)) then
    seen := now_;
  end if;
  select x.n_live_tup into live from pg_stat_user_tables x where x.relid = 'requeue.item'::regclass;
  if live <= 200000 and now_[1] - seen[1] >= 800000 + 100 * live then
    name := 'item';
  else
    -- a row or two each, which are changed at each call
    select x.relname into name from pg_stat_user_tables x where x.n_dead_tup > 10000
      and x.relid in ('requeue.floor'::regclass, 'requeue.queue'::regclass, 'requeue.owner'::regclass,
        'requeue.turn'::regclass, 'requeue.round'::regclass) limit 1;
  end if;
  if name is null or not has_table_privilege('requeue.' || name, 'TRUNCATE')
      or current_setting('transaction_isolation') <> 'read committed' then
    return seen;
  end if;
  -- a commit that waits for a replica is in no other session's snapshot yet
  perform set_config('synchronous_commit', 'local', true);
  perform 1 from requeue.meta m where m.renewed < clock_timestamp() - interval '2 s' for update skip locked;
  if not found then return seen; end if;
  begin
    execute format('lock table requeue.%I in access exclusive mode', name);
    if requeue.is_dumped() then raise lock_not_available; end if;
    -- the statistics may be those of a server that crashed: none
    execute format('create temp table requeue_renewed as select * from requeue.%I limit 200001', name);
    get diagnostics n = row_count;
    if n <= 200000 then
      execute format('truncate requeue.%I', name);
      execute format('insert into requeue.%I overriding system value select * from pg_temp.requeue_renewed', name);
    else
      later := '1 h';
    end if;
    drop table pg_temp.requeue_renewed;
    if requeue.is_dumped() then raise lock_not_available; end if;
  exception when lock_not_available or deadlock_detected or insufficient_privilege then
    later := '10 s';
  end;
  update requeue.meta set renewed = clock_timestamp() + later;
  return now_;
end $$;

-- Hands out up to n keys to an owner, whose row it locks against reap() and settle(); one that is gone, or whose lease is over, gets
-- nothing. Triggers of users' transactions are folded in before, where `folds` says so. Where the rate allows no more there is a
-- row without a key, with the microseconds until the next token as `f`.
--
-- Groups take turns (rule B3). Those that have keys of a rank in line form a ring, which is the order of the index item_turn: the next one
-- is looked up behind the group whose turn was the last. So groups come and go with their keys, and nothing is written for them. Those that
-- are paused, or have as many keys held as they may, are passed over. Keys without a group are one more, at the beginning of the ring.
--
-- The claims of a queue with groups are made one after another: each locks the queue's row until it is committed, and by then waits for no
-- lock (keys that others have locked are left out). So turns and caps are those of all processes together.
create or replace function requeue.claim(q int, o bigint, n int, folds boolean)
returns table(k bytea, f bigint, att int, fails int, prio int, val jsonb, place bigint) language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set enable_sort = off set plan_cache_mode = force_generic_plan as $$
declare fl requeue.floor; qu requeue.queue; got int := 0; m int; t timestamptz; ids tid[]; part int := -1;
  level int; served bytea; spare int; laps int; wanted int := n;
begin
  perform 1 from requeue.owner w where w.id = o and w.follows is null and w.lease_until > clock_timestamp() for key share;
  if not found then raise exception 'the lease is lost' using errcode = 'RQ001'; end if;
  select * into qu from requeue.queue w where w.id = q;
  if not found then perform requeue.is_gone(q); end if;
  if qu.paused then return; end if;
  select * into fl from requeue.floor x where x.queue = q;
  if folds and exists(select 1 from requeue.inbox b where b.queue = q and b.id >= fl.inbox and not b.apart) then
    perform requeue.fold(q, fl.inbox, 1000);
    select * into qu from requeue.queue w where w.id = q; -- the first group may have come, or a pause
    if qu.paused then return; end if;
  end if;
  select x.due_at into t from requeue.item x where x.queue = q and x.due_at is not null order by x.due_at limit 1;
  if t <= clock_timestamp() then perform requeue.due(q, 1000); end if;
  if qu.rate is not null or qu.grouped then
    select * into qu from requeue.queue w where w.id = q for no key update;
    if qu.paused then return; end if;
  end if;
  if qu.rate is not null then
    t := clock_timestamp();
    -- one key, where the clock was set back
    qu.tat := greatest(case when qu.tat <= t then qu.tat else t - make_interval(secs => 1 / qu.rate) end,
      -- times are rounded: no whole token may be lost by that
      t - make_interval(secs => qu.burst / qu.rate) - interval '1 us');
    n := floor(least(n, qu.burst, extract(epoch from t - qu.tat) * qu.rate + 1e-9))::int;
  end if;
  while n > 0 loop
    if not qu.grouped then
      -- Of three parts of the line the middle one has a floor.
      if part = 0 then
        ids := array(select x.ctid from requeue.item x where x.queue = q and x.state = 1 and x.grp is null and x.rank = 0
          and x.pos >= fl.pos order by x.rank, x.pos limit n - got for update skip locked);
      elsif part < 0 then
        ids := array(select x.ctid from requeue.item x where x.queue = q and x.state = 1 and x.grp is null and x.rank < 0
          order by x.rank, x.pos limit n - got for update skip locked);
      else
        ids := array(select x.ctid from requeue.item x where x.queue = q and x.state = 1 and x.grp is null and x.rank > 0
          order by x.rank, x.pos limit n - got for update skip locked);
      end if;
    else
      if laps is null then
        level := least(
          (select x.rank from requeue.item x where x.queue = q and x.state = 1 and x.grp is null
            and x.rank > coalesce(level, -2147483648) order by x.rank, x.pos limit 1),
          (select x.rank from requeue.item x where x.queue = q and x.state = 1 and x.grp is not null
            and x.rank > coalesce(level, -2147483648) order by x.rank, x.grp, x.pos limit 1));
        exit when level is null;
        served := null;
        select w.grp, w.rest into served, spare from requeue.turn w where w.queue = q and w.rank = level;
        served := coalesce(served, '');
        laps := case when spare > 0 then 0 else 1 end;
      end if;
      -- The rest of the last turn, if laps is 0. Else once around the ring, with `laps` turns of each group at once: a scan of a group
      -- passes the keys taken from it before, and a scan for each turn would pass them each time. With one turn the keys come in their
      -- order, and no more of the ring is looked at than is needed.
      with recursive ring(g, nth, again) as (
        select served, 0, false
        union all
        select coalesce(x.grp, ''), r.nth + 1, r.again or x.grp is null
        from ring r left join lateral (select y.grp from requeue.item y where y.queue = q and y.state = 1 and y.rank = level
          and y.grp > r.g order by y.rank, y.grp, y.pos limit 1) x on true
        where laps > 0 and (not r.again or x.grp <= served)
      ), found_ as (
        select u.id, u.nth as key, r.g, r.nth, (u.nth - 1) / w.weight as lap,
          case when laps = 0 then spare - u.nth else w.weight - 1 - (u.nth - 1) % w.weight end as rest
        from ring r
        cross join lateral (select coalesce(max(y.weight), 1) as weight, coalesce(max(y.cap), qu.cap) as cap,
          coalesce(bool_or(y.paused), false) as paused from requeue.groups y where y.queue = q and y.grp = r.g) w
        cross join lateral (select case when w.paused then 0 else least(n - got,
          case when laps = 0 then spare else w.weight::bigint * laps end,
          case when w.cap < 2147483647 and r.g <> '' then w.cap - (select count(*) from (select 1 from requeue.item y
            where y.queue = q and y.grp = r.g and y.state = 2 limit w.cap) h) end) end as room) c
        cross join lateral unnest(case when r.g = ''
          then array(select y.ctid from requeue.item y where y.queue = q and y.state = 1 and y.grp is null and y.rank = level
            order by y.rank, y.pos limit c.room for update skip locked)
          else array(select y.ctid from requeue.item y where y.queue = q and y.state = 1 and y.grp = r.g and y.rank = level
            order by y.rank, y.grp, y.pos limit c.room for update skip locked) end) with ordinality u(id, nth)
        where laps = 0 or r.nth > 0
        limit case when laps < 2 then n - got end
      ), line as (
        select x.*, row_number() over (order by x.lap, x.nth, x.key) as seq from found_ x
      )
      select array_agg(x.id order by x.seq), coalesce((array_agg(x.g order by x.seq desc))[1], served),
        coalesce((array_agg(x.rest order by x.seq desc))[1], 0) into ids, served, spare
      from line x where x.seq <= n - got;
    end if;
    m := 0;
    if cardinality(ids) > 0 and not qu.grouped then
      return query update requeue.item i set state = 2, dirty = false, fence = nextval('requeue.fence_seq'), owner = o,
          attempt = i.attempt + 1, run_value = i.value, value = null, since = clock_timestamp()
        where i.ctid = any(ids)
        returning i.key, i.fence, i.attempt, i.failures, -i.rank, i.run_value, i.pos;
      get diagnostics m = row_count;
    elsif cardinality(ids) > 0 then
      -- the same, told in the order of the turns and not of places in line, which costs more
      return query update requeue.item i set state = 2, dirty = false, fence = nextval('requeue.fence_seq'), owner = o,
          attempt = i.attempt + 1, run_value = i.value, value = null, since = clock_timestamp()
        from unnest(ids) with ordinality u(id, nth) where i.ctid = u.id
        returning i.key, i.fence, i.attempt, i.failures, -i.rank, i.run_value, got + u.nth;
      get diagnostics m = row_count;
    end if;
    got := got + m;
    if not qu.grouped then
      part := part + 1;
      exit when got >= n or part > 1;
    elsif got >= n or laps > 0 and m = 0 then
      insert into requeue.turn as w values (q, level, served, spare)
        on conflict (queue, rank) do update set grp = excluded.grp, rest = excluded.rest
        where (w.grp, w.rest) is distinct from (excluded.grp, excluded.rest);
      exit when got >= n;
      laps := null;
    else
      -- more turns than keys are never wanted
      laps := case when laps = 0 then 1 else least(n - got, ceil((n - got)::numeric * laps / m)) end;
    end if;
  end loop;
  if qu.rate is not null then
    qu.tat := qu.tat + make_interval(secs => got / qu.rate);
    if got > 0 then update requeue.queue set tat = qu.tat where id = q; end if;
    if got >= n and n < wanted then
      f := greatest(0, (extract(epoch from qu.tat - clock_timestamp()) + 1 / qu.rate) * 1000000)::bigint;
      return next;
    end if;
  end if;
end $$;

-- Ends runs and hands out the next ones in one transaction. `kind` is 0 for what finish() says of an end (f), 1 for a key that is
-- handed out, 2 for how many microseconds it is (f) to the next timer or token, where fewer than n keys were handed out, 3 where
-- triggers of users' transactions are to be folded in: a call without ends does that. Before the keys come those with times of the calendar
-- (4): the rule (val), and the instant (f, microseconds since 1970) after which a time is to be told, by come_again().
--
-- A transaction that locks several keys and waits for them locks them in the order of the keys, all in one statement: adds(), fold(),
-- settle(). So there is no deadlock. That is why a transaction that ends runs folds nothing in; all that follows in it (timers,
-- claims) leaves out keys that others have locked. A call that waits for a lock for long is refused before its process gives the
-- connection up, as in adds().
create or replace function requeue.next(q int, o bigint, n int, ks bytea[], fs bigint[], how smallint[], ds bigint[], nfails int[],
  atts int[], vs jsonb[], errs text[])
returns table(kind int, k bytea, f bigint, att int, fails int, prio int, val jsonb) language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set enable_sort = off set lock_timeout = '8s' as $$
declare got int := 0; due timestamptz; t timestamptz; folds boolean := cardinality(ks) = 0; first bigint;
  rules boolean := exists(select 1 from requeue.schedule s where s.queue = q limit 1);
begin
  if not folds then
    -- the owner before its keys, as reap() and settle() lock them; whether it is there is for claim() to say
    if n > 0 then perform 1 from requeue.owner w where w.id = o for key share; end if;
    return query select 0, null::bytea, x, 0, 0, 0, null::jsonb
      from requeue.finish(q, ks, fs, how, ds, nfails, atts, vs, errs) x;
    -- groups may be below their caps again, and this process leaves keys of theirs to others
    if n < cardinality(ks) and exists(select 1 from requeue.queue w where w.id = q and w.grouped) then
      perform requeue.wake(q);
    end if;
  end if;
  if n > 0 then
    return query
      with c as materialized (select * from requeue.claim(q, o, n, folds))
      select x.kind, x.k, x.f, x.att, x.fails, x.prio, x.val from (
        select case when c.k is null then 2 else 1 end as kind, c.* from c
        union all
        select 4, c.k, (extract(epoch from clock_timestamp()) * 1000000)::bigint, 0, 0, 2147483647, to_jsonb(s.rule), 0
          from c cross join lateral (select y.rule from requeue.schedule y where y.queue = q and y.key = c.k and y.rule is not null
            and not y.waits and coalesce(y.next_at <= clock_timestamp(), true) limit 1) s where rules) x
      order by x.prio desc, x.place;
    get diagnostics got = row_count;
    if (got < n or rules) and not exists(select 1 from requeue.queue w where w.id = q and w.paused) then
      select i.due_at into due from requeue.item i where i.queue = q and i.due_at is not null order by i.due_at limit 1;
      if due is not null then
        -- a timer that was due before the claim is locked by another transaction
        t := clock_timestamp();
        if due < t - interval '50 ms' then due := t + interval '200 ms'; end if;
        return query select 2, null::bytea, greatest(0, (extract(epoch from due - t) * 1000000)::bigint), 0, 0, 0, null::jsonb;
      end if;
    end if;
    if not folds then
      select x.inbox into first from requeue.floor x where x.queue = q;
      if exists(select 1 from requeue.inbox b where b.queue = q and b.id >= first and not b.apart) then
        return query select 3, null::bytea, 0::bigint, 0, 0, 0, null::jsonb;
      end if;
    end if;
  end if;
end $$;

-- The next times of keys whose rules are these, in microseconds since 1970. A key whose rule is being changed is left out.
create or replace function requeue.come_again(q int, ks bytea[], rules text[], times bigint[]) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare r record;
begin
  for r in select x.id, u.t from unnest(ks, rules, times) u(k, rule, t) cross join lateral (select s.ctid as id from requeue.schedule s
      where s.queue = q and s.key = u.k and s.rule = u.rule limit 1 for update skip locked) x loop
    update requeue.schedule s set next_at = timestamptz 'epoch' + r.t * interval '1 us' where s.ctid = r.id;
  end loop;
end $$;

-- In the handler's own transaction: locks the run until that ends. It fails if the run is not the key's any more.
create or replace function requeue.guard(q int, k_ bytea, f_ bigint) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
begin
  perform 1 from requeue.item i where i.queue = q and i.key = k_ and i.fence = f_ and i.state = 2 for no key update;
  if not found then raise exception 'the run with fence % has lost its lease', f_ using errcode = 'RQ002'; end if;
end $$;

-- The same, and the run has ended well when the transaction commits.
create or replace function requeue.succeed(q int, k_ bytea, f_ bigint) returns void language plpgsql as $$
begin
  perform requeue.guard(q, k_, f_);
  perform requeue.finish(q, array[k_], array[f_], array[0::smallint], array[0::bigint], array[0], array[0],
    array[null::jsonb], array[null::text]);
  perform requeue.wake(q);
end $$;

-- After a call whose reply was lost: the process goes on as owner n with the runs that it knows. Whatever else o held, or an unanswered
-- claim of o still brings (it is waited for), goes back in line, and o is gone: a claim that was on its way is refused. A run that it
-- knows, and whose key another transaction locks, because it is guarded in a transaction of the handler's, stays with o, which follows n
-- then: its lease is extended with that of n. Without n, its lease runs out. It answers the fences of those runs that n has then, which may
-- be by an earlier call whose reply was lost.
create or replace function requeue.settle(q int, o bigint, n bigint, fs bigint[]) returns bigint[] language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
set lock_timeout = '8s' as $$
declare os bigint[]; ids tid[];
begin
  perform pg_current_xact_id();
  os := array(select w.id from requeue.owner w where w.id = o or w.follows = o order by w.id for update);
  if cardinality(os) > 0 then
    if n is not null then
      perform 1 from requeue.owner where id = n for key share;
      if not found then raise exception 'the lease is lost' using errcode = 'RQ001'; end if;
      -- waits for runs that this process does not know: no process would end those that stay with o. In the order in which all lock keys
      perform set_config('lock_timeout', '500ms', true);
      perform 1 from requeue.item x where x.owner = any(os) and x.state = 2 and not x.fence = any(fs) order by x.key for update;
      update requeue.item i set owner = n where i.ctid = any(array(
        select x.ctid from requeue.item x where x.owner = any(os) and x.state = 2 and x.fence = any(fs) for update skip locked));
    end if;
    ids := array(select x.ctid from requeue.item x where x.owner = any(os) and x.state = 2
      and (n is null or not x.fence = any(fs)) for update skip locked);
    if cardinality(ids) > 0 then
      perform requeue.put_back(ids, 1), requeue.wake(q);
    end if;
    -- the process counts its lease from the moment when it became n
    update requeue.owner w set follows = coalesce(n, w.follows), idle = false,
      lease_until = greatest(w.lease_until, (select x.lease_until from requeue.owner x where x.id = n)) where w.id = any(os)
      and exists(select 1 from requeue.item x where x.owner = w.id and x.state = 2);
    delete from requeue.owner w where w.id = any(os) and not exists(select 1 from requeue.item x where x.owner = w.id and x.state = 2);
  end if;
  return array(select i.fence from requeue.owner w join requeue.item i on i.owner = w.id
    where (w.id = n or w.follows = n) and i.state = 2 and i.fence = any(fs));
end $$;

-- What is known of keys: of one, or of the next `most` behind `after` in the order of the keys. Each has one row: a key whose last
-- run gave up, and that was added again, is as its trigger left it, with that run's error. Status 3 is dead.
-- It is planned at each call, which knows which keys are asked for. It is not "stable": it would look with a snapshot from before
-- renew(), for which it may have waited.
create or replace function requeue.listed(q int, k_ bytea, after bytea, most int)
returns table(key bytea, state smallint, dirty boolean, due_us bigint, every_us bigint, failures int, attempt int,
  priority int, value jsonb, age_us bigint, error text, place bigint, host text, pid int, application text, rule text) language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_custom_plan as $$
begin
  return query
  select x.* from (
    (select i.key as k, i.state, i.dirty, (extract(epoch from i.due_at - clock_timestamp()) * 1000000)::bigint, i.every_us,
      i.failures, case when i.state = 2 then i.attempt else i.attempt + 1 end, -i.rank, coalesce(i.run_value, i.value),
      (extract(epoch from clock_timestamp() - i.since) * 1000000)::bigint,
      (select coalesce(d.error, '') from requeue.dead d where d.queue = q and d.key = i.key), i.pos,
      requeue.process_host(o.name), requeue.process_pid(o.name), requeue.process_application(o.name),
      (select s.rule from requeue.schedule s where s.queue = q and s.key = i.key)
    from requeue.item i left join lateral (select w.name from requeue.owner w where w.id = i.owner limit 1) o on true
    where i.queue = q and (k_ is null or i.key = k_) and (after is null or i.key > after)
    order by i.key limit most)
    union all
    (select d.key, 3::smallint, false, null, null, d.failures, d.attempt, 0, d.value,
      (extract(epoch from clock_timestamp() - d.at) * 1000000)::bigint, coalesce(d.error, ''), 0, null, null, null, null
    from requeue.dead d where d.queue = q and (k_ is null or d.key = k_) and (after is null or d.key > after)
      and not exists(select 1 from requeue.item i where i.queue = q and i.key = d.key)
    order by d.key limit most)) x
  order by x.k limit most;
end $$;

-- The same, as programs of version 1 ask for it.
create or replace function requeue.keys(q int, k_ bytea, after bytea, most int)
returns table(key bytea, state smallint, dirty boolean, due_us bigint, every_us bigint, failures int, attempt int,
  priority int, value jsonb, age_us bigint, error text, place bigint) language sql as $$
  select l.key, l.state, l.dirty, l.due_us, l.every_us, l.failures, l.attempt, l.priority, l.value, l.age_us, l.error, l.place
  from requeue.listed(q, k_, after, most) l $$;

-- Triggers of users' transactions that no process has taken in, of one key or of all: the next `most` behind the one with this number.
create or replace function requeue.triggers(q int, k_ bytea, after bigint, most int)
returns table(key bytea, delay_us bigint, priority int, value jsonb, age_us bigint, id bigint) language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_custom_plan as $$
begin
  return query
  select x.key, greatest(0, x.delay_us - x.waits), -x.rank, x.value, x.waits, x.id
  from (select b.*, greatest(0, (extract(epoch from clock_timestamp() - b.at) * 1000000)::bigint) as waits
    from requeue.inbox b where b.queue = q and b.id > after and (k_ is null or b.key = k_) order by b.id limit most) x;
end $$;

-- Takes away what asks for a run of the key; a run that goes on goes on.
create or replace function requeue.cancel(q int, k_ bytea) returns boolean language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
set lock_timeout = '8s' as $$
declare n int; c int;
begin
  delete from requeue.schedule s where s.queue = q and s.key = k_;
  delete from requeue.inbox b where b.queue = q and b.key = k_;
  get diagnostics n = row_count;
  -- a claim may be about to hold it: which of the two statements is meant is known when it is locked
  perform 1 from requeue.item i where i.queue = q and i.key = k_
    and (i.state <> 2 or i.dirty or i.due_at is not null or i.every_us is not null) for update;
  update requeue.item i set dirty = false, due_at = null, every_us = null, value = null
    where i.queue = q and i.key = k_ and i.state = 2 and (i.dirty or i.due_at is not null or i.every_us is not null);
  get diagnostics c = row_count;
  n := n + c;
  delete from requeue.item i where i.queue = q and i.key = k_ and i.state <> 2;
  get diagnostics c = row_count;
  return n + c > 0;
end $$;

-- Lets a key run now that waits, or whose last run gave up.
create or replace function requeue.retry(q int, k_ bytea) returns boolean language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare v jsonb; g bytea; comes boolean;
begin
  -- a process that works takes it in, and it is in line then
  update requeue.inbox b set delay_us = 0 where b.queue = q and b.key = k_;
  comes := found;
  -- locked before its row in requeue.dead, as at the end of a run
  perform 1 from requeue.item i where i.queue = q and i.key = k_ for update;
  delete from requeue.dead d where d.queue = q and d.key = k_ returning d.value, d.grp into v, g;
  if not found then
    perform 1 from requeue.item i where i.queue = q and i.key = k_;
    if not found then return comes; end if;
  end if;
  -- without "where due_at is not null", for the same reason as at item_owner
  update requeue.item i set due_at = null where i.queue = q and i.key = k_ and i.state = 0;
  perform requeue.add(q, array[k_], array[0::bigint], array[0], null, null, case when g is not null then array[substr(g, 5)] end);
  if v is not null then
    update requeue.item i set value = v || coalesce(i.value, '[]') where i.queue = q and i.key = k_;
  end if;
  return true;
end $$;

-- Removes the timers of keys that are to run anyway: such a run also stands for the delayed runs of its key. Rows are locked in the order
-- of all transactions.
create or replace function requeue.absorb(q int, ks bytea[]) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
set lock_timeout = '8s' as $$
declare k_ bytea;
begin
  for k_ in select distinct u.k from unnest(ks) u(k) order by u.k loop
    -- without "where due_at is not null", for the same reason as at item_owner
    update requeue.item i set due_at = null where i.queue = q and i.key = k_ and (i.state = 1 or i.state = 2 and i.dirty);
  end loop;
end $$;

-- Counts, each up to `most`, so that it does not take long in a queue of millions. A transaction keeps a snapshot as long as it
-- is open or, where it has written something, as if it did; also one that was prepared and forgotten. Of other roles' sessions
-- only members of pg_read_all_stats see it. Vacuum's own do not keep others' rows.
create or replace function requeue.stats(q int, most int)
returns table(ready bigint, held bigint, waiting bigint, inbox bigint, dead bigint, oldest_us bigint, paused boolean,
  owners bigint, expired bigint, lease_us bigint, snapshot_us bigint, group_cap int, paused_groups bigint, ruled_groups bigint)
language sql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
  select least(most, (select count(*) from (select 1 from requeue.item i where i.queue = q and i.state = 1 and i.grp is null
        order by i.rank, i.pos limit most) x)
      + (select count(*) from (select 1 from requeue.item i where i.queue = q and i.state = 1 and i.grp is not null
        order by i.rank, i.grp, i.pos limit most) x)),
    (select count(*) from (select 1 from requeue.owner o cross join lateral (
      select 1 from requeue.item i where i.owner = o.id and i.state = 2 limit most) h where o.queue = q limit most) x),
    (select count(*) from (select 1 from requeue.item i where i.queue = q and i.due_at is not null
      order by i.due_at limit most) x),
    (select count(*) from (select 1 from requeue.inbox b where b.queue = q limit most) x),
    (select count(*) from (select 1 from requeue.dead d where d.queue = q limit most) x),
    (select (extract(epoch from clock_timestamp() - min(since)) * 1000000)::bigint from (
      (select i.since from requeue.item i where i.queue = q and i.state = 1 and i.grp is null
        order by i.rank, i.pos limit 1)
      union all
      (select b.at from (select * from requeue.inbox x where x.queue = q order by x.id limit 1) b where b.delay_us <= 0)
      union all
      (with recursive head(rank, grp, since, nth) as ( -- the first key of each group
        (select i.rank, i.grp, i.since, 1 from requeue.item i where i.queue = q and i.state = 1 and i.grp is not null
          order by i.rank, i.grp, i.pos limit 1)
        union all
        select x.rank, x.grp, x.since, h.nth + 1 from head h cross join lateral (
          select i.rank, i.grp, i.since from requeue.item i where i.queue = q and i.state = 1 and i.grp is not null
            and (i.rank, i.grp) > (h.rank, h.grp) order by i.rank, i.grp, i.pos limit 1) x where h.nth < most)
        select min(h.since) from head h)) x),
    (select w.paused from requeue.queue w where w.id = q),
    o.owners, o.expired, o.lease_us,
    (select (extract(epoch from clock_timestamp() - min(t.since)) * 1000000)::bigint from (
      select xact_start from pg_stat_activity where (backend_xmin is not null or backend_xid is not null)
        and pid <> pg_backend_pid() and datname = current_database() and backend_type <> 'autovacuum worker'
      union all
      select prepared from pg_prepared_xacts where database = current_database()) t(since)),
    (select nullif(w.cap, 2147483647) from requeue.queue w where w.id = q), g.paused, g.ruled
  from (select count(*) filter (where r.paused) as paused,
      count(*) filter (where r.weight is not null or r.cap is not null) as ruled
    from (select * from requeue.groups w where w.queue = q order by w.grp limit most) r) g,
    (select count(*) filter (where l.us > 0) as owners, count(*) filter (where l.us <= 0) as expired,
      min(l.us) filter (where l.us > 0) as lease_us
    from (select (extract(epoch from w.lease_until - clock_timestamp()) * 1000000)::bigint as us
      from requeue.owner w where w.queue = q and w.follows is null) l) o $$;

-- Group rules are the queue's, for all processes: the cap of groups that have none of their own, and weights and caps of some.
-- Null changes nothing, a cap of 2147483647 is none, and of several for one group the last counts.
create or replace function requeue.group_rules(q int, cap_ int, names bytea[], weights int[], caps int[]) returns void language plpgsql as $$
begin
  update requeue.queue set grouped = true, cap = coalesce(cap_, cap)
    where id = q and (not grouped or cap_ is distinct from cap and cap_ is not null);
  insert into requeue.groups as g(queue, grp, weight, cap)
    select q, requeue.ring(u.name), (array_agg(u.weight order by u.o desc) filter (where u.weight is not null))[1],
      (array_agg(u.cap order by u.o desc) filter (where u.cap is not null))[1]
    from unnest(names, weights, caps) with ordinality u(name, weight, cap, o) group by u.name
  on conflict (queue, grp) do update set
    weight = coalesce(excluded.weight, g.weight), cap = coalesce(excluded.cap, g.cap);
  perform requeue.wake(q);
end $$;

-- Hands out no keys of a group, in no process, or hands them out again. False: it was so already.
create or replace function requeue.pause_group(q int, name bytea, pause boolean) returns boolean language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
begin
  if pause then
    insert into requeue.groups as g(queue, grp, paused) values (q, requeue.ring(name), true)
      on conflict (queue, grp) do update set paused = true where not g.paused;
    return found;
  end if;
  update requeue.groups g set paused = false where g.queue = q and g.grp = requeue.ring(name) and g.paused;
  if not found then return false; end if;
  delete from requeue.groups g where g.queue = q and g.grp = requeue.ring(name) and g.weight is null and g.cap is null;
  perform requeue.wake(q);
  return true;
end $$;
