-- Who is on call as a calendar or PagerDuty said last; and why a page did not go to them.

create table feeds (
  policy text collate "C" primary key,
  origin text collate "C" not null,
  etag text collate "C",
  digest text collate "C" not null,
  shifts text collate "C" not null,
  worked_out_at double precision not null,
  read_at double precision not null,
  trouble text collate "C"
);
alter table pages add column note text collate "C";
