-- What the bridge last wrote to each ledger file, or read from it.
create table bridge (
  issue integer primary key,
  base text not null,            -- by record: the digests of the states in which the file may be
  state text,                    -- of the file as we left it
  version integer not null       -- of the issue's row in `ledgers`
);
