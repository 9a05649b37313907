-- Who was asked to be on call for some time; accepted, it is an override.

create table swap_requests (
  id integer primary key,
  policy text not null,
  user_id text not null,        -- who was asked
  since real not null,
  until real not null,
  asked_by text not null,
  team text not null,           -- of who asked
  state text not null default 'open' check (state in ('open', 'accepted', 'declined', 'withdrawn', 'lapsed'))
);
create index swap_requests_open on swap_requests (since) where state = 'open';
