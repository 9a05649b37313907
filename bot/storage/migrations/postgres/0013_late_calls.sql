-- The same as SQLite's version 13.

create table late_calls (
  key text collate "C" not null,
  channel text collate "C" not null,
  thread_ts text collate "C" not null default '',
  begun_at double precision not null,
  until_at double precision,
  primary key (key, channel, thread_ts)
);
create index late_calls_watched on late_calls (until_at) where until_at is not null;
