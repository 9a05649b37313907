-- Who looks at their Home tab, and what it shows them.

create table homes (
  user text primary key,
  team text not null,
  channel text not null,       -- their direct messages with the bot; empty: not known
  opened_at real not null,     -- seconds since 1970, our clock
  pages text not null,         -- the page of each section that they look at, as JSON
  digest text                  -- of what Slack shows; null: not known
) without rowid;
