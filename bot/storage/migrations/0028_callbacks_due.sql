-- Whether a question's outcome is to be posted: 1 once the feed has passed the question's end.
alter table questions add column callback_due integer not null default 0;
drop index questions_callbacks;
create index questions_callbacks on questions (callback_due) where callback_url is not null;
