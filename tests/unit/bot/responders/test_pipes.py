"""Pipes whose other ends tests hold."""

from __future__ import annotations

import os

from bot.responders.pipes import Pipes


async def test_pipes_closed_tell_all_that_was_said_though_somebody_holds_them() -> None:
    """Nobody has read any of it yet, and there will be no end of it: a process left it to another."""
    (feed, stdin), (stdout, say) = os.pipe(), os.pipe()
    ends = open(stdin, "wb", buffering=0), open(stdout, "rb", buffering=0)  # noqa: SIM115, PTH123, ASYNC230
    pipes = Pipes(*ends, b"x" * 1_000_000, 65536, lambda: None)
    os.write(say, b"JSON")
    assert pipes.close() == b"JSON"
    assert [end.closed for end in ends] == [True, True]
    os.close(feed)
    os.close(say)


async def test_pipes_keep_no_more_than_the_limit() -> None:
    (feed, stdin), (stdout, say) = os.pipe(), os.pipe()
    ends = open(stdin, "wb", buffering=0), open(stdout, "rb", buffering=0)  # noqa: SIM115, PTH123, ASYNC230
    told: list[str] = []
    pipes = Pipes(*ends, b"", 10, lambda: told.append("too much"))
    os.write(say, b"x" * 10_000)
    assert pipes.close() == b"x" * 10
    assert pipes.is_over
    assert told == ["too much"]
    os.close(feed)
    os.close(say)
