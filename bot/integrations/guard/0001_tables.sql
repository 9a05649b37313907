-- The tables of this integration: see `bot/storage/schema.py`.

create table guard_calls (       -- calls that a rule holds, each with the question that asks for it
  clarification text not null primary key references clarifications on delete cascade,
  guard text not null,
  producer text not null,
  tool text not null,
  rule text not null,            -- why it was held
  fingerprint text not null,     -- of the tool's definition,
  definition text not null,      -- which is this, as JSON
  state text not null,           -- held, accepted, sent, done, doubt (sent, and its result was lost), ended (never sent)
  asked_at real not null,
  decided_at real,
  outcome text,                  -- accepted, edited, rejected; null: undecided, or closed without a decision
  sender text,                   -- who sends it: a random name
  seen_at real not null,         -- when its client was last there
  owed text,                     -- what is still to be done about its state: `doubt`: tell people; `left`: withdraw its question, or tell them
  told text                      -- of a call in doubt: the later call to which the agent made this was told; null: none
) without rowid;
create index guard_calls_by_state on guard_calls (state, seen_at);
create index guard_calls_by_time on guard_calls (asked_at);
create index guard_calls_owed on guard_calls (owed) where owed is not null;

create table guard_tools (       -- how tools were defined when a person last saw them, or else when they were first seen
  guard text not null,
  tool text not null,
  fingerprint text not null,
  definition text not null,
  primary key (guard, tool)
) without rowid;
