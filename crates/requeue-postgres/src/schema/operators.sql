-- What people see and call: views whose columns are text and times, and functions that take the names of queues and keys that are text.
-- SQL.md says how they are used. Views only gain columns, at their end: others' queries go on.
--
-- Programs prepare calls of the functions of functions.sql without the types of their arguments, and PostgreSQL prefers text. So none of these
-- functions has a name of those where both could be called with as many arguments.

-- A process's name has four words: its host, its number, a number of its own, and its application's name. (Of version 1: `process`, its
-- number, and a number of its own.)
create or replace function requeue.process_host(name text) returns text language sql immutable strict parallel safe as $$
  select case when name !~ '^process \d+ [0-9a-f]{16}$' then split_part(name, ' ', 1) end $$;
create or replace function requeue.process_pid(name text) returns int language sql immutable strict parallel safe as $$
  select substring(name from '^\S+ (\d{1,9}) ')::int $$;
create or replace function requeue.process_application(name text) returns text language sql immutable strict parallel safe as $$
  select substring(name from '^\S+ \d+ [0-9a-f]{16} (.*)$') $$;

create or replace view requeue.queues as
  select w.name as queue, w.paused, s.ready + s.inbox as ready, s.held as running, s.waiting, s.dead,
    s.oldest_us * interval '1 us' as oldest_ready, s.owners as processes,
    w.base_us * interval '1 us' as first_backoff, w.max_us * interval '1 us' as longest_backoff, w.rate, w.burst,
    nullif(w.cap, 2147483647) as group_cap, s.paused_groups
  from requeue.queue w cross join lateral requeue.stats(w.id, 100000) s order by w.name;

create or replace view requeue.keys as
  select w.name as queue, requeue.as_text(i.key) as key,
    case i.state when 1 then 'ready' when 2 then 'running' else case when i.due_at is null then 'idle' else 'waiting' end end as status,
    i.dirty as runs_again, i.due_at, i.every_us * interval '1 us' as every, i.failures,
    case when i.state = 2 then i.attempt else i.attempt + 1 end as attempt, -i.rank as priority,
    coalesce(i.run_value, i.value) as value, requeue.as_text(substr(i.grp, 5)) as grp, i.since,
    requeue.process_host(o.name) as host, requeue.process_pid(o.name) as pid,
    (select d.error from requeue.dead d where d.queue = i.queue and d.key = i.key) as error,
    (select s.rule from requeue.schedule s where s.queue = i.queue and s.key = i.key) as schedule, i.key as key_bytes
  from requeue.item i join requeue.queue w on w.id = i.queue left join requeue.owner o on o.id = i.owner
  union all
  select w.name, requeue.as_text(d.key), 'dead', false, null, null, d.failures, d.attempt, 0, d.value, requeue.as_text(substr(d.grp, 5)), d.at,
    null, null, d.error, null, d.key
  from requeue.dead d join requeue.queue w on w.id = d.queue
  where not exists(select 1 from requeue.item i where i.queue = d.queue and i.key = d.key)
  union all
  select w.name, requeue.as_text(b.key), case when requeue.rest(b.delay_us, b.at) > 0 then 'waiting' else 'ready' end, false,
    case when b.delay_us > 0 then b.at + b.delay_us * interval '1 us' end, null, 0, 1, -b.rank, b.value, requeue.as_text(b.grp), b.at,
    null, null, null, null, b.key
  from requeue.inbox b join requeue.queue w on w.id = b.queue;

-- The rows of the view `keys` for one key. It reads these alone.
create or replace function requeue.find_key(queue text, key text) returns setof requeue.keys language plpgsql
set enable_seqscan = off set enable_bitmapscan = off as $$
declare b bytea := requeue.as_bytes(key);
begin
  perform requeue.queue_id(queue);
  return query select * from requeue.keys x where x.queue = find_key.queue and x.key_bytes = b;
end $$;

create or replace view requeue.running as
  select w.name as queue, requeue.as_text(i.key) as key, clock_timestamp() - i.since as running_for, i.attempt, i.failures, i.dirty as runs_again,
    -i.rank as priority, requeue.as_text(substr(i.grp, 5)) as grp, i.run_value as value, requeue.process_host(o.name) as host,
    requeue.process_pid(o.name) as pid, requeue.process_application(o.name) as application, i.fence,
    o.lease_until - clock_timestamp() as lease_left, i.since
  from requeue.item i join requeue.queue w on w.id = i.queue left join requeue.owner o on o.id = i.owner where i.state = 2;

create or replace view requeue.dead_keys as
  select w.name as queue, requeue.as_text(d.key) as key, d.error, d.failures, d.attempt, d.value, requeue.as_text(substr(d.grp, 5)) as grp, d.at,
    exists(select 1 from requeue.item i where i.queue = d.queue and i.key = d.key) as added_again
  from requeue.dead d join requeue.queue w on w.id = d.queue;

create or replace view requeue.processes as
  select w.name as queue, requeue.process_host(o.name) as host, requeue.process_pid(o.name) as pid,
    requeue.process_application(o.name) as application, o.since,
    h.running, h.longest as longest_run, o.idle as asleep, o.lease_until - clock_timestamp() as lease_left
  from requeue.owner o join requeue.queue w on w.id = o.queue
    cross join lateral (select count(*) as running, clock_timestamp() - min(i.since) as longest from requeue.item i
      where i.owner = o.id and i.state = 2) h
  where o.follows is null;

-- Makes a queue. False: it was there.
create or replace function requeue.make_queue(queue text) returns boolean language plpgsql as $$
begin
  if exists(select 1 from requeue.queue w where w.name = make_queue.queue) then return false; end if;
  perform requeue.open(make_queue.queue);
  return true;
end $$;

-- Removes a queue that no process works on and that has no keys, or, with `force`, any queue.
create or replace function requeue.drop_queue(queue text, force boolean default false) returns void language plpgsql
set lock_timeout = '8s' as $$
declare q int := requeue.queue_id(queue); keys_ int; processes_ int;
begin
  -- no other call of this, and no add with a group, goes on beside it
  perform 1 from requeue.queue w where w.id = q for update;
  if not force then
    select count(*) into processes_ from requeue.owner o where o.queue = q and o.lease_until > clock_timestamp();
    if processes_ > 0 then
      raise exception '% process(es) work on queue %: end them first, or say force => true', processes_, quote_literal(queue) using errcode = 'RQ007';
    end if;
    select (select count(*) from (select 1 from requeue.item i where i.queue = q limit 1000) x)
      + (select count(*) from (select 1 from requeue.inbox b where b.queue = q limit 1000) x)
      + (select count(*) from (select 1 from requeue.dead d where d.queue = q limit 1000) x) into keys_;
    if keys_ > 0 then
      raise exception 'queue % has % keys%: cancel or purge them first, or say force => true', quote_literal(queue), keys_,
        case when keys_ >= 1000 then ' or more' else '' end using errcode = 'RQ007';
    end if;
  end if;
  delete from requeue.queue w where w.id = q; -- from here on adds are refused
  -- in the order in which all lock keys
  perform 1 from requeue.item i where i.queue = q order by i.key for update;
  delete from requeue.item i where i.queue = q;
  delete from requeue.inbox b where b.queue = q;
  delete from requeue.dead d where d.queue = q;
  delete from requeue.schedule s where s.queue = q;
  delete from requeue.groups g where g.queue = q;
  delete from requeue.turn u where u.queue = q;
  delete from requeue.floor f where f.queue = q;
  delete from requeue.owner o where o.queue = q;
end $$;

-- Microseconds, 0 at least.
create or replace function requeue.micros(t interval) returns bigint language sql immutable as $$
  select coalesce(greatest(0, extract(epoch from t) * 1000000)::bigint, 0) $$;

-- Adds keys, and tells how many of them this has changed: the others were in line already. In a transaction that does something else as
-- well, add_tx() waits for no lock.
create or replace function requeue.add_many(queue text, keys text[], delay interval default '0', priority int default 0,
  grp text default null, every interval default null, make boolean default false) returns bigint language plpgsql as $$
declare q int; n bigint; m int := coalesce(cardinality(keys), 0);
begin
  if make then perform requeue.make_queue(queue); end if;
  q := requeue.queue_id(queue);
  if m = 0 then return 0; end if;
  if every <= interval '0' then raise invalid_parameter_value using message = 'every: it must be longer than 0'; end if;
  select count(*) into n from requeue.add(q, array(select requeue.as_bytes(k) from unnest(keys) with ordinality u(k, o) order by o),
    array_fill(requeue.micros(delay), array[m]), array_fill(-greatest(coalesce(priority, 0), -2147483647), array[m]), null,
    nullif(requeue.micros(every), 0), case when grp is not null then array_fill(requeue.as_bytes(grp), array[m]) end);
  perform requeue.wake(q);
  return n;
end $$;

-- Adds a key. False: it was in line already, and this has changed nothing.
create or replace function requeue.add(queue text, key text, delay interval default '0', priority int default 0, value jsonb default null,
  grp text default null) returns boolean language plpgsql as $$
declare q int := requeue.queue_id(queue); n bigint;
begin
  select count(*) into n from requeue.add(q, array[requeue.as_bytes(key)], array[requeue.micros(delay)],
    array[-greatest(coalesce(priority, 0), -2147483647)], case when value is not null then array[value] end, null::bigint,
    case when grp is not null then array[requeue.as_bytes(grp)] end);
  perform requeue.wake(q);
  return n > 0;
end $$;

-- Takes away what asks for a run of the key; a run that goes on goes on. False: there was nothing.
create or replace function requeue.cancel_key(queue text, key text) returns boolean language sql as $$
  select requeue.cancel(requeue.queue_id(queue), requeue.as_bytes(key)) $$;

-- Lets a key run now that waits, or whose last run gave up. False: nothing is known of it.
create or replace function requeue.retry_key(queue text, key text) returns boolean language plpgsql as $$
declare q int := requeue.queue_id(queue); known boolean;
begin
  known := requeue.retry(q, requeue.as_bytes(key));
  perform requeue.wake(q);
  return known;
end $$;

-- Hands out no keys of a queue, or of one of its groups, in any process; those that are claimed are run. False: it was so already.
create or replace function requeue.pause(queue text, grp text default null) returns boolean language plpgsql as $$
declare q int := requeue.queue_id(queue);
begin
  if grp is not null then return requeue.pause_group(q, requeue.as_bytes(grp), true); end if;
  update requeue.queue w set paused = true where w.id = q and not w.paused;
  return found;
end $$;

-- Ends a pause. False: there was none.
create or replace function requeue.resume(queue text, grp text default null) returns boolean language plpgsql as $$
declare q int := requeue.queue_id(queue);
begin
  if grp is not null then return requeue.pause_group(q, requeue.as_bytes(grp), false); end if;
  update requeue.queue w set paused = false where w.id = q and w.paused;
  if not found then return false; end if;
  perform requeue.wake(q);
  return true;
end $$;

-- Removes the keys whose last run gave up; how many. Those that a run's end changes just now are left.
create or replace function requeue.purge(queue text) returns bigint language plpgsql as $$
declare q int := requeue.queue_id(queue); n bigint;
begin
  delete from requeue.dead where ctid = any(array(select d.ctid from requeue.dead d where d.queue = q for update skip locked));
  get diagnostics n = row_count;
  return n;
end $$;
