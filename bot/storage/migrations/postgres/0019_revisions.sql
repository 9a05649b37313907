-- The highest revision of its record that a card has shown: a ledger never goes back behind it. Null: not known.
alter table messages add column revision bigint;
