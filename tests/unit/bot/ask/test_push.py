"""A producer that pushes: its events, its replies, its readers, over restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.ask.client import Accepted, TryAgain
from bot.ask.push import MOST_READERS, Broken, NotStored, Reader, Stored, TooManyReaders
from bot.errors import StorageUnavailable
from tests.kit.clocks import ManualClock
from tests.unit.bot.ask.push_kit import TOKEN, Life, answer, asked, frames, life, state

SECRET = "Deploy to production?"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def bot(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Life]:
    async with life(tmp_path, clock) as found:
        yield found


async def read(reader: Reader) -> list[dict[str, Any]]:
    """What a reader gets now, written to its connection."""
    data = await reader.next()
    await reader.wrote()
    return [message for _, message in frames(data)]


async def tokens(bot: Life, last: str | None = None, name: str = "planner") -> list[str]:
    """What a new reader gets, which then goes."""
    reader = await bot.push(name).open(last)
    found = [message["reply_token"] for message in await read(reader)]
    reader.close()
    return found


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b"", None, "not JSON"),
        (b"ping", None, "not JSON"),
        (b"[1, 2]", None, "object"),
        (b"5", None, "object"),
        (b"{}", "type", "type"),
        (b'{"type": 5}', "type", "type"),
        (b'{"type": " "}', "type", "type"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b'{"type": "clarification.reply"}', "type", "must be an event type"),
        (b'{"type": "subscription.accepted"}', "type", "must be an event type"),
        (b'{"type": "subscription.request"}', "subscriber_id", "string"),
        (b'{"type": "subscription.close", "subscription_id": "sub_x"}', "subscription_id", "Unknown"),
    ],
)
async def test_push_says_why_something_is_no_event(
    bot: Life, body: bytes, field: str | None, words: str
) -> None:
    with pytest.raises(NotStored, match=words) as caught:
        await bot.push().receive(body)
    assert caught.value.field == field
    assert await bot.ids() == []
    assert bot.troubles == []


async def test_push_takes_what_is_not_utf8_and_what_begins_with_a_mark(bot: Life, clock: ManualClock) -> None:
    marked = b"\xef\xbb\xbf" + json.dumps(asked(clock)).encode()
    assert isinstance(await bot.push().receive(marked), Stored)
    odd = json.dumps(state(clock, to_state="Déjà"), ensure_ascii=False).encode("latin-1")
    taken = await bot.push().receive(odd)
    assert isinstance(taken, Stored)
    assert taken.problems == ("not UTF-8",)
    assert bot.status()["not_utf8"] == 1
    with pytest.raises(Broken, match="not UTF-8"):
        await bot.push().receive(
            json.dumps(asked(clock, "rpl_2", 2, question="Déjà?"), ensure_ascii=False).encode("latin-1")
        )


@pytest.mark.parametrize(("late", "offset"), [(90, 90), (150, 0)])
async def test_push_learns_nothing_of_a_clock_from_what_was_kept_back(
    bot: Life, clock: ManualClock, late: int, offset: int
) -> None:
    await bot.post(state(clock, timestamp=(clock.now() - timedelta(seconds=late)).isoformat()))
    assert bot.status()["offset_seconds"] == offset


async def test_reader_that_comes_while_a_failed_reply_is_noted_is_not_missed(
    bot: Life, clock: ManualClock
) -> None:
    assert isinstance(await bot.producers.send("planner", answer(clock)), TryAgain)
    reader = await bot.push().open(None)
    async with asyncio.timeout(10):
        await bot.producers.connected("planner")
    reader.close()
    assert isinstance(await bot.producers.send("planner", answer(clock)), TryAgain)
    again = asyncio.ensure_future(bot.producers.connected("planner"))
    await bot.store.trouble()
    assert not again.done()
    await bot.push().open(None)
    async with asyncio.timeout(10):
        await again


async def test_reply_goes_to_every_reader_of_its_producer_only(bot: Life, clock: ManualClock) -> None:
    await bot.post(asked(clock))
    first, second = await bot.push().open(None), await bot.push().open(None)
    other = await bot.push("builder").open(None)
    sending = asyncio.ensure_future(bot.producers.send("planner", answer(clock)))
    await first.more.wait()
    await second.more.wait()
    [message] = await read(first)
    assert message == (await read(second))[0]
    assert await sending == Accepted(proof=False)
    assert await read(other) == []
    assert not other.more.is_set()
    assert message.pop("subscription_id").startswith("sub_")
    assert message == {
        "type": "clarification.reply",
        "reply_token": TOKEN,
        "response": True,
        "timestamp": "2026-11-21T09:00:00.000Z",
        "decided_by": "user:slack/T1/U1",
    }
    for reader in (first, second, other):
        reader.close()


async def test_reply_is_the_same_on_every_try(bot: Life, clock: ManualClock) -> None:
    await bot.post(asked(clock))
    await bot.producers.send("planner", answer(clock))
    first = await bot.push().open(None)
    before = await first.next()
    await bot.post(
        {"type": "subscription.request", "aaep_version": "1.0.0", "subscriber_id": "a", "capabilities": {}}
    )
    first.close()
    await bot.producers.send("planner", answer(clock))
    second = await bot.push().open(None)
    assert await second.next() == before


async def test_token_used_for_another_question_has_its_own_reply(bot: Life, clock: ManualClock) -> None:
    await bot.producers.send("planner", answer(clock))
    await bot.producers.send("planner", answer(clock, response="no"))
    reader = await bot.push().open(None)
    assert [message["response"] for message in await read(reader)] == [True, "no"]


async def test_reply_that_was_begun_may_have_arrived(bot: Life, clock: ManualClock) -> None:
    reader = await bot.push().open(None)
    sending = asyncio.ensure_future(bot.producers.send("planner", answer(clock)))
    await reader.more.wait()
    await reader.next()
    reader.close()  # its connection broke before it was told
    outcome = await sending
    assert isinstance(outcome, TryAgain)
    assert outcome.may_have_arrived
    assert await tokens(bot) == [TOKEN]


async def test_reply_does_not_wait_for_ever_for_a_reader_that_is_stuck(bot: Life, clock: ManualClock) -> None:
    reader, reply = await bot.push().open(None), answer(clock)
    sending = asyncio.ensure_future(bot.producers.send("planner", reply))
    await reader.more.wait()
    await clock.advance(5)
    assert isinstance(await sending, TryAgain)
    assert await read(reader)
    assert await bot.producers.send("planner", reply) == Accepted(proof=False)


async def test_reader_resumes_after_the_last_it_had(bot: Life, clock: ManualClock) -> None:
    for n in (1, 2, 3):
        await bot.producers.send("planner", answer(clock, f"rpl_{n}"))
    reader = await bot.push().open(None)
    ids = [sse_id for sse_id, _ in frames(await reader.next())]
    await reader.wrote()
    assert await tokens(bot, ids[1]) == ["rpl_3"]
    assert await tokens(bot, ids[2]) == []
    assert await tokens(bot) == []  # it said that it has them
    assert await tokens(bot, ids[0]) == ["rpl_2", "rpl_3"]


@pytest.mark.parametrize(
    "last", ["", "7", "x.1", "000000000000.1", "{epoch}.", "{epoch}.-1", "{epoch}.٣", "{epoch}." + "9" * 30]
)
async def test_reader_with_an_id_of_nowhere_gets_all(bot: Life, clock: ManualClock, last: str) -> None:
    await bot.producers.send("planner", answer(clock))
    row = await bot.store.read_one("select epoch from pushing")
    assert row is not None
    assert await tokens(bot, last.format(epoch=row["epoch"])) == [TOKEN]


async def test_reader_of_a_new_storage_is_not_fooled_by_its_old_id(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with life(tmp_path, clock) as bot:
        await bot.producers.send("planner", answer(clock))
        reader = await bot.push().open(None)
        [(last, _)] = frames(await reader.next())
    (tmp_path / "clarify.db").rename(tmp_path / "lost.db")
    async with life(tmp_path, clock, seed=8) as bot:
        await bot.producers.send("planner", answer(clock, "rpl_new"))
        assert await tokens(bot, last) == ["rpl_new"]


async def test_reader_gets_no_reply_whose_question_has_run_out(bot: Life, clock: ManualClock) -> None:
    await bot.post(asked(clock))
    await bot.producers.send("planner", answer(clock))
    await clock.advance(599)
    assert await tokens(bot) == [TOKEN]
    await clock.advance(2)
    assert await tokens(bot) == []


async def test_reader_gets_no_reply_that_its_session_went_on_with(bot: Life, clock: ManualClock) -> None:
    await bot.post(asked(clock))
    await bot.producers.send("planner", answer(clock))
    assert await tokens(bot) == [TOKEN]
    await clock.advance(1)
    await bot.post(state(clock, session_id="sess_other"))
    assert await tokens(bot) == [TOKEN]
    await bot.post(state(clock, 101))
    assert await tokens(bot) == []


async def test_question_posted_again_does_not_confirm_its_reply(bot: Life, clock: ManualClock) -> None:
    question = asked(clock)
    await bot.post(question)
    await bot.producers.send("planner", answer(clock))
    assert await tokens(bot) == [TOKEN]
    await clock.advance(5)
    for again in ({}, {"timestamp": clock.now().isoformat()}, {"event_id": "evt_another"}):
        await bot.post(question | again)  # the agent began anew, and has forgotten
    assert await tokens(bot) == [TOKEN]


async def test_event_of_before_confirms_nothing(bot: Life, clock: ManualClock) -> None:
    before = state(clock)
    await bot.post(asked(clock))
    await clock.advance(1)
    await bot.producers.send("planner", answer(clock))
    assert await tokens(bot) == [TOKEN]
    await clock.advance(1)
    await bot.post(before)  # it was on its way
    assert await tokens(bot) == [TOKEN]


async def test_event_confirms_nothing_that_was_not_read(bot: Life, clock: ManualClock) -> None:
    await bot.post(asked(clock))
    await bot.producers.send("planner", answer(clock))
    await clock.advance(1)
    await bot.post(state(clock))
    assert await tokens(bot) == [TOKEN]


async def test_old_replies_are_forgotten_in_the_end(bot: Life, clock: ManualClock) -> None:
    await bot.post(asked(clock))
    await bot.producers.send("planner", answer(clock))
    await clock.advance(timedelta(days=2).total_seconds())
    await bot.producers.send("planner", answer(clock, "rpl_later"))
    rows = await bot.store.read("select token from pushed_replies")
    assert [row["token"] for row in rows] == ["rpl_later"]


async def test_status_tells_readers_and_who_was_heard_of(bot: Life, clock: ManualClock) -> None:
    assert (bot.status()["connected"], bot.status()["dialect"]) == (False, "push")
    connected = asyncio.ensure_future(bot.producers.connected("planner"))
    await asyncio.sleep(0)
    reader = await bot.push().open(None)
    await connected
    await clock.advance(3600)
    assert bot.status()["connected"]
    assert bot.status()["since"] == clock.now() - timedelta(hours=1)
    reader.close()
    assert (bot.status()["connected"], bot.status()["since"]) == (False, None)
    await bot.post(state(clock))
    assert (bot.status()["connected"], bot.status()["last_heard"]) == (True, clock.now())
    await clock.advance(301)
    assert not bot.status()["connected"]
    assert not bot.status("builder")["connected"]


async def test_readers_that_come_at_once_have_the_same_limit(bot: Life) -> None:
    comers = [bot.push().open(None) for _ in range(MOST_READERS + 8)]
    found = await asyncio.gather(*comers, return_exceptions=True)
    assert [type(each) for each in found].count(Reader) == MOST_READERS
    assert [type(each) for each in found].count(TooManyReaders) == 8


async def test_reader_that_could_not_be_opened_is_none(
    bot: Life, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object, **__: object) -> None:
        raise StorageUnavailable("The database is away.")

    monkeypatch.setattr(bot.store, "tell", unavailable)
    with pytest.raises(StorageUnavailable):
        await bot.push().open(None)
    await clock.advance(3600)
    assert not bot.status()["connected"]
