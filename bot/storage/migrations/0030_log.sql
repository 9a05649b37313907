-- The log of decisions continues at its place in the feed: it compares nothing.
drop table decisions_compared;
