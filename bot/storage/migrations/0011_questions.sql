-- Questions that agents ask directly, by which their askers find them again.

create table questions (
  token text primary key,           -- its `event_id` in the record
  producer text not null,
  agent text not null,
  session_id text not null,
  key text,                         -- the agent's own name for it; null: it has none, or it may be used again
  digest text not null,             -- of all that it says
  clarification text not null references clarifications on delete cascade,
  created_at real not null,
  expires_at real not null
);
create unique index questions_keys on questions (producer, agent, key) where key is not null;
create index questions_of_producers on questions (producer, created_at);
create index questions_contents on questions (producer, agent, digest);
