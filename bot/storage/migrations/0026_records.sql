-- What was asked and decided: one clarification a row.
create table clarifications (
  id text primary key,        -- CLR-42-001
  issue integer not null,
  number integer not null,       -- in its issue
  producer text not null,     -- empty between agents
  session text not null,      -- the producer's; between agents: who asks whom about what
  token text,                 -- to reply to the current round
  event text,                 -- that asked the current round
  live integer not null,         -- 1: needs something
  closed real,                -- when it changed last, if it is finished
  revision integer not null,
  body text not null,        -- the JSON
  written integer not null       -- the transaction that wrote it last
);
create index clarifications_of_issue on clarifications (issue, number);
create index clarifications_of_session on clarifications (producer, session, closed);
create index clarifications_of_session_live on clarifications (producer, session) where live = 1;
create index clarifications_of_token on clarifications (producer, token);
create index clarifications_live on clarifications (issue, number) where live = 1;
create index clarifications_closed on clarifications (closed, issue);
create index clarifications_written on clarifications (written);
drop table ledgers;

-- The highest number that was ever given out: none is used twice.
drop table issues;
create table issues (
  issue integer primary key,
  highest integer not null
);

-- What is compared with the log at the next start: what was written since.
alter table decisions_compared add column written integer not null default 0;

-- A session keeps its issue, however much it asks.
drop index inbox_topics;
alter table inbox drop column topic;
