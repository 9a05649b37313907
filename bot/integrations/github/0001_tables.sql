-- The tables of this integration: see `bot/storage/schema.py`.

create table github_repositories (
  repo text primary key,         -- owner/name, in lower case
  since real not null,           -- what was over before is not mirrored
  is_current integer not null default 0  -- 1: the bot mirrors to it, and nothing was missed
) without rowid;

create table github_issues (
  repo text not null,
  issue integer not null,
  labels text,                   -- those of ours that it has, as JSON; null: not known
  primary key (repo, issue)
) without rowid;

create table github_comments (   -- without it nothing is posted twice: comments carry a marker
  repo text not null,
  issue integer not null,
  entry text not null,           -- CLR-42-001 r1 question 0123456789abcdef
  begun_at real not null,
  comment integer,               -- its id; null: a post was begun and its outcome is not known
  primary key (repo, issue, entry)
) without rowid;

create table github_owed (       -- issues that are to be brought in line with their clarifications, until they are
  repo text not null,
  issue integer not null,
  change integer not null,       -- the newest that it shows: `seq` of the feed's; 0: none
  primary key (repo, issue)
) without rowid;
