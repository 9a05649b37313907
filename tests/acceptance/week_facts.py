"""What a simulated week left behind, in true time: the log of pages as stored, ledgers and posts as others saw them."""

from __future__ import annotations

import bisect
import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from tests.acceptance.week_plan import MINUTE, POLICIES
from tests.acceptance.week_story import Change
from tests.acceptance.week_world import World


@dataclass(frozen=True)
class Entry:
    """One line of the log of pages. `at` is true time, `wall` and `until` are the bot's clock, in seconds."""

    at: float
    wall: float
    what: str
    step: int | None
    user: str | None
    by: str | None
    until: float | None
    page: int | None


@dataclass(frozen=True)
class Sending:
    page: int
    via: str
    target: str
    message: str | None
    state: str
    mentions: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """What is on its way to people at `at`, in true time, and about what."""

    id: int
    at: float
    policy: str | None
    step: int


@dataclass(frozen=True)
class Incident:
    id: int
    key: str
    kind: str
    policy: str | None
    clarification: str | None
    log: tuple[Entry, ...]


@dataclass(frozen=True)
class Quiet:
    """Somebody has it, and nobody is paged: until that is `ended`, or `over` by the clock."""

    since: float
    ended: float
    over: float

    def covers(self, at: float) -> bool:
        return self.since <= at < min(self.ended, self.over)


TAKE_TIMEOUTS = {policy.name: policy.take_timeout for policy in POLICIES}


class Walls:
    """What the bot's clock said when, in seconds since 1970."""

    def __init__(self, beginning: datetime, jumps: list[tuple[float, float]]) -> None:
        self._since = [0.0, *(at for at, _ in jumps)]
        self._base = [beginning.timestamp()]
        for _, by in jumps:
            self._base.append(self._base[-1] + by)
        self.jumps = jumps

    def at(self, true: float) -> float:
        return true + self._base[bisect.bisect_right(self._since, true) - 1]

    def reach(self, wall: float, since: float) -> float:
        """When the clock first says `wall` or later, from `since` on."""
        first = bisect.bisect_right(self._since, since) - 1
        for index in range(first, len(self._since)):
            begins = max(since, self._since[index])
            ends = self._since[index + 1] if index + 1 < len(self._since) else float("inf")
            if (at := max(begins, wall - self._base[index])) < ends:
                return at
        raise AssertionError("the last stretch has no end")

    def falls_to(self, wall: float, since: float) -> float:
        """When the clock is first put back to `wall` or before; never: inf."""
        return next(
            (at for at, by in self.jumps if at > since and by < 0 and self.at(at) <= wall), float("inf")
        )

    def jumped(self, since: float, until: float) -> bool:
        return any(since <= at <= until for at, _ in self.jumps)


class Lives:
    def __init__(self, lives: list[tuple[float, float]]) -> None:
        self._lives = lives
        self.end = lives[-1][1]

    def settled(self, due: float, slack: float) -> float:
        """When what is due must be done: `slack` later, of the first life that lasts long enough."""
        for begins, ends in self._lives:
            at = max(begins, due) + slack
            if at <= ends:
                return at
        return float("inf")

    def resumed(self, at: float) -> float:
        """When what was on its way at `at` goes out: in a later life, if that one ended right then."""
        for (begins, ends), (again, _) in pairwise(self._lives):
            if begins <= at <= ends < at + 20:
                at = again
        return at

    def calm(self, due: float, slack: float, bad: list[tuple[float, float]]) -> float:
        """The same, where nothing can be done in `bad` stretches."""
        while (at := self.settled(due, slack)) != float("inf"):
            ends = [end for begin, end in bad if begin < at and end > at - slack]
            if not ends:
                return at
            due = max(ends)
        return at


class Facts:
    def __init__(self, world: World) -> None:
        self.world = world
        self.plan, self.outer, self.story = world.plan, world.outer, world.story
        self.walls = Walls(world.plan.beginning, world.story.jumps)
        self.lives = Lives(world.story.lives)
        self.changes: dict[str, list[Change]] = world.story.changes
        db = sqlite3.connect(world.storage)
        db.row_factory = sqlite3.Row
        try:
            self._read(db)
        finally:
            db.close()

    def _read(self, db: sqlite3.Connection) -> None:
        seen = {(row["what"], row["id"]): row["at"] for row in db.execute("select * from week_seen")}
        logs: dict[int, list[Entry]] = defaultdict(list)
        for row in db.execute("select * from incident_log order by seq"):
            if (entry := json.loads(row["entry"]))["what"] != "listed":
                given = (entry.get(name) for name in ("step", "user", "by", "until", "page"))
                logs[row["incident"]].append(
                    Entry(seen["log", row["seq"]], entry["at"], entry["what"], *given)
                )
        self.incidents = {
            row["id"]: Incident(
                row["id"],
                row["key"],
                row["kind"],
                row["policy"],
                row["clarification"],
                tuple(logs[row["id"]]),
            )
            for row in db.execute("select * from incidents")
        }
        rows = db.execute(
            """select page, 'slack' as via, target, key, body, ts, failed, '' as state from messages where page is not null
               union all select page, via, target, null, body, null, null, state from sendings order by page"""
        )
        late = {
            entry.page for each in self.incidents.values() for entry in each.log if entry.what == "failed"
        }
        self.pages: list[Page] = []
        # By page, all that it names; and that of which a step of their policy led to it.
        self.items: dict[int, list[int]] = {}
        self.due_items: dict[int, list[int]] = {}
        self.sendings: dict[int, list[Sending]] = defaultdict(list)
        for row in rows:
            number, body = row["page"], json.loads(row["body"])
            about = body.get("page", body)
            if number not in self.items:
                policy, step = self.incidents[about["items"][0][0]].policy, about["items"][0][1]
                self.pages.append(Page(number, seen["page", number], policy, step or 0))
                self.items[number] = [each for each, _ in about["items"]]
                self.due_items[number] = [each for each, step in about["items"] if step is not None]
            state = row["state"]
            if row["via"] == "slack" and row["ts"] is not None:
                state = "sent"
            elif row["via"] == "slack":
                state = (
                    ("late" if number in late else "wanted")
                    if row["failed"] is None
                    else ("failed" if number in late else "dropped")
                )
            self.sendings[number].append(
                Sending(number, row["via"], row["target"], row["key"], state, tuple(about["mentions"]))
            )
        self.page_at = {page.id: page.at for page in self.pages}
        # By channel and ts: the card's name in the storage.
        self.cards = {
            (row["channel"], row["ts"]): row["key"]
            for row in db.execute(
                "select key, channel, ts from messages where kind = 'card' and ts is not null"
            )
        }

    def escalations(self, changes: list[Change]) -> list[tuple[Change, float]]:
        """Each escalation of a clarification, with when it was over."""
        found: list[tuple[Change, float]] = []
        for index, now in enumerate(changes):
            before = changes[index - 1] if index else None
            if now.status != "escalated" or (before is not None and before.escalated_at == now.escalated_at):
                continue
            after = (
                each.at
                for each in changes[index:]
                if each.escalated_at != now.escalated_at or each.status != "escalated"
            )
            found.append((now, next(after, self.lives.end)))
        return found

    def quiets(self, incident: Incident) -> list[Quiet]:
        """How long each of those who took or snoozed it had it."""
        found: list[Quiet] = []
        lasts = TAKE_TIMEOUTS.get(incident.policy or "", 15 * MINUTE)
        for index, entry in enumerate(incident.log):
            if entry.what not in {"taken", "snoozed"}:
                continue
            until = entry.until or entry.wall + lasts
            who = entry.user if entry.what == "taken" else entry.by
            ended = (
                each.at
                for each in incident.log[index + 1 :]
                if each.what in {"began", "handed", "taken", "snoozed"}
                or (each.what == "not mine" and each.by == who)
            )
            # A clock that is put back so far would make it longer than anybody meant.
            far = until - 2 * (until - entry.wall)
            over = min(self.walls.reach(until, entry.at), self.walls.falls_to(far, entry.at))
            found.append(Quiet(entry.at, next(ended, float("inf")), over))
        return found

    def by_key(self) -> dict[str, Incident]:
        return {each.key: each for each in self.incidents.values()}
