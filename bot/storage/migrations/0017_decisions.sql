-- The log of decisions: a chain of signed entries (`bot.decisions.log`), with the receipts that it names.
create table decisions (
    seq integer primary key,      -- from 1, without gaps; the oldest may be cut off
    kind text not null,           -- decision, forgotten, key, cut, checkpoint
    at real not null,             -- when it was appended
    entry text not null,
    jti text unique,              -- of a decision, such as CLR-42-001/1
    receipt text,                 -- null: no decision, forgotten, or older than is kept
    gone integer not null default 0  -- 1: the receipt was deleted, and no entry says so yet; 2: an entry says so
);
create index decisions_gone on decisions (seq) where gone = 1;
create index decisions_kinds on decisions (kind, seq) where kind <> 'decision';
-- What search needs of each decision: gone when it is forgotten, or older than is kept.
create table decision_texts (
    seq integer primary key,      -- of its entry
    clarification text not null,
    at real not null,             -- when it was decided
    agent text not null,
    outcome text not null,        -- answered, expired, withdrawn, closed
    decision text,                -- of an approval that was answered: accept or reject
    decided_by text,              -- the last one's name
    deciders text not null,       -- `bot.decisions.search.deciders_of`
    channel text,                 -- where its card is or would be: C…, D…; null: it has none
    ts text,                      -- of its card
    recipient text,               -- of a card in direct messages: whose (U…)
    question text not null,
    answer text,
    words text not null           -- `bot.decisions.search.words_of`
);
create index decision_texts_at on decision_texts (at);
create index decision_texts_clarification on decision_texts (clarification);
-- A row: every ledger, the archive too, was compared with the log.
create table decisions_compared (
    one integer primary key check (one = 1)
);
