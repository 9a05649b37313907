-- One page a question in a person's direct messages: older ones are deleted, and so is what is over and was not seen.

-- The step of its policy that the page is for an incident; null: it is only listed.
alter table page_items add column step integer;
update page_items set step = (select step from pages where pages.id = page_items.page);
-- 1: the person did something in these direct messages after it was posted.
alter table messages add column seen integer not null default 0;
