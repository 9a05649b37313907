-- One page a question in a person's direct messages: older ones are deleted, and so is what is over and was not seen.

-- Of an incident that a list repeats, the step of its policy; null: the page's own.
alter table page_items add column step integer;
-- 1: the person did something in these direct messages after it was posted.
alter table messages add column seen integer not null default 0;
