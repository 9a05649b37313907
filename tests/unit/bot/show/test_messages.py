"""Where messages are, and under which web addresses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from bot.errors import SlackUnreachableError, StorageUnavailable
from bot.show import messages as module
from bot.show.messages import Fresh, Messages, Permalinks
from bot.storage.ledger import fill
from bot.storage.opening import open_storage
from bot.storage.store import Store
from tests.kit.builders import record
from tests.kit.databases import Server


@dataclass
class Slack:
    asked: list[tuple[str, str]] = field(default_factory=list)
    down: bool = False
    slow: bool = False

    async def permalink(self, channel: str, ts: str) -> str:
        self.asked.append((channel, ts))
        if self.slow:
            await asyncio.Event().wait()
        if self.down:
            raise SlackUnreachableError
        return f"https://slack.example/{channel}/{ts}"


async def _known(store: Store) -> None:
    """The record that messages are about."""
    await store.write(lambda tx: fill(tx, [record(1)], {}))


@pytest.fixture(autouse=True)
async def _recorded(store: Store) -> None:
    await _known(store)


async def carded(messages: Messages, round: int, ts: str | None) -> None:  # noqa: A002 - the protocol's word
    """A round's card, which is at `ts`."""
    key = f"card:CLR-1-001:{round}"
    await messages.want([Fresh(key, "card", "C1", "CLR-1-001", round)])
    row = await messages.get(key)
    assert row is not None
    if ts is not None:
        await messages.landed(row, "C1", ts, "d", final=False, opens_thread=False)


async def test_link_is_of_the_newest_card_and_asked_for_once(store: Store) -> None:
    messages, slack = Messages(store), Slack()
    for number, ts in ((2, "2.0"), (1, "1.0"), (3, None)):
        await carded(messages, number, ts)
    links = Permalinks(messages, slack.permalink)
    for _ in range(2):
        assert await links.links(["CLR-1-001", "CLR-1-002"]) == {"CLR-1-001": "https://slack.example/C1/2.0"}
    assert await links.link("CLR-1-002") is None
    assert slack.asked == [("C1", "2.0")]


async def test_trouble_is_no_link_and_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    messages, slack = Messages(store), Slack(down=True)
    await carded(messages, 1, "1.0")
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    links = Permalinks(messages, slack.permalink)
    assert await links.link("CLR-1-001") is None
    slack.down, slack.slow = False, True
    assert await links.link("CLR-1-001") is None
    slack.slow = False

    async def broken(*_: object, **__: object) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(store, "find", broken)
        assert await links.link("CLR-1-001") is None
    assert await links.link("CLR-1-001") == "https://slack.example/C1/1.0"


async def test_what_stands_where_a_post_is_on_its_way_is_waited_for(store: Store) -> None:
    messages = Messages(store)
    await carded(messages, 1, None)
    row = await messages.get("card:CLR-1-001:1")
    assert row is not None
    assert await messages.intend(row, "C1", None, 1.0, opens_thread=False)
    looking = asyncio.create_task(messages.landed_at("C1", "1.0"))
    assert await messages.landed_at("C2", "1.0") is None
    assert not looking.done()
    await carded(messages, 1, "1.0")
    found = await looking
    assert found is not None
    assert found.key == "card:CLR-1-001:1"


async def test_place_of_another_message_is_not_adopted(store: Store) -> None:
    messages = Messages(store)
    await carded(messages, 1, "1.0")
    await carded(messages, 2, None)
    row = await messages.get("card:CLR-1-001:2")
    assert row is not None
    assert await messages.intend(row, "C1", None, 1.0, opens_thread=False)
    begun = await messages.get(row.key)
    assert begun is not None
    await messages.adopt(begun, "1.0", "d")
    assert await messages.get(row.key) == begun
    assert messages.in_flight.any_in("C1"), "it is still looked for"


async def test_what_another_bot_is_posting_is_nothing_that_is_not_there(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK", 0.001)
    url = postgres_server.new()
    leader, follower = await open_storage(url), await open_storage(url)
    posting, looking = Messages(leader), Messages(follower)
    await leader.lead()
    await _known(leader)
    await carded(posting, 1, None)
    row = await posting.get("card:CLR-1-001:1")
    assert row is not None
    assert await posting.intend(row, "C1", None, 1.0, opens_thread=False)
    with pytest.raises(StorageUnavailable, match="Another bot is posting there"):
        await looking.landed_at("C1", "1.0")
    assert await looking.landed_at("C2", "1.0") is None
    with pytest.raises(StorageUnavailable):  # whoever leads next, before it has taken that up
        await Messages(leader).landed_at("C1", "1.0")
    await posting.landed(row, "C1", "1.0", "d", final=False, opens_thread=False)
    assert await looking.landed_at("C1", "1.0") == await posting.get(row.key)
    await follower.close()
    await leader.close()
