-- Issues that are to be brought in line with their clarifications, until they are.
create table github_owed (
  repo text collate "C" not null,
  issue bigint not null,
  change bigint not null,    -- the newest that it shows: `seq` of the feed's; 0: none
  primary key (repo, issue)
);
drop index github_comments_begun;
drop table github_repositories;
create table github_repositories (
  repo text collate "C" primary key,       -- owner/name, in lower case
  since double precision not null         -- what was over before is not mirrored; seconds since 1970, our clock
);

-- What the consumer tells of, if that may become another: the repository. Null: it begins anew.
alter table consumers add column about text collate "C";
