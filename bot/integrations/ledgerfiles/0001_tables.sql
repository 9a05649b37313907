-- The tables of this integration: see `bot/storage/schema.py`.

create table ledgerfiles (       -- what the bridge last wrote to each ledger file, or read from it
  issue integer not null primary key,  -- 0, -1: what is still to be done with the whole folder
  base text not null,            -- by record: the digests of the states in which the file may be
  state text                     -- of the file as we left it; null: there is none, or the next start looks at it
);
create index ledgerfiles_live on ledgerfiles (issue, state) where state is not null;
