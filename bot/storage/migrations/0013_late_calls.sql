-- Calls to Slack that nobody waits for any more and that may take effect all the same, late.

create table late_calls (
  key text not null,                   -- of the message
  channel text not null,               -- where a post may arrive; '': it is a change of the message where it is
  thread_ts text not null default '',  -- the thread in which it does, if it is one
  begun_at real not null,
  until_at real,                       -- it is watched for until then; null: no longer
  primary key (key, channel, thread_ts)
) without rowid;
create index late_calls_watched on late_calls (until_at) where until_at is not null;
