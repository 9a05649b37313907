-- The same as SQLite's version 14.

create table issues (
  issue bigint primary key,
  questions bigint not null,
  characters bigint not null,
  further bigint not null
);
alter table inbox add column topic text collate "C";
create index inbox_topics on inbox (producer, session_id, topic) where topic is not null;

create index questions_of_sessions on questions (producer, session_id, created_at);
create index questions_ids on questions (clarification) where clarification is not null;
