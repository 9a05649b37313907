"""Delivery as the bot builds it, on a real ledger and storage; a Slack that follows a script takes what is posted."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bot.routing import Audience, Audiences
from bot.settings.load import parse_settings
from bot.show.delivery import Delivery
from bot.show.desired import Desired, DesiredState, Drawn, Rollups
from bot.show.lanes import Again, Done, NotYet
from bot.show.messages import Fresh, MessageRow, Messages, owe_card
from bot.show.messenger import Messenger
from bot.slackapi import Never, Outcome, Post, Sent
from bot.storage.ledger import DatabaseLedger
from bot.views.render import RenderedMessage
from core.clarification import Clarification
from core.clock import ConcurrencyLimit
from core.escalation import NewIncident
from core.index import Index
from core.ledger import OfIssue
from core.records import Book
from core.router import Router
from tests.kit.builders import SLA
from tests.kit.clocks import ManualClock
from tests.unit.bot.judges import RENDERER
from workspace.seed import APP_TOKEN, BOT_TOKEN

CHANNEL, FALLBACK = "C0AGENTS", "C0FALLBACK"


@dataclass
class Slack:
    """Keeps what is posted; `script` gives what comes of the next calls, and whether they took effect."""

    clock: ManualClock
    script: list[tuple[Outcome | None, bool]] = field(default_factory=list)
    there: dict[tuple[str, str], Post] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    lookup: Outcome | None = None

    def _next(self) -> tuple[Outcome | None, bool]:
        return self.script.pop(0) if self.script else (None, True)

    async def post(self, channel: str, post: Post) -> Outcome:
        self.calls.append(f"post {channel}")
        outcome, lands = self._next()
        ts = f"{self.clock.now().timestamp():.0f}.{len(self.calls):06d}"
        if lands:
            self.there[channel, ts] = post
        has_root = (channel, post.thread_ts) in self.there
        return outcome or Sent(channel, ts, post.thread_ts if has_root else None)

    async def update(self, channel: str, ts: str, post: Post) -> Outcome:
        self.calls.append(f"update {channel}")
        outcome, lands = self._next()
        if outcome is None and (channel, ts) not in self.there:
            return Never("message_not_found", "message")
        if lands:
            self.there[channel, ts] = post
        return outcome or Sent(channel, ts)

    async def find(
        self, channel: str, thread_ts: str | None, matches: Mapping[str, Any], known: set[str]
    ) -> Outcome | None:
        self.calls.append(f"find {channel}")
        if self.lookup is not None:
            return self.lookup
        wanted = matches["event_payload"].items()
        for (where, ts), post in self.there.items():
            same = where == channel and ts not in known and post.thread_ts == thread_ts
            if same and wanted <= post.metadata["event_payload"].items():
                return Sent(where, ts, thread_ts)
        return None

    async def ours(
        self, channel: str, thread_ts: str | None, since: float
    ) -> dict[str, Mapping[str, Any]] | Outcome:
        self.calls.append(f"ours {channel}")
        if self.lookup is not None:
            return self.lookup
        return {
            ts: post.metadata
            for (where, ts), post in self.there.items()
            if (where, post.thread_ts) == (channel, thread_ts) and float(ts) > since
        }

    async def remove(self, channel: str, ts: str, instead: str) -> Outcome:
        self.calls.append(f"remove {channel}")
        outcome, lands = self._next()
        if lands:
            del self.there[channel, ts]
        return outcome or Sent(channel, ts)

    def live(self) -> list[Post]:
        """The messages that carry controls."""
        return [d for d in self.there.values() if any(b["type"] == "actions" for b in d.blocks)]


class Room:
    """`raised` are the incidents."""

    def __init__(
        self,
        ledger: DatabaseLedger,
        folder: Path,
        *,
        audiences: Audiences | None = None,
        fallback: str = FALLBACK,
        clock: ManualClock | None = None,
        slack: Slack | None = None,
    ) -> None:
        self.ledger, self.store, self.clock = ledger, ledger.store, clock or ManualClock()
        self.slack, self.index = slack or Slack(self.clock), Index()
        self.raised: list[NewIncident] = []
        self.awaited: set[str] = set()  # questions whose callers wait
        configured = parse_settings(
            f'[slack]\nfallback_channel = "{fallback}"\n[[routes]]\nchannel = "{CHANNEL}"\n',
            file=folder / "clarify.toml",
            environ={"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN},
        )
        self.audiences = audiences or Audiences(configured)
        self.ledger.owes = partial(owe_card, self.audiences)
        self.messages = Messages(self.store)
        self.router = Router(self.ledger, self.clock, SLA, self.took)
        self.rollups = Rollups(self.index, self.audiences)
        self.desired = DesiredState(
            ledger=self.ledger,
            index=self.index,
            messages=self.messages,
            rollups=self.rollups,
            renderer=RENDERER,
            audiences=self.audiences,
            clock=self.clock,
            draw=self._drawn,
        )
        gateway: Any = self.slack
        self.messenger = Messenger(
            settings=configured,
            gateway=gateway,
            messages=self.messages,
            desired=self.desired,
            ledger=self.ledger,
            raise_incident=self._raise,
            on_outcome=self._on_outcome,
            acts=ConcurrencyLimit(self.clock, 1, 1.0),
            clock=self.clock,
            rng=random.Random(1),  # noqa: S311 - jitter
        )

        self.delivery = Delivery(
            index=self.index,
            audiences=self.audiences,
            messages=self.messages,
            rollups=self.rollups,
            lanes=self.messenger.lanes,
            is_awaited=self.awaited.__contains__,
            clock=self.clock,
        )

    def took(self, record: Clarification) -> None:
        """A record is now like this."""
        self.index.put(record)
        self.rollups.update(record)

    async def put(self, *records: Clarification) -> None:
        """Into the ledger, as somebody else writes them."""
        for record in records:
            await self.ledger.transact(OfIssue(record.issue_number), partial(_put, record))

    async def session(self, producer: str = "planner", thread_ts: str | None = None) -> None:
        """The session of the builders' questions, with its thread if it has one."""
        channel = self.audiences.route_of(Audience("retirement-planner")).channel
        await self.store.run(
            """insert into sessions (producer, session_id, agent_id, issue, channel, thread_ts)
               values (:producer, 'sess_1', 'retirement-planner', 42, :channel, :ts)""",
            producer=producer,
            channel=channel if thread_ts else None,
            ts=thread_ts,
        )

    async def card(self, number: int = 1) -> str:
        """A card that is wanted; its key."""
        name = f"CLR-42-{number:03d}"
        fresh = Fresh(f"card:{name}:1", "card", CHANNEL, name, 1, "planner", "sess_1")
        await self.messages.want([fresh])
        return fresh.key

    async def deliver(self, key: str) -> Done | Again | NotYet:
        return await self.messenger.deliver(key)

    async def until_done(self, key: str) -> list[Done | Again]:
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

    async def row(self, key: str) -> MessageRow:
        row = await self.messages.get(key)
        assert row is not None
        return row

    async def wanted(self, key: str) -> Desired:
        """What a message should be now."""
        desired = await self.desired.of(await self.row(key))
        assert isinstance(desired, Desired)
        return desired

    async def close(self) -> None:
        await self.messenger.lanes.close()

    async def _drawn(self, row: MessageRow) -> Drawn:
        return Drawn(RenderedMessage("It is escalated", []), final=False, needed=True)

    async def _raise(self, incident: NewIncident) -> None:
        self.raised.append(incident)

    async def _on_outcome(self, row: MessageRow, outcome: str, note: str | None) -> None:
        """Nobody waits for it."""


def _put(record: Clarification, book: Book) -> None:
    book.put(record)
