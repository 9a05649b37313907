BEGIN TRANSACTION;
CREATE TABLE counters (name text primary key, value integer not null) without rowid;
INSERT INTO "counters" VALUES('issue',100009);
CREATE TABLE cursors (producer text primary key, cursor text not null) without rowid;
INSERT INTO "cursors" VALUES('planner','evt_cf10bb2e20b8457c9f93d1649bbe4f05');
CREATE TABLE inbox (
  id integer primary key,
  producer text not null,
  event_id text not null,
  session_id text not null,
  issue integer,               -- the ledger it belongs to; null: of a session without clarifications
  token text,                  -- of a question: duplicates are found by reply token, too
  words text,                  -- digest of the question: a token used again for another question is no duplicate
  received_at real not null,   -- seconds since 1970, our clock
  at real not null,            -- when it was sent, on our clock
  expires_at real,             -- of a question, on our clock
  live integer not null,
  body text,                   -- the event as JSON; null once done
  state text not null default 'new' check (state in ('new', 'done', 'failed')),
  unique (producer, event_id)
);
INSERT INTO "inbox" VALUES(1,'planner','evt_104ff8c2867a4b1e9c888d7ed00496e3','sess_done',42,'rpl_done','895df318bb7ab27e1aa3aa9d',1.79534619355646395686e+09,1.79534619355646395686e+09,NULL,1,NULL,'done');
INSERT INTO "inbox" VALUES(2,'planner','evt_109cbfe812cf49c39638f9df777aeb8c','sess_done',42,NULL,NULL,1.79534619362136101724e+09,1795346193.61882,NULL,1,NULL,'done');
INSERT INTO "inbox" VALUES(3,'planner','evt_d32c2aabb82e4a80bd5fad173738d3c3','sess_open',42,'rpl_open','e782c3602131bfaa7eca305f',1.79534619362176609035e+09,1.79534619361895895007e+09,NULL,1,NULL,'done');
INSERT INTO "inbox" VALUES(4,'planner','evt_33bd11baf04c487c8ed6267e236cc8a1','sess_bare',100001,'rpl_bare','65f5af0ee0bb14b7eed3bc7b',1.79534619366362905505e+09,1.79534619366238093378e+09,NULL,1,NULL,'done');
INSERT INTO "inbox" VALUES(5,'planner','evt_c4a6f712c2dd468f8c01119c44fda6a6','sess_err',NULL,NULL,NULL,1.79534619368053102489e+09,1.79534619367950510973e+09,NULL,1,NULL,'done');
INSERT INTO "inbox" VALUES(6,'planner','evt_cf10bb2e20b8457c9f93d1649bbe4f05','sess_sent',100002,'rpl_sent','bd37e3bc56bf8a654ae99a70',1.79534619369778800012e+09,1.79534619369541096692e+09,NULL,1,NULL,'done');
INSERT INTO "inbox" VALUES(7,'planner','evt_waiting','sess_waiting',100009,'rpl_waiting','000000000000000000000000',1.79534619369778800012e+09,1.79534619369778800012e+09,2.11070619369778800017e+09,1,'{"@context": "https://aaep-protocol.org/context/v1", "event_id": "evt_waiting", "timestamp": "2026-11-21T23:50:00.000Z", "type": "aaep:agent.awaiting.clarification", "session_id": "sess_waiting", "urgency": "critical", "producer": {"agent_id": "planner-agent", "agent_name": "Planner"}, "question": "Taken in just before the kill?", "reply_token": "rpl_waiting", "timeout_seconds": 315360000, "accepted_response_kinds": ["yes_no"]}','new');
CREATE TABLE messages (
  key text primary key,        -- card:CLR-42-001:1, notice:17, page:…
  kind text not null,
  clarification text,
  round integer,
  producer text,               -- the session whose thread it belongs to
  session_id text,
  target text not null,        -- channel (C…, G…, D…) or user (U…: by direct message)
  body text,                   -- what it says, as JSON; null: derived from the ledger
  wanted text,                 -- digest of body
  channel text,                -- as Slack returned it
  ts text,
  thread_ts text,
  intent_at real,              -- a post was begun then and its outcome is not known
  shown text,                  -- digest of what Slack shows
  final integer not null default 0,
  failed text                  -- why it will never be shown
) without rowid;
INSERT INTO "messages" VALUES('card:CLR-100001-001:1','card','CLR-100001-001',1,'planner','sess_bare','C0AGENTS',NULL,NULL,'C0AGENTS','1795346193.677928',NULL,NULL,'980111dc650abf0f84d5dd9f',0,NULL);
INSERT INTO "messages" VALUES('card:CLR-100002-001:1','card','CLR-100002-001',1,'planner','sess_sent','C0AGENTS',NULL,NULL,'C0AGENTS','1795346193.724061',NULL,NULL,'227890dd75d5c9e71d9a67f4',0,NULL);
INSERT INTO "messages" VALUES('card:CLR-42-001:1','card','CLR-42-001',1,'planner','sess_done','C0AGENTS',NULL,NULL,'C0AGENTS','1795346193.589836',NULL,NULL,'21cbefe515234714555f2f5a',1,NULL);
INSERT INTO "messages" VALUES('card:CLR-42-002:1','card','CLR-42-002',1,'planner','sess_open','C0AGENTS',NULL,NULL,'C0AGENTS','1795346193.660555',NULL,NULL,'125dae607fa67a06ea796b62',0,NULL);
INSERT INTO "messages" VALUES('notice:planner:evt_c4a6f712c2dd468f8c01119c44fda6a6','notice',NULL,NULL,'planner','sess_err','C0AGENTS','{"text": "Planner stopped with an error.\nIt broke.\nMessage: Disk full\nCategory: unknown.", "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "Planner stopped with an error", "emoji": false}, "block_id": "notice.4c655932.0"}, {"type": "section", "text": {"type": "plain_text", "text": "It broke.", "emoji": false}, "block_id": "notice.d5800ddc.1"}, {"type": "section", "text": {"type": "plain_text", "text": "Message: Disk full", "emoji": false}, "block_id": "notice.b217705e.2"}, {"type": "context", "elements": [{"type": "plain_text", "text": "Category: unknown", "emoji": false}], "block_id": "notice.edfcab53.3"}], "more": [], "opens_thread": true, "broadcast": true, "needed": true}','notice','C0AGENTS','1795346193.693902',NULL,NULL,'notice',1,NULL);
INSERT INTO "messages" VALUES('page:errored:planner:evt_c4a6f712c2dd468f8c01119c44fda6a6:C0FALLBACK','page',NULL,NULL,NULL,NULL,'C0FALLBACK','{"text": "Planner: session ended with an error.\nIt broke.\nWhy: Error category unknown.", "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "Planner: session ended with an error", "emoji": false}, "block_id": "notice.6b05680f.0"}, {"type": "section", "text": {"type": "plain_text", "text": "It broke.", "emoji": false}, "block_id": "notice.d5800ddc.1"}, {"type": "context", "elements": [{"type": "plain_text", "text": "Why: Error category unknown", "emoji": false}], "block_id": "notice.148d96f7.2"}], "needed": true}','page','C0FALLBACK','1795346193.700352',NULL,NULL,'page',1,NULL);
INSERT INTO "messages" VALUES('page:errored:planner:evt_c4a6f712c2dd468f8c01119c44fda6a6:U0ONCALL','page',NULL,NULL,NULL,NULL,'U0ONCALL','{"text": "Planner: session ended with an error.\nIt broke.\nWhy: Error category unknown.", "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "Planner: session ended with an error", "emoji": false}, "block_id": "notice.6b05680f.0"}, {"type": "section", "text": {"type": "plain_text", "text": "It broke.", "emoji": false}, "block_id": "notice.d5800ddc.1"}, {"type": "context", "elements": [{"type": "plain_text", "text": "Why: Error category unknown", "emoji": false}], "block_id": "notice.148d96f7.2"}], "needed": true}','page','D1A202F8DD1B3B','1795346193.705335',NULL,NULL,'page',1,NULL);
CREATE TABLE onces (key text primary key) without rowid;
CREATE TABLE replies (
  clarification text not null,
  token text not null,
  attempts integer not null default 0,
  uncertain integer not null default 0,   -- an earlier try may have arrived
  primary key (clarification, token)
) without rowid;
INSERT INTO "replies" VALUES('CLR-100002-001','rpl_sent',4,0);
INSERT INTO "replies" VALUES('CLR-42-001','rpl_done',1,1);
CREATE TABLE sessions (
  producer text not null,
  session_id text not null,
  agent_id text not null,
  agent_name text,
  issue integer,
  channel text,                -- its thread in Slack, once there is one
  thread_ts text,
  ended integer not null default 0,
  primary key (producer, session_id)
) without rowid;
INSERT INTO "sessions" VALUES('planner','sess_bare','planner-agent','Planner',100001,'C0AGENTS','1795346193.677928',0);
INSERT INTO "sessions" VALUES('planner','sess_done','planner-agent','Planner',42,'C0AGENTS','1795346193.589836',0);
INSERT INTO "sessions" VALUES('planner','sess_err','planner-agent','Planner',NULL,'C0AGENTS','1795346193.693902',0);
INSERT INTO "sessions" VALUES('planner','sess_open','planner-agent','Planner',42,'C0AGENTS','1795346193.660555',0);
INSERT INTO "sessions" VALUES('planner','sess_sent','planner-agent','Planner',100002,'C0AGENTS','1795346193.724061',0);
INSERT INTO "sessions" VALUES('planner','sess_waiting','planner-agent','Planner',100009,NULL,NULL,0);
CREATE TABLE slack_events (
  event_id text primary key,
  body text,                   -- null once done
  state text not null default 'new' check (state in ('new', 'done'))
);
CREATE TABLE subscriptions (producer text primary key, body text not null) without rowid;
INSERT INTO "subscriptions" VALUES('planner','{"message": {"type": "subscription.accepted", "subscription_id": "sub_44847bb6e4af4c25a4205345177f8fd8", "aaep_version": "1.0.0", "producer": {"agent_id": "planner-agent", "agent_name": "Planner"}, "honored_capabilities": {"max_events_per_second": 1000, "preferred_verbosity": "normal", "languages": ["en-US"], "supports_confirmation_reply": false, "supports_clarification_reply": true, "coalesce_boundaries": ["completion"], "event_filters": {"exclude": ["aaep:agent.output.streaming", "aaep:agent.progress.updated"]}, "supported_conformance_levels": [1, 2, 3]}}, "location": "/aaep/v1/events?subscription_id=sub_44847bb6e4af4c25a4205345177f8fd8"}');
CREATE TABLE texts (id text primary key, body text not null) without rowid;
CREATE TABLE watermarks (channel text primary key, ts text not null) without rowid;
CREATE UNIQUE INDEX inbox_tokens on inbox (producer, token, words) where token is not null;
CREATE INDEX inbox_new on inbox (id) where state = 'new';
CREATE UNIQUE INDEX sessions_threads on sessions (channel, thread_ts) where thread_ts is not null;
CREATE INDEX messages_open on messages (kind, key) where final = 0;
CREATE INDEX messages_begun on messages (producer, session_id) where ts is null and intent_at is not null;
CREATE INDEX messages_clarification on messages (clarification) where clarification is not null;
CREATE UNIQUE INDEX messages_places on messages (channel, ts) where ts is not null;
CREATE INDEX slack_events_new on slack_events (event_id) where state = 'new';
COMMIT;
pragma user_version = 1;
