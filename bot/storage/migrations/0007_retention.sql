-- What is kept only for so long, and what is to be erased on request.

create table over (             -- rows without a time of their own, since when nobody needs them
  kind text not null,           -- the table
  name text not null,           -- of the row
  since real not null,          -- seconds since 1970, our clock
  primary key (kind, name)
) without rowid;

create table erasures (         -- messages that have to go from Slack
  channel text not null,
  ts text not null,
  state text not null default 'wanted' check (state in ('wanted', 'erased', 'blanked', 'failed')),
  note text,                    -- Slack's word for why not
  primary key (channel, ts)
) without rowid;
create index erasures_wanted on erasures (channel, ts) where state = 'wanted';
