-- Replies to producers that push: they read them from a stream of ours, and resume it where they left off.

create table pushed_replies (
  id integer primary key autoincrement,  -- never given out again: readers resume after it
  producer text not null,
  token text not null,
  digest text not null,        -- of all that it says but the subscription: a token may be used for another question
  session_id text,             -- that asked, where it is known
  body text not null,          -- JSON, the same on every try
  expires_at real,             -- of its question; seconds since 1970, our clock, like all times here
  written_at real,             -- when a reader had it
  state text not null default 'waiting' check (state in ('waiting', 'begun', 'written', 'confirmed')),
  unique (producer, token, digest)
);
create index pushed_replies_written on pushed_replies (producer, session_id) where state = 'written';

create table pushing (
  producer text primary key,
  epoch text not null,         -- of the ids in its stream: those of an earlier storage say nothing
  subscription text not null
) without rowid;
