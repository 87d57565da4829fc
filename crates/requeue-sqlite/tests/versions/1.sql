-- A file as version 1 of the schema had it, with some keys.
create table queue(
    id integer primary key,
    name text not null unique,
    paused integer not null default 0
) strict;
-- What is known of a key, as of the last commit. A key that is being run is as it was before its run.
create table item(
    queue integer not null,
    key blob not null,
    ord integer not null,       -- the place in line
    ready integer not null,     -- it is in line, or held
    due integer,                -- when its timer is due, in microseconds since 1970
    delay integer,              -- how long that was from when it was set: nothing waits for longer
    failures integer not null,
    attempt integer not null,
    priority integer not null,
    first integer not null,     -- when the first of its triggers came
    value blob,
    dead integer not null default 0, -- its last run gave up: it waits for a trigger
    error text,                 -- why
    primary key(queue, key)
) strict, without rowid;
-- What other processes ask of the one that works.
create table inbox(
    id integer primary key,
    queue integer not null,
    what text not null,         -- add, cancel, retry, pause, resume, purge
    at integer not null,
    key blob,
    delay integer,
    priority integer not null default 0,
    answer text                 -- what has become of it; an add has none, and is gone then
) strict;
-- How often the file was opened to be worked on: the upper part of fences.
create table epoch(n integer not null) strict;
insert into epoch values(0);
insert into queue values(1, 'orders', 0);
insert into item(queue, key, ord, ready, due, delay, failures, attempt, priority, first, value)
values(1, cast('ready' as blob), 2, 1, null, null, 0, 1, 0, 1700000000000000, null),
      (1, cast('failed' as blob), 1, 1, null, null, 3, 4, 0, 1700000000000000, null),
      (1, cast('overdue' as blob), 3, 0, 1700000000000000, 1000000, 0, 1, 0, 1700000000000000, null);
insert into inbox(queue, what, at, key) values(1, 'add', 1700000000000001, cast('letter' as blob));
update epoch set n = 7;
pragma application_id = 1920038245;
pragma user_version = 1;
