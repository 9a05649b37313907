-- The same as SQLite's version 15.

alter table page_items add column step bigint;
update page_items set step = (select step from pages where pages.id = page_items.page);
alter table messages add column seen bigint not null default 0;
