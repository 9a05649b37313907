-- The log of decisions: a chain of signed entries (`bot.decisions.log`), with the receipts that it names.
create table decisions (
    seq bigint primary key,       -- from 1, without gaps; the oldest may be cut off
    kind text collate "C" not null,
    at double precision not null, -- when it was appended
    entry text collate "C" not null,
    jti text collate "C" unique,  -- of a decision, such as CLR-42-001/1
    receipt text collate "C",     -- null: no decision, forgotten, or older than is kept
    gone bigint not null default 0  -- 1: the receipt was deleted, and no entry says so yet; 2: an entry says so
);
create index decisions_gone on decisions (seq) where gone = 1;
create index decisions_kinds on decisions (kind, seq) where kind <> 'decision';
-- What search needs of each decision: gone when it is forgotten, or older than is kept.
create table decision_texts (
    seq bigint primary key,       -- of its entry
    clarification text collate "C" not null,
    at double precision not null, -- when it was decided
    agent text collate "C" not null,
    outcome text collate "C" not null,
    decision text collate "C",
    decided_by text collate "C",
    deciders text collate "C" not null,
    channel text collate "C",
    ts text collate "C",
    recipient text collate "C",
    question text collate "C" not null,
    answer text collate "C",
    words text collate "C" not null
);
create index decision_texts_at on decision_texts (at);
create index decision_texts_clarification on decision_texts (clarification);
-- A row: every ledger, the archive too, was compared with the log.
create table decisions_compared (
    one bigint primary key check (one = 1)
);
