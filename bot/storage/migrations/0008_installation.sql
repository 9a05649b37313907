-- Who we are among installations on the same Slack app. Every control that we post carries the id.

create table installation (
  one integer primary key check (one = 1),
  id text not null,            -- random, made once; kept by backup and restore, a copy gets another
  others integer not null default 0,  -- connections to Slack, beside ours, when it last told: another bot on the app
  told_at real                 -- when it last told; seconds since 1970, our clock
);
insert into installation (one, id) values (1, lower(hex(randomblob(8))));
