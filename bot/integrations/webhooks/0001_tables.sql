-- The tables of this integration: see `bot/storage/schema.py`.

create table webhooks_unsigned ( -- decisions that webhooks were told of without a receipt: if it follows, they are told again
  clarification text not null references clarifications on delete cascade,
  round integer not null,
  type text not null,
  at real not null,
  primary key (clarification, round, type)
);
