-- The public keys that receipts were signed with, from the first on: `jwk` is what /.well-known/jwks.json shows.
create table signing_keys (
    kid text primary key,
    jwk text not null,
    since real not null
);
-- `since` when this installation has made receipts; `owed`: 1 while some could not be signed.
create table receipts (
    one integer primary key check (one = 1),
    since real not null,
    owed integer not null default 0
);
