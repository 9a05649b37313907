-- What hangs on a clarification goes with it.
alter table messages add foreign key (clarification) references clarifications on delete cascade;
alter table replies add foreign key (clarification) references clarifications on delete cascade;
alter table questions add foreign key (clarification) references clarifications on delete cascade;
alter table webhook_unsigned add foreign key (clarification) references clarifications on delete cascade;
