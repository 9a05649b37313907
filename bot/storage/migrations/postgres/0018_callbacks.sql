-- Where the outcome of a question is posted; null: nowhere, or that is done. A secret, in no ledger.

alter table questions add column callback_url text collate "C";
alter table questions add column callback_failed_at double precision;  -- the first attempt that failed; null: none
create index questions_callbacks on questions (token) where callback_url is not null;
