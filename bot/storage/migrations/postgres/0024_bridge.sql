-- The same as SQLite's version 24.
create table bridge (
  issue bigint primary key,
  base text not null,
  state text,
  version bigint not null
);
