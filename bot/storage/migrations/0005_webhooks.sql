-- The lifecycle events that are on their way to webhooks, and up to where they were told.

create table webhook_known (    -- what the events so far told of a clarification
  clarification text primary key,
  status text not null,
  round integer not null,
  asked_last real not null,     -- when its latest question was asked; seconds since 1970
  nudges integer not null,
  over integer not null,        -- whether no event follows
  noted_at real not null        -- seconds since 1970, our clock
) without rowid;
create index webhook_known_over on webhook_known (noted_at) where over = 1;

create table webhook_since (    -- one row
  one integer primary key check (one = 1),
  since real not null           -- what was over before is not told; seconds since 1970, our clock
);

create table webhook_outbox (
  seq integer primary key autoincrement,  -- the order in which it happened
  endpoint text not null,       -- a digest of its address, which may hold a secret
  id text not null,             -- the same on every try
  clarification text not null,
  type text not null,
  body blob not null,           -- the bytes that are sent
  queued_at real not null,      -- seconds since 1970, our clock
  due real not null,            -- not tried before
  failures integer not null default 0,
  unique (endpoint, id)
);
create index webhook_outbox_lines on webhook_outbox (endpoint, clarification, seq);
create index webhook_outbox_due on webhook_outbox (endpoint, due, seq);
