-- Issues that are to be brought in line with their clarifications, until they are.
create table github_owed (
  repo text not null,
  issue integer not null,
  change integer not null,    -- the newest that it shows: `seq` of the feed's; 0: none
  primary key (repo, issue)
) without rowid;
drop index github_comments_begun;
drop table github_repositories;
create table github_repositories (
  repo text primary key,       -- owner/name, in lower case
  since real not null         -- what was over before is not mirrored; seconds since 1970, our clock
) without rowid;

-- What the consumer tells of, if that may become another: the repository. Null: it begins anew.
alter table consumers add column about text;
