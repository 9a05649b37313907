-- What was mirrored to the issues of a GitHub repository. Without it nothing is posted twice: comments carry a marker.

create table github_repositories (
  repo text primary key,       -- owner/name, in lower case
  since real not null,         -- what was over before is not mirrored; seconds since 1970, our clock
  author integer,              -- the account that our comments are by; null: not known
  searched integer not null default 0  -- whether issues with labels of ours, of an earlier storage, were looked for
) without rowid;

create table github_issues (
  repo text not null,
  issue integer not null,
  labels text,                 -- those of ours that it has, as JSON; null: not known
  primary key (repo, issue)
) without rowid;

create table github_comments (
  repo text not null,
  issue integer not null,
  entry text not null,         -- CLR-42-001 r1 question 0123456789abcdef
  begun_at real not null,      -- seconds since 1970, our clock
  comment integer,             -- its id; null: a post was begun and its outcome is not known
  primary key (repo, issue, entry)
) without rowid;
create index github_comments_begun on github_comments (repo, issue) where comment is null;
