"""One Slack message brought in line: real ledger, storage and templates, and a Slack that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.delivery.lanes import Again, Done, NotYet
from bot.delivery.messages import Fresh, Messages, Row
from bot.delivery.messenger import LANDING, Messenger
from bot.delivery.rollups import Rollups
from bot.delivery.wishes import Wish, Wishes
from bot.errors import StorageUnavailable
from bot.routing import Audiences
from bot.slackapi import Draft, Later, Never, Outcome, Sent, Unknown
from bot.storage.store import Store
from bot.views.render import Renderer
from core.clarification import Answer
from core.index import Index, summarize
from core.ledger import FileLedger
from core.router import Router
from tests.kit.builders import ADE, SLA, ask
from tests.kit.clocks import START, ManualClock
from tests.unit.bot.slack.kit import settings

CHANNEL, FALLBACK = "C0AGENTS", "C0FALLBACK"
KEY = "card:CLR-42-001:1"


@dataclass
class Slack:
    """Keeps what is posted; `script` gives what comes of the next calls, `lands` whether they took effect."""

    clock: ManualClock
    script: list[tuple[Outcome | None, bool]] = field(default_factory=list)
    there: dict[tuple[str, str], Draft] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    lookup: Outcome | None = None
    dm: str | Later | Unknown | Never = "D1"

    def _next(self) -> tuple[Outcome | None, bool]:
        return self.script.pop(0) if self.script else (None, True)

    async def post(self, channel: str, draft: Draft) -> Outcome:
        self.calls.append(f"post {channel}")
        outcome, lands = self._next()
        ts = f"{self.clock.now().timestamp():.0f}.{len(self.calls):06d}"
        if lands:
            self.there[channel, ts] = draft
        return outcome or Sent(channel, ts)

    async def update(self, channel: str, ts: str, draft: Draft) -> Outcome:
        self.calls.append(f"update {channel}")
        outcome, lands = self._next()
        if outcome is None and (channel, ts) not in self.there:
            return Never("message_not_found", "message")
        if lands:
            self.there[channel, ts] = draft
        return outcome or Sent(channel, ts)

    async def open_dm(self, user: str) -> str | Later | Unknown | Never:
        self.calls.append(f"open {user}")
        return self.dm

    async def find(
        self, channel: str, thread_ts: str | None, matches: Mapping[str, Any], known: set[str]
    ) -> Outcome | None:
        self.calls.append(f"find {channel}")
        if self.lookup is not None:
            return self.lookup
        wanted = matches["event_payload"].items()
        for (where, ts), draft in self.there.items():
            same = where == channel and ts not in known and draft.thread_ts == thread_ts
            if same and wanted <= draft.metadata["event_payload"].items():
                return Sent(where, ts)
        return None

    def live(self) -> list[Draft]:
        """The messages that carry controls."""
        return [d for d in self.there.values() if any(b["type"] == "actions" for b in d.blocks)]


@dataclass
class World:
    slack: Slack
    clock: ManualClock
    router: Router
    messages: Messages
    messenger: Messenger
    ledger: FileLedger
    store: Store
    unplaceable: list[tuple[str, str]]
    fallback: list[str]
    held: set[str]

    async def open(self) -> None:
        await self.router.open(42, ask(kinds=("yes_no",), expires_at=START + timedelta(hours=1)))
        await self.store.run(
            "insert into sessions (producer, session_id, agent_id, issue) values ('planner', 'sess_1', 'a', 42)"
        )
        await self.messages.want([Fresh(KEY, "card", CHANNEL, "CLR-42-001", 1, "planner", "sess_1")])

    async def answer(self) -> None:
        await self.router.answer("CLR-42-001", lambda _: Answer(response=True, label="Yes"), ADE, START)

    async def deliver(self, key: str = KEY) -> Done | Again | NotYet:
        return await self.messenger.deliver(key)

    async def until_done(self, key: str = KEY) -> list[Done | Again]:
        """Deliver as a lane does, in no time; at most 20 tries."""
        results: list[Done | Again] = []
        for _ in range(20):
            last = await self.deliver(key)
            assert not isinstance(last, NotYet)
            results.append(last)
            if isinstance(last, Done):
                return results
            await self.clock.advance(last.seconds if last.seconds is not None else 1.0)
        raise AssertionError(f"never done: {results[-3:]}, {self.slack.calls[-5:]}")

    async def row(self, key: str = KEY) -> Row:
        row = await self.messages.get(key)
        assert row is not None
        return row


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


@pytest.fixture
async def world(store: Store, clock: ManualClock, tmp_path: Path, renderer: Renderer) -> AsyncIterator[World]:
    ledger, index = FileLedger(tmp_path), Index()
    audiences = Audiences(settings(tmp_path))
    rollups = Rollups(index, audiences)
    messages, slack = Messages(store), Slack(clock)
    router = Router(ledger, clock, SLA, lambda record: index.put(summarize(record)))
    unplaceable: list[tuple[str, str]] = []
    fallback = [FALLBACK]
    held: set[str] = set()

    async def elsewhere(row: Row, code: str) -> bool:
        unplaceable.append((row.target, code))
        if not fallback:
            return False
        await messages.leave_thread(row.producer or "", row.session_id or "")
        await messages.move(row.key, fallback.pop())
        return True

    async def landed(row: Row, wish: Wish) -> None:
        pass

    messenger = Messenger(
        gateway=slack,  # type: ignore[arg-type]
        messages=messages,
        wishes=Wishes(ledger, messages, rollups, renderer, audiences, clock=clock),
        clock=clock,
        unplaceable=elsewhere,
        landed=landed,
        may_post=lambda kind: kind not in held,
    )
    yield World(slack, clock, router, messages, messenger, ledger, store, unplaceable, fallback, held)
    ledger.close()


async def test_card_is_posted_once_and_opens_the_thread(world: World) -> None:
    await world.open()
    assert await world.deliver() == Done(posted=True)
    assert await world.deliver() == Done()
    assert world.slack.calls == [f"post {CHANNEL}"]
    (draft,) = world.slack.live()
    assert draft.metadata == {
        "event_type": "clarify_card",
        "event_payload": {"clarification": "CLR-42-001", "revision": 1},
    }
    thread = await world.messages.thread_of("planner", "sess_1")
    assert thread is not None
    assert (thread.channel, thread.ts) == (CHANNEL, (await world.row()).ts)


async def test_card_follows_its_clarification_and_loses_its_controls(world: World) -> None:
    await world.open()
    await world.deliver()
    await world.answer()
    assert await world.deliver() == Done()
    assert world.slack.live() == []
    await world.router.settle_reply("CLR-42-001", "rpl_1", "confirmed", resolve=True)
    await world.deliver()
    assert (await world.row()).final
    assert world.slack.calls == [f"post {CHANNEL}", f"update {CHANNEL}", f"update {CHANNEL}"]


async def test_answered_before_it_was_posted_is_shown_without_controls(world: World) -> None:
    await world.open()
    await world.answer()
    await world.deliver()
    assert world.slack.live() == []
    assert len(world.slack.there) == 1


async def test_unknown_outcome_that_landed_is_found_not_posted_twice(world: World) -> None:
    await world.open()
    world.slack.script = [(Unknown("timeout"), True)]
    await world.until_done()
    assert len(world.slack.there) == 1
    assert world.slack.calls.count(f"post {CHANNEL}") == 1
    row = await world.row()
    assert (CHANNEL, row.ts) in world.slack.there
    assert row.intent_at is None


async def test_found_post_is_brought_up_to_date(world: World) -> None:
    """It was answered while the outcome was unknown: what was found still has its controls."""
    await world.open()
    world.slack.script = [(Unknown("timeout"), True)]
    await world.deliver()
    await world.answer()
    await world.until_done()
    assert len(world.slack.there) == 1
    assert world.slack.live() == [], "controls stayed live after the answer"


async def test_found_post_of_a_settled_one_is_brought_up_to_date(world: World) -> None:
    await world.open()
    world.slack.script = [(Unknown("timeout"), True)]
    await world.deliver()
    await world.answer()
    await world.router.settle_reply("CLR-42-001", "rpl_1", "confirmed", resolve=True)
    await world.until_done()
    assert world.slack.live() == []
    assert (await world.row()).final


async def test_unknown_outcome_that_did_not_land_is_repeated_after_the_margin(world: World) -> None:
    await world.open()
    world.slack.script = [(Unknown("timeout"), False)]
    results = await world.until_done()
    assert results[-1] == Done(posted=True)
    assert len(world.slack.there) == 1
    assert (world.clock.now() - START).total_seconds() >= LANDING
    first, *looks, last = world.slack.calls
    assert (first, last) == (f"post {CHANNEL}",) * 2
    assert set(looks) == {f"find {CHANNEL}"}


async def test_late_landing_within_the_margin_is_found(world: World) -> None:
    await world.open()
    world.slack.script = [(Unknown("timeout"), False)]
    await world.deliver()
    await world.clock.advance(3)
    assert isinstance(await world.deliver(), Again)
    draft = Draft(
        "x",
        [],
        {"event_type": "clarify_card", "event_payload": {"clarification": "CLR-42-001", "revision": 1}},
    )
    world.slack.there[CHANNEL, "1.000001"] = draft
    await world.clock.advance(1.5)
    await world.until_done()
    assert list(world.slack.there) == [(CHANNEL, "1.000001")]
    assert world.slack.calls.count(f"post {CHANNEL}") == 1


async def test_intent_of_a_killed_process_is_looked_up_first(world: World) -> None:
    await world.open()
    await world.messages.intend(KEY, CHANNEL, None, START.timestamp() - 3600)
    await world.deliver()
    assert world.slack.calls == [f"find {CHANNEL}", f"post {CHANNEL}"]


@pytest.mark.parametrize(
    ("lookup", "again"),
    [
        (Later("ratelimited", 7.0), Again(7.0, pause=True)),
        (Later("down", None), Again(None, pause=True)),
        (Unknown("timeout"), Again(1.0)),
        (Never("missing_scope", "app"), Again(30.0)),
    ],
)
async def test_lookup_that_fails_posts_nothing(world: World, lookup: Outcome, again: Again) -> None:
    await world.open()
    await world.messages.intend(KEY, CHANNEL, None, START.timestamp() - 3600)
    world.slack.lookup = lookup
    assert await world.deliver() == again
    assert world.slack.there == {}


async def test_second_card_of_a_session_waits_for_the_one_that_opens_the_thread(world: World) -> None:
    await world.open()
    await world.router.open(42, ask(reply_token="rpl_2", question="Other?", kinds=("yes_no",)))
    second = "card:CLR-42-002:1"
    await world.messages.want([Fresh(second, "card", CHANNEL, "CLR-42-002", 1, "planner", "sess_1")])
    world.slack.script = [(Unknown("timeout"), True)]
    await world.deliver()
    assert isinstance(await world.deliver(second), Again)
    await world.until_done()
    await world.until_done(second)
    drafts = list(world.slack.there.values())
    assert [draft.thread_ts for draft in drafts] == [None, (await world.row()).ts]
    assert [draft.broadcast for draft in drafts] == [False, True]


async def test_place_refused_goes_where_it_can_be_seen(world: World) -> None:
    await world.open()
    world.slack.script = [(Never("is_archived", "place"), False)]
    assert await world.deliver() == Done()
    assert world.unplaceable == [(CHANNEL, "is_archived")]
    await world.until_done()
    assert [channel for channel, _ in world.slack.there] == [FALLBACK]


async def test_no_place_at_all_is_given_up_not_tried_for_ever(world: World) -> None:
    await world.open()
    world.fallback.clear()
    world.slack.script = [(Never("is_archived", "place"), False)]
    await world.until_done()
    assert (await world.row()).failed == "is_archived"
    await world.deliver()
    assert len(world.slack.calls) == 1


async def test_content_refused_is_said_plainly_with_its_controls(world: World) -> None:
    await world.open()
    world.slack.script = [(Never("invalid_blocks", "content"), False)]
    await world.until_done()
    (draft,) = world.slack.live()
    assert [block["type"] for block in draft.blocks] == ["section", "actions"]
    assert "Deploy to production?" in draft.blocks[0]["text"]["text"]
    assert world.unplaceable == []


async def test_content_refused_also_plainly_pages(world: World) -> None:
    await world.open()
    world.fallback.clear()
    world.slack.script = [(Never("invalid_blocks", "content"), False)] * 2
    await world.until_done()
    assert world.unplaceable == [(CHANNEL, "invalid_blocks")]


@pytest.mark.parametrize("code", ["cannot_reply_to_message", "is_inactive", "message_not_found"])
async def test_message_refused_without_a_thread_is_not_tried_for_ever(world: World, code: str) -> None:
    await world.open()
    world.slack.script = [(Never(code, "message"), False)]
    await world.until_done()
    assert world.unplaceable == [(CHANNEL, code)]


async def test_deleted_card_is_posted_again_while_it_is_open(world: World) -> None:
    await world.open()
    await world.deliver()
    world.slack.there.clear()
    await world.messages.now_shows(KEY, "older", final=False)
    await world.until_done()
    assert len(world.slack.live()) == 1


async def test_deleted_card_is_left_alone_once_answered(world: World) -> None:
    await world.open()
    await world.deliver()
    world.slack.there.clear()
    await world.answer()
    await world.until_done()
    assert world.slack.there == {}
    assert (await world.row()).failed == "message_not_found"


async def test_deleted_root_makes_the_next_card_open_a_new_thread(world: World) -> None:
    await world.open()
    await world.deliver()
    world.slack.there.clear()
    await world.router.open(42, ask(reply_token="rpl_2", question="Other?", kinds=("yes_no",)))
    second = "card:CLR-42-002:1"
    await world.messages.want([Fresh(second, "card", CHANNEL, "CLR-42-002", 1, "planner", "sess_1")])
    world.slack.script = [(Never("thread_not_found", "message"), False)]
    await world.until_done(second)
    (draft,) = world.slack.live()
    assert draft.thread_ts is None
    thread = await world.messages.thread_of("planner", "sess_1")
    assert thread is not None
    assert thread.ts == (await world.row(second)).ts


async def test_two_at_work_on_one_message_make_one_post_and_know_where_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane posts and updates side by side: a refused update is posted anew while a post of the same message runs."""
    await world.open()
    await world.deliver()
    await world.router.open(42, ask(reply_token="rpl_2", question="Other?", kinds=("yes_no",)))
    second = "card:CLR-42-002:1"
    await world.messages.want([Fresh(second, "card", CHANNEL, "CLR-42-002", 1, "planner", "sess_1")])
    gone = Never("thread_not_found", "message")
    world.slack.script = [(gone, False), (gone, False)]
    post = world.slack.post

    async def slow(channel: str, draft: Draft) -> Outcome:
        outcome = await post(channel, draft)
        await asyncio.sleep(0.02 * len(world.slack.calls))  # the later one hears later
        return outcome

    monkeypatch.setattr(world.slack, "post", slow)
    await asyncio.gather(*(world.until_done(second) for _ in range(2)))
    there = [place for place, draft in world.slack.there.items() if "Other?" in draft.text]
    row = await world.row(second)
    assert there == [(row.channel, row.ts)]


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (Later("ratelimited", 3.0), Again(3.0, pause=True, posted=True)),
        (Later("down", None), Again(None, pause=True, posted=True)),
        (Unknown("timeout"), Again(1.0, posted=True)),
        (Never("token_revoked", "app"), Again(30.0)),
    ],
)
async def test_post_table(world: World, outcome: Outcome, again: Again) -> None:
    await world.open()
    world.slack.script = [(outcome, False)]
    assert await world.deliver() == again
    assert ((await world.row()).intent_at is not None) is isinstance(outcome, Unknown)


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (Later("ratelimited", 3.0), Again(3.0, pause=True)),
        (Unknown("timeout"), Again(None, pause=True)),
        (Never("token_revoked", "app"), Again(30.0)),
    ],
)
async def test_update_table(world: World, outcome: Outcome, again: Again) -> None:
    await world.open()
    await world.deliver()
    await world.answer()
    world.slack.script = [(outcome, False)]
    assert await world.deliver() == again
    await world.until_done()
    assert world.slack.live() == []
    assert len(world.slack.there) == 1


async def page(world: World, target: str) -> str:
    body = {"text": "Wake up", "blocks": [], "needed": True}
    await world.messages.want([Fresh("page:1", "page", target, body=body, wanted="page")])
    return "page:1"


async def test_page_goes_to_a_person_by_direct_message_once(world: World) -> None:
    key = await page(world, "U0ONCALL")
    await world.until_done(key)
    await world.until_done(key)
    assert world.slack.calls == ["open U0ONCALL", "post D1"]
    assert (await world.row(key)).final


async def test_page_to_somebody_who_cannot_be_written_to_is_given_up(world: World) -> None:
    key = await page(world, "U0GONE")
    world.fallback.clear()
    world.slack.dm = Never("user_disabled", "place")
    await world.until_done(key)
    assert (await world.row(key)).failed == "user_disabled"


async def test_unwanted_keys_and_lost_records_are_done(world: World) -> None:
    assert await world.deliver("card:CLR-9-001:1") == Done()
    await world.open()
    world.ledger.path(42).unlink()
    assert await world.deliver() == Done()
    assert world.slack.calls == []


async def test_storage_that_cannot_be_read_has_to_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.open()

    async def fail(*_: object, **__: object) -> None:
        raise StorageUnavailable

    monkeypatch.setattr(world.store, "read", fail)
    assert isinstance(await world.deliver(), Again)


async def test_what_is_held_is_looked_up_if_it_was_begun_and_posted_when_it_may_be(world: World) -> None:
    await world.open()
    world.held.add("card")
    assert await world.deliver() == NotYet()
    await world.messages.intend(KEY, CHANNEL, None, START.timestamp())
    await world.clock.advance(LANDING)
    assert await world.deliver() == NotYet()
    assert world.slack.calls == [f"find {CHANNEL}"]
    assert not world.messages.in_flight.any_in(CHANNEL)
    world.held.clear()
    await world.until_done()
    assert world.slack.calls == [f"find {CHANNEL}", f"post {CHANNEL}"]
