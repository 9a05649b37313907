-- The same as SQLite's version 15.

alter table page_items add column step bigint;
alter table messages add column seen bigint not null default 0;
