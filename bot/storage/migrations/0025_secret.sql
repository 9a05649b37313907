-- Keys what must not be guessed: task ids of MCP, and digests of questions that were redacted.
alter table installation add column secret blob not null default x'';
update installation set secret = randomblob(32);

drop table keys;
alter table messages drop column revision;
