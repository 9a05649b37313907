-- The tables of this integration: see `bot/storage/schema.py`.

create table ledgerfiles (       -- what the bridge last wrote to each ledger file, or read from it
  issue integer not null primary key,  -- 0: the folder is still to become ours
  base text not null,            -- by record: the digests of the states in which the file may be
  state text                     -- of the file as we left it, or that it is to be looked at; null: there is none, or others changed it
);
create index ledgerfiles_live on ledgerfiles (issue, state) where state is not null;
