-- What hangs on a clarification goes with it.
alter table messages add foreign key (clarification) references clarifications on delete cascade;
alter table replies add foreign key (clarification) references clarifications on delete cascade;
alter table questions add foreign key (clarification) references clarifications on delete cascade;
alter table webhook_unsigned add foreign key (clarification) references clarifications on delete cascade;

-- SQLite uses no index with a condition that the column fulfils anyway.
drop index questions_ids;
create index questions_ids on questions (clarification);

-- What is over, in order.
drop index clarifications_closed;
create index clarifications_closed on clarifications (closed, issue, number);

-- Whether a session has events.
create index inbox_of_sessions on inbox (producer, session_id);
