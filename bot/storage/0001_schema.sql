-- The tables, in SQLite's dialect; `bot/storage/schema.py` makes PostgreSQL's of them. Times are seconds since 1970, by our
-- clock, unless a column says otherwise. Flags are 0 or 1.
--
-- `integer primary key`: the database gives out the numbers. `integer not null primary key`: we do.
-- What hangs on a clarification refers to it and goes with it (`on delete cascade`); `clarification` without a reference may be
-- of one that is gone.


-- Clarifications, and the feed of their changes.

create table clarifications (    -- what was asked and decided: one clarification a row
  id text primary key,           -- CLR-42-001
  issue integer not null,
  number integer not null,       -- in its issue
  producer text not null,        -- empty between agents
  session text not null,         -- the producer's; between agents: a digest of who asks whom about what
  token text,                    -- to reply to the current round
  event text,                    -- that asked the current round
  live integer not null,         -- 1: needs something
  closed real,                   -- when it changed last, if it is finished
  revision integer not null,
  summary text,                  -- what a start reads of it, as JSON (`core.summary`); null: it needs nothing
  body text not null,            -- the record as JSON
  written integer not null       -- the transaction that wrote it last (`Tx.stamp`)
);
create index clarifications_of_issue on clarifications (issue, number);
create index clarifications_of_session on clarifications (producer, session, closed);
create index clarifications_of_session_live on clarifications (producer, session) where live = 1;
create index clarifications_of_token on clarifications (producer, token);
create index clarifications_live on clarifications (issue, number) where live = 1;
create index clarifications_closed on clarifications (closed, issue, number);  -- what is over, in order
create index clarifications_written on clarifications (written);

create table issues (
  issue integer not null primary key,
  highest integer not null       -- the highest number that was ever given out: none is used twice
);

create table counters (          -- single numbers, such as the last issue that was reserved
  name text primary key,
  value integer not null
) without rowid;

create table changes (           -- the feed: one row for each write of a record, until every consumer has passed it
  seq integer primary key autoincrement,
  written integer not null,      -- with several writers: the transaction that it counts as (`bot/storage/changes.py`)
  clarification text not null,
  revision integer not null,
  what text not null,            -- the events that it means, with their round: answered/1
  at real not null
);
create index changes_in_order on changes (written, seq);

create table consumers (
  name text primary key,
  written integer not null,      -- with `seq`: the last change that it has passed
  seq integer not null
);

create table failed_changes (    -- what a consumer could not take; an empty clarification: it began again
  consumer text not null,
  clarification text not null,
  revision integer not null,
  what text not null,
  why text not null,
  at real not null,
  primary key (consumer, clarification, revision)
);


-- Agents and producers: what they sent, and what they are told.

create table inbox (             -- events of producers
  id integer primary key,
  producer text not null,
  event_id text not null,
  session_id text not null,
  issue integer,                 -- that it belongs to; null: of a session without clarifications
  token text,                    -- of a question: duplicates are found by reply token, too
  contents text,                 -- digest of what it says: an id or a token may be used for another event; null: forgotten
  received_at real not null,
  at real not null,              -- when it was sent
  expires_at real,               -- of a question
  live integer not null,         -- 1: it was just emitted; 0: replayed
  body text,                     -- the event as JSON; null once done
  state text not null default 'new' check (state in ('new', 'done', 'failed')),
  unique (producer, event_id)
);
create index inbox_tokens on inbox (producer, token) where token is not null;
create index inbox_new on inbox (id) where state = 'new';
create index inbox_of_sessions on inbox (producer, session_id);  -- whether a session has events

create table cursors (           -- how far a producer's events were read
  producer text primary key,
  cursor text not null
) without rowid;

create table subscriptions (     -- ours, with producers
  producer text primary key,
  body text not null             -- JSON
) without rowid;

create table sessions (
  producer text not null,
  session_id text not null,
  agent_id text not null,
  agent_name text,
  issue integer,
  channel text,                  -- its thread in Slack, once there is one
  thread_ts text,
  ended integer not null default 0,
  primary key (producer, session_id)
) without rowid;
create unique index sessions_threads on sessions (channel, thread_ts) where thread_ts is not null;

create table questions (         -- those that agents ask directly: by these their askers find them again
  token text primary key,        -- of the question's record: its `event_id`
  producer text not null,
  agent text not null,
  session_id text not null,
  key text,                      -- the agent's own name for it; null: it has none, or it may be used again
  digest text not null,          -- of all that it says
  clarification text not null references clarifications on delete cascade,
  created_at real not null,
  expires_at real not null,
  callback_url text,             -- where the outcome is posted; null: nowhere, or that is done. A secret, in no record
  callback_due integer not null default 0,  -- 1 once the feed has passed the question's end
  callback_failed_at real        -- the first attempt that failed; null: none
);
create unique index questions_keys on questions (producer, agent, key) where key is not null;
create index questions_of_producers on questions (producer, created_at);
create index questions_of_sessions on questions (producer, session_id, created_at);
create index questions_contents on questions (producer, agent, digest);
create index questions_ids on questions (clarification);
create index questions_callbacks on questions (callback_due) where callback_url is not null;

create table replies (           -- answers that a producer does not have yet
  clarification text not null references clarifications on delete cascade,
  token text not null,
  uncertain integer not null default 0,   -- 1: an earlier try may have arrived
  primary key (clarification, token)
) without rowid;

create table pushed_replies (    -- to producers that push: they read them from a stream of ours, and resume it where they were
  id integer primary key autoincrement,  -- never given out again: readers resume after it
  producer text not null,
  token text not null,
  digest text not null,          -- of all that it says but the subscription: a token may be used for another question
  session_id text,               -- that asked, where it is known
  body text not null,            -- JSON, the same on every try
  expires_at real,               -- of its question
  written_at real,               -- when a reader had it
  state text not null default 'waiting' check (state in ('waiting', 'begun', 'written', 'confirmed')),
  unique (producer, token, digest)
);
create index pushed_replies_written on pushed_replies (producer, session_id) where state = 'written';

create table pushing (           -- those streams
  producer text primary key,
  epoch text not null,           -- of the ids in its stream: those of an earlier storage say nothing
  subscription text not null
) without rowid;


-- Slack: what is shown there, and what was read and said.

create table messages (
  key text primary key,          -- card:CLR-42-001:1, notice:17, page:…
  kind text not null,
  clarification text references clarifications on delete cascade,
  round integer,
  producer text,                 -- the session whose thread it belongs to
  session_id text,
  target text not null,          -- channel (C…, G…, D…) or user (U…: by direct message)
  body text,                     -- what it says, as JSON; null: derived from the record
  wanted text,                   -- digest of body
  channel text,                  -- as Slack returned it
  ts text,
  thread_ts text,
  intent_at real,                -- a post was begun then and its outcome is not known
  shown text,                    -- digest of what Slack shows
  final integer not null default 0,
  failed text,                   -- why it will never be shown
  page integer,                  -- its number, if it is a page; `body` has the incidents that it is about, each with the step
                                 -- of its policy that led to it, if one did
  seen integer not null default 0  -- of a page: 1: the person did something in these direct messages after it was posted
) without rowid;
create index messages_open on messages (kind, key) where final = 0;
create index messages_begun on messages (producer, session_id) where ts is null and intent_at is not null;
create index messages_clarification on messages (clarification) where clarification is not null;
create index messages_pages on messages (page) where page is not null;
create unique index messages_places on messages (channel, ts) where ts is not null;

create table late_calls (        -- calls to Slack that are no longer waited for, and may take effect all the same, late
  key text not null,             -- of the message
  channel text not null,         -- where a post may arrive; '': it is a change of the message where it is
  thread_ts text not null default '',  -- the thread in which it does, if it is one
  begun_at real not null,
  until_at real,                 -- it is watched for until then; null: no longer
  primary key (key, channel, thread_ts)
) without rowid;
create index late_calls_watched on late_calls (until_at) where until_at is not null;

create table erasures (          -- messages that have to go from Slack
  channel text not null,
  ts text not null,
  state text not null default 'wanted' check (state in ('wanted', 'erased', 'blanked', 'failed')),
  note text,                     -- Slack's word for why not
  primary key (channel, ts)
) without rowid;
create index erasures_wanted on erasures (channel, ts) where state = 'wanted';

create table slack_events (
  seq integer primary key,       -- the order in which they came
  event_id text not null unique,
  body text,                     -- JSON; null once done
  state text not null default 'new' check (state in ('new', 'done'))
);
create index slack_events_new on slack_events (seq) where state = 'new';

create table watermarks (        -- up to where the replies in a channel were read
  channel text primary key,
  ts text not null
) without rowid;

create table onces (             -- what is said or done once only, and was
  key text primary key
) without rowid;

create table texts (             -- what people typed, and when they were last told something
  id text primary key,
  body text not null
) without rowid;

create table homes (             -- who looks at their Home tab, and what it shows them
  user_id text primary key,
  team text not null,
  channel text not null,         -- their direct messages with the bot; empty: not known
  opened_at real not null,
  pages text not null,           -- the page of each section that they look at, as JSON
  digest text                    -- of what Slack shows; null: not known
) without rowid;


-- On call: incidents, and who is paged about them. Their pages in Slack are messages.

create table incidents (         -- what a person has to take
  id integer primary key,
  key text not null unique,      -- escalated:CLR-42-001:1:…, refused:…, ledger:…: raised once only
  kind text not null,
  policy text,                   -- name of the on-call policy; null: the last resort only
  agent_id text,
  clarification text,
  title text not null,
  reason text not null,
  body text not null,
  expires_at real,               -- of its question
  began_at real not null,
  closed_at real
);
create index incidents_open on incidents (id) where closed_at is null;
create index incidents_clarification on incidents (clarification) where clarification is not null;

create table incident_log (      -- what became of each: rows alone, since no bot may wait for another to add one
  seq integer primary key,
  incident integer not null,
  page integer,                  -- that names it
  entry text not null            -- JSON: began, sent, failed, taken, handed, snoozed, not mine, left, closed; or listed: by a
);                               -- page that no step led to. A step -1: the last resort
create index incident_log_incident on incident_log (incident, seq);
create index incident_log_page on incident_log (page) where page is not null;

create table sendings (          -- pages outside Slack
  key text primary key,          -- page:17:PAGER_URL
  page integer not null,
  via text not null,             -- apprise
  target text not null,          -- name of the environment variable with the address
  body text not null,            -- about what it is, as in its messages
  at real not null,
  state text not null default 'wanted' check (state in ('wanted', 'sent', 'failed', 'dropped')),
  note text                      -- why it failed
) without rowid;
create index sendings_page on sendings (page);
create index sendings_wanted on sendings (key) where state = 'wanted';

create table overrides (         -- who stands in on call, whoever's turn it is
  id integer primary key,        -- of several in force the one made last holds
  policy text not null,
  user_id text not null,
  since real not null,
  until real not null,
  made_by text not null
);
create index overrides_policy on overrides (policy, id);

create table turns (             -- who was told last that they are on call, where a policy announces it
  policy text primary key,
  users text not null            -- JSON, sorted
);

create table feeds (             -- who is on call as a calendar or PagerDuty said last
  policy text primary key,
  origin text not null,          -- a digest of where it is from: what another source said does not count
  shifts text not null,          -- JSON: from a day before it was read to a month after
  faults text not null,          -- JSON: what of it cannot be read, in words
  read_at real not null,         -- when the source said last that it is so
  trouble text                   -- what people were told last that is wrong; null: nothing is
);


-- Receipts, and the log of decisions.

create table signing_keys (      -- the public keys that receipts were signed with, from the first on
  kid text primary key,
  jwk text not null,             -- what /.well-known/jwks.json shows
  since real not null
);

create table receipts (          -- one row
  one integer not null primary key check (one = 1),
  since real not null,           -- when this installation has made receipts
  owed integer not null default 0  -- 1 while some could not be signed
);

create table decisions (         -- a chain of signed entries (`bot.decisions.log`), with the receipts that it names
  seq integer not null primary key,  -- from 1, without gaps; the oldest may be cut off
  kind text not null,            -- decision, executed, forgotten, key, cut, checkpoint
  at real not null,              -- when it was appended
  entry text not null,
  jti text unique,               -- of a decision, such as CLR-42-001/1
  receipt text,                  -- null: no decision, forgotten, or older than is kept
  gone integer not null default 0  -- 1: the receipt was deleted, and no entry says so yet; 2: an entry says so
);
create index decisions_gone on decisions (seq) where gone = 1;
create index decisions_kinds on decisions (kind, seq) where kind <> 'decision';

create table decision_texts (    -- what search needs of each decision: gone when it is forgotten, or older than is kept
  seq integer not null primary key,  -- of its entry
  clarification text not null,
  at real not null,              -- when it was decided
  agent text not null,
  outcome text not null,         -- answered, expired, withdrawn, closed
  decision text,                 -- of an approval that was answered: accept or reject
  decided_by text,               -- the last one's name
  deciders text not null,        -- `bot.decisions.search.deciders_of`
  channel text,                  -- where its card is or would be: C…, D…; null: it has none
  ts text,                       -- of its card
  recipient text,                -- of a card in direct messages: whose (U…)
  question text not null,
  answer text,
  words text not null            -- `bot.decisions.search.words_of`
);
create index decision_texts_at on decision_texts (at);
create index decision_texts_clarification on decision_texts (clarification);


-- What integrations tell others. Their own tables are in their folders (`bot/integrations/NAME/0001_….sql`).

create table outbox (            -- messages that are on their way
  seq integer primary key autoincrement,  -- the order in which it happened
  endpoint text not null,        -- the integration, and its name of the party: no secret
  id text not null,              -- the same on every try
  clarification text not null,
  type text not null,
  body blob not null,            -- the bytes that are sent
  queued_at real not null,
  failures integer not null default 0,
  unique (endpoint, id)
);
create index outbox_lines on outbox (endpoint, clarification, seq);

create table integrations (      -- the versions of their tables
  name text primary key,
  version integer not null
) without rowid;


-- The database itself.

create table installation (      -- one row: who we are among installations on the same Slack app
  one integer not null primary key check (one = 1),
  id text not null,              -- random, made once; every control that we post carries it. Kept by backup and restore
  secret blob not null,          -- keys what must not be guessed: task ids of MCP, and digests of questions that were redacted
  others integer not null default 0,  -- connections to Slack, beside ours, when it last told: another bot on the app
  told_at real,                  -- when it last told
  shell_consents integer not null default 0,  -- 1: the bot lets the shell accept approvals, as its settings said when it last led
  moved_to text,                 -- the database that this one moved to (`clarify move`): no bot may start here
  moved_from text,               -- the one that is still being moved here: no bot may start here either
  probes integer not null default 0  -- counts writes that were only tried, to see whether there is space again
);

create table over (              -- rows of tables that keep no time, since when they are not needed
  kind text not null,            -- the table
  name text not null,            -- of the row
  since real not null,
  primary key (kind, name)
) without rowid;


-- PostgreSQL alone: several bots on one database. SQLite has one bot, a lock on its file, and `pragma user_version`. Times are
-- the server's: only by its clock can bots on different machines judge each other.

create table schema_version (    -- one row
  version integer not null
);

create table lease (             -- which bot leads; one row
  epoch integer not null primary key,  -- changes with the leader: who held an earlier one writes nothing more
  holder text,                   -- null: it was handed over
  renewed_at timestamptz not null default '-infinity'
);
insert into lease (epoch) values (0);

create table news (              -- what one bot tells the others, for some minutes
  id integer primary key,
  xid integer not null,          -- the transaction
  teller text not null,
  topic text not null,
  name text not null,
  told_at timestamptz not null default clock_timestamp()
);
create index news_xid on news (xid);
create index news_told_at on news (told_at);

create table alive (             -- the bots on this database: not in `replicas`, whose rows a transaction may hold for long
  id text primary key,
  seen_at timestamptz not null
);

create table replicas (          -- the processes that write
  id text primary key,
  batch integer not null,        -- number of its last transaction, to tell whether a COMMIT without an answer was done
  at timestamptz not null        -- of that; rows are removed after a day
);
