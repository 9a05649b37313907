-- What somebody has to take, what became of it (the log of pages), and every sending.

create table incidents (
  id integer primary key,
  key text not null unique,    -- escalated:CLR-42-001:1:…, refused:…, ledger:…: raised once only
  kind text not null,
  policy text,                 -- name of the on-call policy; null: the last resort only
  agent_id text,
  clarification text,
  title text not null,
  reason text not null,
  body text not null,
  link text,
  expires_at real,             -- of its question; seconds since 1970, our clock, like all times here
  began_at real not null,
  closed_at real
);
create index incidents_open on incidents (id) where closed_at is null;
create index incidents_clarification on incidents (clarification) where clarification is not null;

create table incident_log (
  id integer primary key,
  incident integer not null,
  at real not null,
  what text not null,          -- began, sent, failed, taken, handed, snoozed, not mine, closed
  step integer,                -- of sent and failed; -1: the last resort
  user text,                   -- who took it, whom it was handed to
  done_by text,                -- who did it
  until real,                  -- of a snooze
  page integer
);
create index incident_log_incident on incident_log (incident, id);

create table pages (
  id integer primary key,
  kind text not null,
  policy text,
  step integer not null,
  at real not null
);

create table page_items (
  page integer not null,
  incident integer not null,
  primary key (page, incident)
) without rowid;
create index page_items_incident on page_items (incident, page);

create table page_sendings (
  page integer not null,
  via text not null,           -- slack, apprise
  target text not null,        -- channel or user; name of the environment variable with the address
  mentions text not null,      -- user ids, as JSON
  message text,                -- key of its row in messages
  state text not null default 'wanted' check (state in ('wanted', 'late', 'sent', 'failed', 'dropped')),
  note text,                   -- why it failed
  primary key (page, via, target)
) without rowid;
create index page_sendings_message on page_sendings (message) where message is not null;
create index page_sendings_wanted on page_sendings (page) where state in ('wanted', 'late');

-- Who stands in on call, whoever's turn it is.
create table overrides (
  id integer primary key,      -- of several in force the one made last holds
  policy text not null,
  user text not null,
  since real not null,
  until real not null,
  made_by text not null
);
create index overrides_policy on overrides (policy, id);
