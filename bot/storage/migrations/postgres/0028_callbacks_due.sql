-- 1 once the feed has passed the question's end: then its outcome is to be posted, as long as there is a URL.
alter table questions add column callback_due bigint not null default 0;
drop index questions_callbacks;
create index questions_callbacks on questions (callback_due) where callback_url is not null;
