-- The feed: one row for each write of a clarification, until every consumer has passed it.
create table changes (
  seq integer primary key autoincrement,
  written integer not null,      -- with several writers: the transaction that it counts as (bot/storage/changes.py)
  clarification text not null,
  revision integer not null,
  what text not null,         -- the events that it means, with their round: answered/1
  at real not null
);
create index changes_in_order on changes (written, seq);

create table consumers (
  name text primary key,
  written integer not null,      -- with `seq`: the last change that it has passed
  seq integer not null
);

create table failed_changes (    -- what a consumer could not take; an empty clarification: it began again
  consumer text not null,
  clarification text not null,
  revision integer not null,
  what text not null,
  why text not null,
  at real not null,
  primary key (consumer, clarification, revision)
);

-- Decisions that webhooks were told of without a receipt: if it follows, they are told again.
create table webhook_unsigned (
  clarification text not null references clarifications on delete cascade,
  round integer not null,
  type text not null,
  at real not null,
  primary key (clarification, round, type)
);
drop table webhook_known;
drop table webhook_since;
