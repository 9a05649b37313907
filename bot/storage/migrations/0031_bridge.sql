-- The feed tells whose ledger files are behind: their rows no longer say up to which write they are.
alter table bridge drop column version;
create index bridge_live on bridge (issue, state) where state is not null;
