"""What is put where, whatever comes between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from bot.errors import StorageUnavailable
from bot.show import delivery
from bot.show.messages import Fresh, MessageRow
from bot.storage.ledger import DatabaseLedger
from core.clarification import Answer, Clarification, Direct
from core.transitions import answered, escalated, nudged, reply_settled
from tests.kit.builders import ADE, NOW, SLA, record
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.show.room import Room


class Sorting(Room):
    """`put` are the keys that came into lanes."""

    def __init__(self, ledger: DatabaseLedger, folder: Path) -> None:
        super().__init__(ledger, folder, clock=ManualClock(NOW, auto=True))
        self.put_keys: list[str] = []
        self.messenger.lanes.put = lambda _, key, **__: self.put_keys.append(key)  # type: ignore[method-assign]

    async def changed(self, seen: Clarification) -> None:
        await self.put(seen)
        self.delivery.record_changed(await self.ledger.find(seen.id))


@pytest.fixture
async def world(ledger: DatabaseLedger, tmp_path: Path) -> AsyncIterator[Sorting]:
    made = Sorting(ledger, tmp_path)
    running = asyncio.create_task(made.delivery.run())
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await made.close()


async def test_p1_card_is_stored_with_its_record_and_owed_until_it_shows_that(world: Sorting) -> None:
    """So a start has only to load what is owed, wherever the bot was killed."""

    async def owed() -> list[str]:
        return [row.key for row in await world.messages.owed()]

    asked = record()
    await world.put(asked)
    assert await owed() == ["card:CLR-42-001:1"]
    await world.messages.landed(
        await world.row("card:CLR-42-001:1"), "C1", "1.0", "1", final=False, opens_thread=True
    )
    assert (await owed(), await world.messages.carded()) == ([], {("CLR-42-001", 1): True})
    await world.put(nudged(asked, NOW, SLA))
    assert await owed() == ["card:CLR-42-001:1"]


async def test_rollup_that_could_not_be_stored_at_first_is_shown(
    world: Sorting, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, refused = world.messages.want, list[str]()

    async def full_once(fresh: Iterable[Fresh]) -> None:
        wanted = list(fresh)
        if any(each.kind == "rollup" for each in wanted) and not refused:
            refused.extend(each.key for each in wanted)
            raise StorageUnavailable("full")
        await want(wanted)

    monkeypatch.setattr(world.messages, "want", full_once)
    for seq in range(1, 23):
        await world.changed(record(seq=seq))
    await until(lambda: refused and refused[0] in world.put_keys)
    assert await world.messages.get(refused[0]) is not None


async def test_stored_message_that_cannot_be_read_at_once_is_sent_as_soon_as_it_can_be(
    world: Sorting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller hears of no failure, since the message is stored: they would store it again."""
    get, silent = world.messages.get, 3

    async def away_for_a_moment(key: str) -> MessageRow | None:
        nonlocal silent
        silent -= 1
        if silent >= 0:
            raise StorageUnavailable("away")
        return await get(key)

    monkeypatch.setattr(world.messages, "get", away_for_a_moment)
    await world.delivery.notify(Fresh(key="word:1", kind="word", target="C0AGENTS", body={}, wanted="word"))
    await until(lambda: "word:1" in world.put_keys)
    assert world.put_keys == ["word:1"]


async def test_two_answers_at_once_leave_the_group_its_roll_up(world: Sorting) -> None:
    """Two card slots get free in one go, and two held questions get them; the roll-up of the others stays the same."""
    asked = [record(seq=seq) for seq in range(1, 26)]
    for each in asked:
        await world.changed(each)
    (key,) = await until(lambda: {key for key in world.put_keys if key.startswith("rollup:")})
    world.put_keys.clear()
    for each in asked[:2]:
        await world.changed(reply_settled(answered(each, Answer("x", "x"), ADE, NOW), "delivered", None))
    await until(lambda: {"card:CLR-42-021:1", "card:CLR-42-022:1"} <= {*world.put_keys})
    group = world.rollups.group(asked[-1])
    assert {each for each in world.put_keys if each.startswith("rollup:")} == {key}
    assert (world.rollups.key_of(group), len(world.rollups.held(group))) == (key, 3)


async def test_roll_up_that_holds_nothing_any_more_ends_with_the_next_start(world: Sorting) -> None:
    """What is held later gets a roll-up card of its own, at the end of the channel."""
    (group,) = {world.rollups.group(record())}
    await world.messages.want(
        [Fresh("rollup:1", "rollup", group.channel, body=group._asdict(), wanted="rollup")]
    )
    await world.delivery.load()
    assert "rollup:1" in world.put_keys
    assert world.rollups.key_of(group) is None


async def test_card_of_a_round_before_is_brought_up_to_date_when_people_do_not_see_the_next(
    world: Sorting,
) -> None:
    """Agents may settle what people were shown and ask further, before anybody looks: its controls have to go."""
    asked = record(to="architect").model_copy(update={"rounds": ()})
    await world.changed(escalated(asked, "stale", "Nobody answered.", NOW))
    await until(lambda: world.put_keys == ["card:CLR-42-001:1"])
    await world.changed(asked.model_copy(update={"round": 2}))
    await until(lambda: len(world.put_keys) == 2)
    assert set(world.put_keys) == {"card:CLR-42-001:1"}
    assert await world.messages.get("card:CLR-42-001:2") is None
    assert not world.rollups.has_place("CLR-42-001")


@pytest.mark.parametrize(
    ("asked", "awaited", "soon"),
    [
        (record(), False, True),
        (record(), False, False),
        (record(direct=Direct(kind="text")), True, True),
        (record(direct=Direct(kind="text")), True, False),
    ],
)
async def test_card_changes_once_where_the_agent_has_the_answer_at_once(
    world: Sorting, monkeypatch: pytest.MonkeyPatch, asked: Clarification, awaited: bool, soon: bool
) -> None:
    monkeypatch.setattr(delivery, "_REPLY", 60.0 if soon else 0.0)
    await world.changed(asked)
    await until(lambda: world.put_keys == ["card:CLR-42-001:1"])
    if awaited:
        world.awaited.add(asked.id)
    sending = answered(asked, Answer("x", "x"), ADE, NOW)
    assert sending.delivery.reply == ("waiting" if awaited else "sending")
    await world.changed(sending)
    if not soon:
        await until(lambda: world.put_keys.count("card:CLR-42-001:1") == 2)
    await everything_put(world, 2)
    await world.changed(reply_settled(sending, "confirmed", None))
    await everything_put(world, 3)
    assert world.put_keys.count("card:CLR-42-001:1") == (2 if soon else 3)


async def everything_put(world: Sorting, seq: int) -> None:
    """Returns once what came until now is in its lane: `seq` is the number of another question that comes last."""
    await world.changed(record(seq=seq))
    await until(lambda: f"card:CLR-42-{seq:03}:1" in world.put_keys)
