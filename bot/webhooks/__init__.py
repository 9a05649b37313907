"""Tells webhooks of the five lifecycle events: signed, retried, in order for each clarification, at least once.

What was told of a clarification is kept, and compared with what the ledger says: a kill between a ledger's write and
the outbox's loses nothing, since the next start finds the difference. What happened in between, while nobody looked,
is told as far as the ledger shows it: three rounds that others wrote meanwhile are one question and one answer.
"""
