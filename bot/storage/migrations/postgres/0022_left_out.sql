-- What of a source cannot be read (JSON). The next look expands each source anew.

alter table feeds add column left_out text collate "C" not null default '[]';
update feeds set worked_out_at = 0;
