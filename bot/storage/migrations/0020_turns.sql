-- Who was told last that they are on call, so that a change of shift is told once. Only policies that announce it.

create table turns (
  policy text primary key,
  users text not null           -- JSON, sorted
);
