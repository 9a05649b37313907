-- The public keys that receipts were signed with, from the first on: `jwk` is what /.well-known/jwks.json shows.
create table signing_keys (
    kid text collate "C" primary key,
    jwk text collate "C" not null,
    since double precision not null
);
-- `since` when this installation has made receipts; `owed`: 1 while some could not be signed.
create table receipts (
    one bigint primary key check (one = 1),
    since double precision not null,
    owed bigint not null default 0
);
