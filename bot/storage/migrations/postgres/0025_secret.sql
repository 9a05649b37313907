-- The same as SQLite's version 25.
alter table installation add column secret bytea not null default '';
update installation set secret = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());

-- Whether the bot lets the shell accept approvals, as its settings said when it last led.
alter table installation add column shell_consents integer not null default 0;

-- Set where no bot may start (`clarify move`): the database that this one moved to; the one that is still being moved here.
alter table installation add column moved_to text collate "C";
alter table installation add column moved_from text collate "C";

-- Counts writes that were only tried, to see whether there is space again.
alter table installation add column probes integer not null default 0;

drop table keys;
alter table messages drop column revision;
