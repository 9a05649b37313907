-- What was decided, where no folder of ledgers is kept.
create table ledgers (           -- one issue a row
  issue integer primary key,
  body text not null,            -- the JSON that a file would hold
  highest integer not null,      -- number of a record that was ever given out
  version integer not null,      -- counts what was written
  written integer not null,      -- the transaction that wrote it last
  archived integer not null default 0
);
create index ledgers_live on ledgers (issue) where archived = 0;
create index ledgers_written on ledgers (written);

create table keys (              -- what signs questions and answers
  name text primary key,
  value blob not null
);
