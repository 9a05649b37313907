-- Who is on call as a calendar or PagerDuty said last; and why a page did not go to them.

create table feeds (
  policy text primary key,
  origin text not null,             -- a digest of where it is from: what another source said does not count
  etag text,                        -- as the source calls what it said; null: it gave no name
  digest text not null,             -- of what it said
  shifts text not null,             -- JSON: from a day before it was worked out to a month after
  worked_out_at real not null,
  read_at real not null,            -- when the source said last that it is so
  trouble text                      -- what people were told last that is wrong; null: nothing is
);
alter table pages add column note text; -- why it did not go to the person on call; null: it did
