-- The same as SQLite's version 31.
alter table bridge drop column version;
create index bridge_live on bridge (issue, state) where state is not null;
