-- From version 1 to version 2: changes of tables. Functions, views and comments are made anew behind this: functions.sql.
--
-- It runs beside processes of version 1. Transactions of users read or lock requeue.item (runs that are guarded), requeue.inbox,
-- requeue.queue, requeue.owner and requeue.floor (add_tx) for as long as they like, and none of these may be altered while they do: a
-- new table stands beside them. It gets the rights that roles have on requeue.owner.
do $$ begin
  if not exists(select 1 from pg_attribute where attrelid = 'requeue.inbox'::regclass and attname = 'apart' and not attisdropped) then
    raise exception 'the schema was made by a build from before version 1; remove it (drop schema requeue cascade) and migrate again'
      using errcode = 'RQ005';
  end if;
end $$;

-- The turn. One process a second takes it, whichever comes first: see tick(). `seen` is what renew() has answered last, in the turn at
-- `looked`, when runs had begun up to the fence `runs`.
create table if not exists requeue.round(
  at timestamptz not null default '-infinity',
  seen bigint[],
  looked timestamptz not null default '-infinity',
  runs bigint not null default 0
) with (fillfactor = 10);
create unique index if not exists round_is_one_row on requeue.round((true));
insert into requeue.round default values on conflict do nothing;

-- How keys come again, beyond `every_us` of their rows: at times of the calendar, and periods that keys are still to get because
-- somebody had locked them. Rows here are locked before those of the same keys in requeue.item, and in the order of the keys.
create table if not exists requeue.schedule(
  queue int not null,
  key bytea not null,
  every_us bigint not null, -- as in item; about the time between two runs, where there is a rule
  rule text, -- times of the calendar: a program finds the next one out, see next()
  next_at timestamptz, -- the first of these after the beginning of the run that goes on, or of the last one
  waits boolean not null default false, -- the key was locked, and take_in() gives it the period
  primary key(queue, key)
);
create index if not exists schedule_waits on requeue.schedule(queue, key) where waits;
