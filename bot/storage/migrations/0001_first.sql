-- What we were told, what outside parties were last shown. What was decided is in `clarifications`.

create table inbox (
  id integer primary key,
  producer text not null,
  event_id text not null,
  session_id text not null,
  issue integer,               -- that it belongs to; null: of a session without clarifications
  token text,                  -- of a question: duplicates are found by reply token, too
  received_at real not null,   -- seconds since 1970, our clock
  at real not null,            -- when it was sent, on our clock
  expires_at real,             -- of a question, on our clock
  live integer not null,
  body text,                   -- the event as JSON; null once done
  state text not null default 'new' check (state in ('new', 'done', 'failed')),
  unique (producer, event_id)
);
create unique index inbox_tokens on inbox (producer, token) where token is not null;
create index inbox_new on inbox (id) where state = 'new';

create table cursors (producer text primary key, cursor text not null) without rowid;

create table subscriptions (producer text primary key, body text not null) without rowid;

create table sessions (
  producer text not null,
  session_id text not null,
  agent_id text not null,
  agent_name text,
  issue integer,
  channel text,                -- its thread in Slack, once there is one
  thread_ts text,
  ended integer not null default 0,
  primary key (producer, session_id)
) without rowid;
create unique index sessions_threads on sessions (channel, thread_ts) where thread_ts is not null;

create table counters (name text primary key, value integer not null) without rowid;

create table messages (
  key text primary key,        -- card:CLR-42-001:1, notice:17, page:…
  kind text not null,
  clarification text references clarifications on delete cascade,
  round integer,
  producer text,               -- the session whose thread it belongs to
  session_id text,
  target text not null,        -- channel (C…, G…, D…) or user (U…: by direct message)
  body text,                   -- what it says, as JSON; null: derived from the record
  wanted text,                 -- digest of body
  channel text,                -- as Slack returned it
  ts text,
  thread_ts text,
  intent_at real,              -- a post was begun then and its outcome is not known
  shown text,                  -- digest of what Slack shows
  final integer not null default 0,
  failed text                  -- why it will never be shown
) without rowid;
create index messages_open on messages (kind, key) where final = 0;
create index messages_begun on messages (producer, session_id) where ts is null and intent_at is not null;
create index messages_clarification on messages (clarification) where clarification is not null;
create unique index messages_places on messages (channel, ts) where ts is not null;

create table replies (
  clarification text not null references clarifications on delete cascade,
  token text not null,
  attempts integer not null default 0,
  uncertain integer not null default 0,   -- an earlier try may have arrived
  primary key (clarification, token)
) without rowid;

create table slack_events (
  event_id text primary key,
  body text,                   -- null once done
  state text not null default 'new' check (state in ('new', 'done'))
);
create index slack_events_new on slack_events (event_id) where state = 'new';

create table onces (key text primary key) without rowid;
create table texts (id text primary key, body text not null) without rowid;
create table watermarks (channel text primary key, ts text not null) without rowid;
