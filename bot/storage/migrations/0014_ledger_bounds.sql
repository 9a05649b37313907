-- Ledgers have a bound: how much was asked in each issue, and about what, so that what goes on goes where it began.

create table issues (
  issue integer primary key,
  questions integer not null,
  characters integer not null,       -- of the questions as they came
  further integer not null           -- 1: its session has earlier questions in another one
);
alter table inbox add column topic text;  -- digest; null: none, or taken in before there was one, or forgotten
create index inbox_topics on inbox (producer, session_id, topic) where topic is not null;

-- Lists of questions, page by page.
create index questions_of_sessions on questions (producer, session_id, created_at);
create index questions_ids on questions (clarification) where clarification is not null;
