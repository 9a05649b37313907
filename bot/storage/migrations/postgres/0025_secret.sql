-- The same as SQLite's version 25.
alter table installation add column secret bytea not null default '';
update installation set secret = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());

drop table keys;
alter table messages drop column revision;
