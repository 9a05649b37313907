-- What was asked and decided: one clarification a row.
create table clarifications (
  id text collate "C" primary key,        -- CLR-42-001
  issue bigint not null,
  number bigint not null,       -- in its issue
  producer text collate "C" not null,     -- empty between agents
  session text collate "C" not null,      -- the producer's; between agents: who asks whom about what
  token text collate "C",                 -- to reply to the current round
  event text collate "C",                 -- that asked the current round
  live bigint not null,         -- 1: needs something
  closed double precision,                -- when it changed last, if it is finished
  revision bigint not null,
  body text not null,        -- the JSON
  written bigint not null       -- the transaction that wrote it last
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
  issue bigint primary key,
  highest bigint not null
);

-- What is compared with the log at the next start: what was written since.
alter table decisions_compared add column written bigint not null default 0;

-- A session keeps its issue, however much it asks.
drop index inbox_topics;
alter table inbox drop column topic;
