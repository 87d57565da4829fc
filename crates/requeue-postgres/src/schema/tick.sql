-- The call that each process makes once a second, for all of its queues, and the work that one process of all does in its turn.

-- Moves the floors. A transaction that draws a place has an id by then. So all places up to P are in sight once every transaction has ended
-- whose id is below the horizon: an id that is drawn after P was read. (Not pg_snapshot_xmax: that is one past the last completed one, and
-- would pass keys of a transaction that goes on.) Readers have no id: a held snapshot holds nothing up. `np` and `nb` are the last places
-- of line and inbox, read before this transaction had an id.
create or replace function requeue.advance(q int, np bigint, nb bigint) returns void language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set enable_sort = off set plan_cache_mode = force_generic_plan as $$
declare f requeue.floor; p bigint; b bigint;
begin
  select * into f from requeue.floor where queue = q;
  -- nothing was added since everything before was seen to be dead
  if not found or f.horizon is null and f.pos >= np and f.inbox >= nb and f.pos <= np and f.inbox <= nb then return; end if;
  select * into f from requeue.floor where queue = q for update skip locked;
  if not found then return; end if;
  -- one from the future is another server's, whose dump was restored here
  if f.horizon is null or f.horizon > pg_snapshot_xmax(pg_current_snapshot()) then
    update requeue.floor set next_pos = np, next_inbox = nb, horizon = pg_current_xact_id() where queue = q;
  elsif f.horizon <= pg_snapshot_xmin(pg_current_snapshot()) then
    select i.pos into p from requeue.item i where i.queue = q and i.state = 1 and i.grp is null and i.rank = 0 and i.pos >= f.pos
      order by i.rank, i.pos limit 1;
    select i.id into b from requeue.inbox i where i.queue = q and i.id >= f.inbox order by i.id limit 1;
    update requeue.floor set horizon = null,
      pos = greatest(f.pos, least(coalesce(p, f.next_pos), f.next_pos)),
      inbox = greatest(f.inbox, least(coalesce(b, f.next_inbox), f.next_inbox))
    where queue = q;
  end if;
end $$;

-- The call that each process makes once a second, in one transaction that waits for no lock. It answers rows of two numbers:
--   0, an owner: its lease is extended (`os`, by `ls` microseconds);
--   1, an owner: its lease is gone, and with it everything that was held under it;
--   2, a queue: there is something to claim (of `qs`, the queues in which this process sleeps as the owners `mine`);
--   3, a queue: the process is to hear notifications of it, and does if it `listens`;
--   4, a queue: others hear those of it, and this process does not any more: it was not needed for a while (`tired`, owners);
--   5, a queue: this process has the turn, and there is something to clear up, see maintain();
--   6: this process has the turn, and is to call renew_in_turn(): a hundred runs have begun since that was called, or some for ten seconds;
--   7, a version: the oldest one whose programs the schema serves.
--
-- Of the processes that sleep a few hear notifications. Each notification costs a transaction in every session that listens,
-- whomever it is for, and each process that is woken looks for keys. So one process listens for a queue, more of them where one was not
-- enough to take the keys at once, and the others only look here.
create or replace function requeue.tick(os bigint[], ls bigint[], qs int[], mine bigint[], hears boolean, listens boolean,
  awake bigint[], tired bigint[])
returns table(kind int, n bigint) language plpgsql
set enable_bitmapscan = off set enable_seqscan = off set enable_sort = off set plan_cache_mode = force_generic_plan as $$
declare t timestamptz := clock_timestamp(); np bigint; nb bigint; ids bigint[]; done bigint[]; r record; turn boolean; begun bigint; looks boolean;
begin
  -- before this transaction has an id: see advance()
  select last_value into np from requeue.pos_seq;
  select last_value into nb from requeue.inbox_id_seq;
  if cardinality(os) > 0 then
    -- an owner that another transaction locks is left out, and comes with a later call
    ids := array(select w.id from requeue.owner w where w.id = any(os) or w.follows = any(os) order by w.id for no key update skip locked);
    with beat as (update requeue.owner w set lease_until = clock_timestamp() + u.l * interval '1 us'
      from unnest(os, ls) u(o, l) where w.id = u.o and w.id = any(ids) and w.lease_until > clock_timestamp() returning w.id)
    select coalesce(array_agg(b.id), '{}') into done from beat b;
    return query select 0, u.o from unnest(done) u(o);
    return query select 1, u.o from unnest(os) u(o) where not u.o = any(done)
      and (u.o = any(ids) or not exists(select 1 from requeue.owner w where w.id = u.o));
    if cardinality(ids) > cardinality(done) then
      delete from requeue.owner w where w.id = any(ids) and w.follows = any(done)
        and not exists(select 1 from requeue.item i where i.owner = w.id and i.state = 2);
      update requeue.owner w set lease_until = clock_timestamp() + u.l * interval '1 us'
        from unnest(os, ls) u(o, l) where w.id = any(ids) and w.follows = u.o and u.o = any(done) and w.lease_until > clock_timestamp();
    end if;
  else
    -- a crash of the server may take back the rest
    perform set_config('synchronous_commit', 'off', true);
  end if;
  return query select 1, u.o from unnest(mine) u(o)
    where not exists(select 1 from requeue.owner w where w.id = u.o and w.lease_until > clock_timestamp());
  if cardinality(awake) > 0 then
    update requeue.owner w set idle = false where w.idle and w.id = any(array(
      select x.id from requeue.owner x where x.id = any(awake) for no key update skip locked));
  end if;
  for r in select u.q, u.o, w.idle, has.work, listens_.others
    from unnest(qs, mine) u(q, o)
    join requeue.owner w on w.id = u.o
    cross join lateral (select exists(select 1 from requeue.owner x where x.queue = u.q and x.idle and x.id <> u.o
      and x.lease_until > t) as others) listens_
    -- those who listen are on their way to what has just come
    cross join lateral (select case when listens_.others and not w.idle then t - interval '0.2 s' else 'infinity' end as before) it
    cross join lateral (select a.paused, a.rate, a.tat from requeue.queue a where a.id = u.q limit 1) qu
    cross join lateral (select x.pos, x.inbox from requeue.floor x where x.queue = u.q limit 1) f
    cross join lateral (select case
      when qu.paused or qu.tat <= t and qu.tat + make_interval(secs => 1 / qu.rate) > t then false
      else coalesce(
        (select true from (select x.since from requeue.item x where x.queue = u.q and x.state = 1 and x.grp is null and x.rank = 0
          and x.pos >= f.pos order by x.rank, x.pos limit 1) y where y.since <= it.before),
        (select true from (select x.since from requeue.item x where x.queue = u.q and x.state = 1 and x.grp is null and x.rank < 0
          order by x.rank, x.pos limit 1) y where y.since <= it.before),
        (select true from (select x.since from requeue.item x where x.queue = u.q and x.state = 1 and x.grp is null and x.rank > 0
          order by x.rank, x.pos limit 1) y where y.since <= it.before),
        (select true from (select x.since from requeue.item x where x.queue = u.q and x.state = 1 and x.grp is not null
          order by x.rank, x.grp, x.pos limit 1) y where y.since <= it.before),
        (select true from requeue.item x where x.queue = u.q and x.due_at <= least(it.before, t) order by x.due_at limit 1),
        (select true from (select b.at from requeue.inbox b where b.queue = u.q and b.id >= f.inbox and not b.apart
          order by b.id limit 1) y where y.at <= it.before),
        false) end as work) has
  loop
    if r.work then return query select 2, r.q::bigint; end if;
    if hears and not r.idle and (r.work or not r.others) then
      if listens then
        update requeue.owner w set idle = true where w.id in (select x.id from requeue.owner x where x.id = r.o for no key update skip locked);
        continue when not found;
      end if;
      return query select 3, r.q::bigint;
    elsif r.idle and r.o = any(tired) and exists(select 1 from requeue.owner x where x.queue = r.q and x.idle and x.id < r.o
        and x.lease_until > t) then
      update requeue.owner w set idle = false where w.id in (select x.id from requeue.owner x where x.id = r.o for no key update skip locked);
      if found then return query select 4, r.q::bigint; end if;
    end if;
  end loop;
  return query select 7, v.oldest::bigint from requeue.version() v;
  -- A turn in the future is from before the clock was set back. Ticks are a second apart, and a little less now and then.
  select last_value into begun from requeue.fence_seq;
  select true, begun <> x.runs and (begun not between x.runs and x.runs + 99 or x.looked < clock_timestamp() - interval '10 s')
    into turn, looks from requeue.round x where x.at <= clock_timestamp() - interval '0.9 s' or x.at > clock_timestamp();
  if turn then
    update requeue.round x set at = clock_timestamp(), runs = case when looks then begun else x.runs end,
      looked = case when looks then clock_timestamp() else x.looked end where x.ctid = any(array(select y.ctid from requeue.round y
      where y.at <= clock_timestamp() - interval '0.9 s' or y.at > clock_timestamp() for update skip locked));
    turn := found;
  end if;
  if turn then
    for r in select distinct w.queue as q from requeue.owner w loop
      perform requeue.advance(r.q, np, nb);
    end loop;
    perform requeue.epoch(); -- behind a pooler nobody sees that another server answers
    return query select 5, b.queue::bigint from requeue.inbox b where b.apart group by b.queue;
    return query select 5, w.queue::bigint from requeue.owner w where w.lease_until <= clock_timestamp() limit 1;
    if looks then return query select 6, 0::bigint; end if;
  end if;
end $$;

-- renew() in a turn: its argument is kept on the server, because the next turn is another process's.
create or replace function requeue.renew_in_turn() returns void language plpgsql set lock_timeout = '200ms' as $$
declare before bigint[]; now_ bigint[];
begin
  select x.seen into before from requeue.round x;
  now_ := requeue.renew(before);
  if now_ is distinct from before then
    update requeue.round x set seen = now_ where x.ctid = any(array(select y.ctid from requeue.round y for update skip locked));
  end if;
end $$;
