"""Finds decisions again: by words, by who decided, by agent, by time. The newest come first.

A search reads the whole table `decision_texts`, in a thread and on a connection of its own, so that neither the event loop
nor other reads wait for it.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bot.decisions.chain import claims_in
from bot.decisions.query import Search
from bot.errors import SlackRefusedError, StorageUnavailable
from bot.people.access import Person, in_time
from bot.people.directory import UNKNOWN_USER, People
from bot.storage import opening
from bot.storage.tx import LONGEST_LIST, Row, Tx, batches
from core.clock import Clock, FairLimit
from core.summary import DecidedBy, ListPage, PastDecision

PAGE = 8
_DECISIONS = "select seq, at from decision_texts"
_AT_ONCE = 2
_PATIENCE = 5.0  # seconds
_SLACK_NAME = re.compile(r"user:slack/[^/]*/([UW][A-Z0-9]+)")
_ESCAPE = "'\\'"
_AFTER_AGENT = "\t"  # between the agent's names and what was said, in the column `words`


@dataclass(frozen=True, slots=True)
class Sees:
    """What a person may see: decisions of these channels, and of the cards in their own direct messages."""

    user: str
    channels: AbstractSet[str] = frozenset()


# What the table holds


def folded(text: str) -> str:
    """Returns a text as it is searched: case, width and line breaks make no difference."""
    text = unicodedata.normalize("NFKC", text.encode(errors="replace").decode()).casefold()
    return " ".join(unicodedata.normalize("NFKC", text).replace("\0", " ").split())


def words_of(agent: Iterable[str | None], texts: Iterable[str | None]) -> str:
    """Returns the column `words`: the agent's id and name, then the question, the answer and other texts."""
    named, said = ("\n".join(dict.fromkeys(map(folded, filter(None, each)))) for each in (agent, texts))
    return f"{named}{_AFTER_AGENT}{said}"


def deciders_of(people: Iterable[DecidedBy]) -> str:
    """Returns the column `deciders`: names and Slack ids, each between spaces."""
    names = dict.fromkeys(folded(each) for who in people for each in (who.name, who.user) if each)
    return f" {'  '.join(names)} "


# Finding


def find(
    storage: Path,
    url: str | None,
    search: Search,
    now: datetime,
    *,
    sees: Sees | None = None,
    most: int,
    skip: int = 0,
) -> list[PastDecision]:
    """Returns the newest decisions that match, at most `most` after the first `skip`. Blocking.

    `storage`: SQLite's file, unless `url`, PostgreSQL's address, is given; whether a bot runs or not. `sees`: what may be
    found; None: everything.

    Raises:
        StorageUnavailable: it cannot be read, or no bot of this release has used it.
    """
    with opening.reading(storage, url) as tx:
        if tx is None:
            return []
        return _found(tx, search=search, now=now, sees=sees, most=most, skip=skip)


def _found(
    tx: Tx, *, search: Search, now: datetime, sees: Sees | None, most: int, skip: int
) -> list[PastDecision]:
    conditions, values = _conditions(search)
    if search.span is not None:
        conditions.append("at >= :since")
        values["since"] = (now - search.span).timestamp()
    if search.until is not None:
        conditions.append("at < :until")
        values["until"] = search.until.timestamp()
    rows: list[Row] = []
    for where, more in _visible(tx, sees):
        fits = " and ".join([*conditions, where])
        sql = f"{_DECISIONS} where {fits} order by at desc, seq desc limit :many"
        rows += tx.rows(sql, **values, **more, many=skip + most)
    newest = sorted(((row["at"], row["seq"]) for row in rows), reverse=True)[skip : skip + most]
    found = {
        row["seq"]: _decision(row)
        for some in batches(seq for _, seq in newest)
        for row in tx.rows(
            "select t.*, d.receipt from decision_texts t left join decisions d on d.seq = t.seq where t.seq in :some",
            some=some,
        )
    }
    return [found[seq] for _, seq in newest]


def _conditions(search: Search) -> tuple[list[str], dict[str, object]]:
    """Returns what a row must fulfil, as SQL."""
    values: dict[str, object] = {f"word{n}": f"%{_literal(each)}%" for n, each in enumerate(search.words)}
    if search.agent:
        values["agent"] = f"%{_literal(search.agent)}%{_AFTER_AGENT}%"
    conditions = [f"words like :{name} escape {_ESCAPE}" for name in values]
    if search.by:
        names = dict.fromkeys(_literal(each) for name in search.by for each in (name, f"user:{name}"))
        by = {f"by{n}": f"% {name} %" for n, name in enumerate(names)}
        conditions.append(f"({' or '.join(f'deciders like :{name} escape {_ESCAPE}' for name in by)})")
        values |= by
    return conditions, values


def _visible(tx: Tx, sees: Sees | None) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields conditions of what may be found, as SQL. No row fulfils two of them."""
    if sees is None:
        yield "1 = 1", {}
        return
    channels = sees.channels
    if len(channels) > LONGEST_LIST:  # hardly all of them have decisions
        rows = tx.rows("select distinct channel from decision_texts where recipient is null")
        channels = channels & {row["channel"] for row in rows}
    own = "recipient = :user or "
    for some in list(batches(channels)) or [[]]:
        yield f"({own}(recipient is null and channel in :channels))", {"user": sees.user, "channels": some}
        own = ""


def _literal(text: str) -> str:
    """Returns a text, folded, for `like`: nothing in it is a wildcard."""
    return re.sub(r"([\\%_])", r"\\\1", folded(text))


def _decision(row: Row) -> PastDecision:
    return PastDecision(
        clarification=row["clarification"],
        at=datetime.fromtimestamp(row["at"], UTC),
        agent=row["agent"],
        outcome=row["outcome"],
        decision=row["decision"],
        question=row["question"],
        answer=row["answer"] or "",
        by=_deciders(row),
        channel=row["channel"],
        ts=row["ts"],
    )


def _deciders(row: Row) -> tuple[DecidedBy, ...]:
    """Returns who decided: of an approval all who accepted, as its receipt says; without one, the last one."""
    name = row["decided_by"]
    in_slack = _SLACK_NAME.fullmatch(name or "")
    last = (DecidedBy(name, in_slack and in_slack[1]),) if name else ()
    if row["receipt"] is None:
        return last
    try:
        claims = claims_in(row["receipt"])
    except ValueError:
        return last
    all_ = [each for each in claims.get("deciders") or () if isinstance(each, dict) and each.get("by")]
    counted = (
        [each for each in all_ if each.get("decision") == "accept"] if row["decision"] == "accept" else []
    )
    return tuple(DecidedBy(str(each["by"]), each.get("user")) for each in counted or all_[-1:]) or last


@dataclass(kw_only=True, eq=False)
class DecisionSearch:
    """Searches for people in Slack: in the channels that they are in now, and in their own direct messages.

    `storage` and `url`: see `find`.
    """

    storage: Path
    url: str | None
    people: People
    clock: Clock
    _searches: FairLimit = field(default_factory=lambda: FairLimit(_AT_ONCE))

    async def page(self, search: Search, person: Person, number: int = 1) -> ListPage[PastDecision]:
        """Returns a page of what is found, or the first one if there is no such page any more. `total` is not counted.

        Raises:
            SlackError: Slack did not say which channels they are in, or who `by` is. Nothing was looked up.
            StorageUnavailable: the decisions cannot be read now.
        """
        sees = Sees(person.user, await in_time(person.deadline, self.people.channels_of(person.user)))
        search = search._replace(by=await in_time(person.deadline, self._names(search.by)))
        number = max(1, number)
        found = await self._found(search, sees, number)
        if not found and number > 1:
            number, found = 1, await self._found(search, sees, 1)
        return ListPage(tuple(found[:PAGE]), number, number + (len(found) > PAGE), 0)

    async def _names(self, by: tuple[str, ...]) -> tuple[str, ...]:
        """Adds the Slack id to an e-mail address, and the address to an id."""
        found = []
        for name in by:
            try:
                person = await self.people.named(name)
            except SlackRefusedError as error:
                if error.code not in UNKNOWN_USER:
                    raise
                continue
            found += [each for each in (person.id, person.email) if each]
        return (*by, *found)

    async def _found(self, search: Search, sees: Sees, number: int) -> list[PastDecision]:
        look = partial(
            find,
            self.storage,
            self.url,
            search,
            self.clock.now(),
            sees=sees,
            most=PAGE + 1,
            skip=(number - 1) * PAGE,
        )
        try:
            async with asyncio.timeout(_PATIENCE), self._searches.slot(sees.user):
                return await asyncio.to_thread(look)
        except TimeoutError:
            raise StorageUnavailable("The decisions could not be read in time.") from None
