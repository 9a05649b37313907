-- No column is called `user`, which is a word of SQL elsewhere; the order of Slack's events is a column.

alter table incident_log rename column user to user_id;
alter table overrides rename column user to user_id;
alter table homes rename column user to user_id;

create table slack_events_in_order (
  seq integer primary key,     -- the order in which they came
  event_id text not null unique,
  body text,                   -- null once done
  state text not null default 'new' check (state in ('new', 'done'))
);
insert into slack_events_in_order (event_id, body, state) select event_id, body, state from slack_events order by rowid;
drop table slack_events;
alter table slack_events_in_order rename to slack_events;
create index slack_events_new on slack_events (seq) where state = 'new';
