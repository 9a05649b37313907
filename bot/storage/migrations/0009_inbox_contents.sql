-- Whether an event that comes again is the same one: its id, or its token, may have been used for another.

alter table inbox add column contents text;  -- digest of what it says; null: taken in before there was one, or forgotten
drop index inbox_tokens;
create index inbox_tokens on inbox (producer, token) where token is not null;
