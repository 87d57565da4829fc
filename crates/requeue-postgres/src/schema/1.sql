-- The tables of version 1. This file is not changed any more: what a later version changes stands in a file with its number.
do $$ begin
  -- an administrator may have made it for a role that may not
  if to_regnamespace('requeue') is null then create schema requeue; end if;
end $$;

create table requeue.meta(
  version int not null,
  timeline int not null, -- see epoch()
  system bigint not null,
  home oid not null,
  renewed timestamptz not null default '-infinity' -- see renew()
);
create unique index meta_is_one_row on requeue.meta((true));
insert into requeue.meta(version, timeline, system, home)
  select 1, timeline_id, system_identifier, 'requeue.meta'::regclass from pg_control_checkpoint(), pg_control_system();

create sequence requeue.pos_seq;   -- the order of the line
create sequence requeue.fence_seq; -- one number a run, never twice
create sequence requeue.owner_seq;

create table requeue.queue(
  id int generated always as identity primary key,
  name text collate "C" unique not null,
  paused boolean not null default false,
  base_us bigint not null default 1000000, -- back-off: the first delay, doubled for each failure in a row
  max_us bigint not null default 300000000,
  rate float8, -- keys a second that are handed out, by all processes together
  burst float8,
  tat timestamptz not null default '-infinity', -- when the bucket is empty (GCRA)
  grouped boolean not null default false, -- keys with groups have been added: groups take turns, see claim()
  cap int -- so many keys of a group may be held; groups with another cap are in requeue.groups
);

-- The groups that have a weight, a cap or a pause of their own. The others need no row.
create table requeue.groups(
  queue int not null,
  grp bytea not null, -- as in item
  weight int, -- keys in a turn: one, without it
  cap int,
  paused boolean not null default false,
  primary key(queue, grp)
);

-- Whose turn it is among the keys of a rank: the group whose turn was the last one, and how much is left of that.
create table requeue.turn(
  queue int not null,
  rank int not null,
  grp bytea not null,
  rest int not null,
  primary key(queue, rank)
) with (fillfactor = 50);

-- A process that works on a queue. Its lease covers all runs that it has.
create table requeue.owner(
  id bigint primary key default nextval('requeue.owner_seq'),
  queue int not null,
  name text not null,
  lease_until timestamptz not null,
  idle boolean not null default false, -- it sleeps: who adds is to notify
  follows bigint, -- the owner that its process is by now: this one only keeps runs that were locked when settle() moved the others
  since timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

create table requeue.item(
  queue int not null,
  key bytea not null,
  state smallint not null,                -- 0 only a timer or failures are known, 1 in line, 2 held
  rank int not null default 0,            -- the priority, negative: smaller ones run first
  pos bigint not null default 0,          -- the place in line
  dirty boolean not null default false,   -- it was added while it was held
  due_at timestamptz,                     -- its timer, whatever its state is
  every_us bigint,                        -- it comes again so long after each run
  failures int not null default 0,
  attempt int not null default 0,         -- runs in a row that failed, or did not end
  fence bigint,                           -- of the run that holds it
  owner bigint,
  grp bytea,                              -- its place in the ring of groups, see ring()
  value jsonb,                            -- the values of triggers, in an array: those that no run has
  run_value jsonb,                        -- those that the run has
  since timestamptz not null default clock_timestamp(), -- when it came into its state
  primary key(queue, key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 1000000000);
-- A key in line is in one of these two.
create index item_ready on requeue.item(queue, rank, pos) where state = 1 and grp is null;
create index item_turn on requeue.item(queue, rank, grp, pos) where state = 1 and grp is not null;
create index item_due on requeue.item(queue, due_at) where due_at is not null;
-- not `where state = 2`: a look-up of one held key could use that, and would filter all that are held
create index item_owner on requeue.item(owner) where owner is not null;
-- how many keys of a group are held is counted here, and stored nowhere
create index item_held on requeue.item(queue, grp) where state = 2 and grp is not null;

-- Triggers of users' transactions: append only, so that nobody waits for anybody. Whoever claims folds them in.
create table requeue.inbox(
  id bigint generated always as identity (cache 1),
  queue int not null,
  key bytea not null,
  delay_us bigint not null,
  rank int not null default 0,
  value jsonb,
  grp bytea, -- the group's name
  at timestamptz not null default clock_timestamp(),
  apart boolean not null default false, -- its value is too large to be joined with those that its key has, see take_in()
  -- what item can't keep must not be accepted: every claim would fail on it
  constraint delays_of_transactions_are_at_most_190000_years check (delay_us between -6000000000000000000 and 6000000000000000000),
  constraint priorities_of_transactions_have_an_opposite check (rank > -2147483648),
  constraint keys_of_transactions_have_at_most_2600_bytes check (octet_length(key) <= 2600),
  constraint groups_of_transactions_have_at_most_2600_bytes check (octet_length(grp) <= 2600)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index inbox_id on requeue.inbox(queue, id);
create index inbox_apart on requeue.inbox(queue, key) where apart;

-- Keys whose last run gave up.
create table requeue.dead(
  queue int not null,
  key bytea not null,
  value jsonb,
  failures int not null,
  attempt int not null,
  error text,
  grp bytea, -- as in item
  at timestamptz not null default clock_timestamp(),
  primary key(queue, key)
);

-- Where the scans of line and inbox may begin: everything before is dead for good. See advance().
create table requeue.floor(
  queue int primary key,
  pos bigint not null,
  inbox bigint not null,
  next_pos bigint,
  next_inbox bigint,
  horizon xid8
);
