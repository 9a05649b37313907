"""Mirrors clarifications to their GitHub issues: a comment for each entry, labels while one is open.

`GithubSync` is a consumer of the feed: it stores which issues are to be brought in line. For each it compares the records with
what it posted, and posts what is missing, one step at a time; issues take turns. After a crash it continues with what is still
owed, and finds its comments by their marker.

It makes one request at a time, at GitHub's pace. Sources: docs.github.com, "REST API endpoints for issue comments" and
"… for labels"; "Rate limits for the REST API" and "Best practices for using the REST API": a second between writes; obey
`retry-after` and `x-ratelimit-reset`; after a limit without either wait a minute, and longer each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import structlog

from bot.api import (
    ANSWER_TIMEOUT,
    NETWORK,
    NOT_SENT,
    Acting,
    Backoff,
    CheckResult,
    Delivered,
    Host,
    HttpAnswer,
    HttpClient,
    Outbox,
    Outcome,
    RecordChange,
    RetryLater,
    Store,
    Subject,
    Tx,
    clip,
    line,
    plain,
    retry_after,
    right,
    size,
    words,
    wrong,
)
from bot.integrations.github.settings import GithubSettings
from core.clarification import Clarification, Entry, parse_id
from core.clock import Clock, Pace, backoff, iso
from core.ledger import ABANDONED, RECEIPT, told_in
from core.ledgerfiles import FIRST_RESERVED
from core.records import is_forgotten

_log = structlog.get_logger("clarify.github")
_CATCHES_UP = timedelta(days=30)  # for what ended while the repository was not configured


@dataclass(frozen=True, slots=True)
class Label:
    """A label to create if the repository has none of that name. GitHub limits descriptions to 100 characters."""

    name: str
    color: str
    description: str


ACTIVE, STALE = "clarification:active", "clarification:stale"
LABELS = {
    label.name: label
    for label in (
        Label(ACTIVE, "1d76db", "An agent's question about this issue is open"),
        Label(STALE, "d93f0b", "An agent's question about this issue has waited too long, or was escalated"),
    )
}
# GitHub ends a request after 10 s. So after this time a comment with an unknown outcome exists or never will.
SETTLED_AFTER = 15.0
# GitHub also answers 404 for what the token may not see.
_MAY_BE_THE_TOKEN = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
_BACKOFF = Backoff(first=2.0, longest=300.0, spread=0.5)


@dataclass(eq=False)
class GithubSync:
    """The consumer of the feed that brings issues in line with their records. Run `run` until cancelled.

    The storage holds what was posted.
    """

    settings: GithubSettings
    host: Host
    gather: float = 0.0

    def __post_init__(self) -> None:
        host = self.host
        self.name, self.store, self.clock = host.name, host.store, host.clock
        self._memory = _Memory(host.store, self.settings.repo.casefold())
        self._http = HttpClient(host.secret(self.settings.token_env))
        self._api = GithubApi(self._http, self.settings, host.clock, host.rng, host.store.acting)
        self._listed: set[int] = set()  # issues whose comments we know
        self._created: set[str] = set()  # labels
        self._reported: dict[int, str] = {}  # why GitHub refused an issue
        self.outbox = Outbox(
            host.name,
            self._attempt,
            _BACKOFF,
            clock=host.clock,
            rng=host.rng,
            on_outcome=partial(host.on_outcome, "github"),
        )

    def wants(self, change: RecordChange) -> bool:
        return _is_on_github(parse_id(change.clarification)[0]) and _shows(change.what)

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        if not _is_on_github(record.issue_number):  # it begins again with what is open
            return None
        self._memory.owe(tx, record.issue_number, change.place.seq)
        return partial(self.outbox.put, record.issue_number)

    def begin_anew(self, tx: Tx) -> None:
        self._memory.begin_anew(tx)

    async def load(self) -> None:
        """Loads which issues are to be brought in line. A repository that was not mirrored to until now gets what is open, and
        what it missed if that was before.
        """
        begin = partial(self._memory.begin, now=self.clock.now())
        self._since, owed = await self.store.write(begin)
        for issue in owed:
            self.outbox.put(issue)

    async def run(self) -> None:
        """Mirrors until cancelled."""
        async with self._http:
            await self.outbox.run()

    async def _attempt(self, issue: int) -> Outcome | None:
        if (change := await self._memory.owed(issue)) is None:
            return None
        try:
            return Delivered(more=not await self._reconcile(issue, change))
        except NotNow as trouble:
            after = max(trouble.seconds or 0.0, SETTLED_AFTER if trouble.unsure else 0.0)
            return RetryLater(str(trouble), after=after, party_wide=trouble.party_wide)

    async def _reconcile(self, issue: int, change: int) -> bool:
        """Takes one step for an issue; returns whether nothing is left to do, or GitHub refuses it."""
        records = (await self.host.ledger.read(issue)).records
        tampered = await self.host.ledger.tampered_among(records)
        shown = await self._memory.shown(issue)
        intact = [each for each in records if each.id not in tampered]
        plan = await asyncio.to_thread(planned, intact, shown.posted | shown.begun.keys(), self._since)
        missing = next((due for due in plan.comments if due.key not in shown.posted), None)
        labels = None
        try:
            if missing is not None:
                await (self._post(issue, missing) if issue in self._listed else self._look_up(issue, shown))
                return False
            labels = await self._label(issue, plan.labels, shown)
        except GithubRefused as refused:
            self._report(issue, str(refused))
            if refused.status in _MAY_BE_THE_TOKEN:
                return True  # it stays owed: the next start may have another
        else:
            self._reported.pop(issue, None)
        await self._memory.settled(issue, change, labels)
        return True

    async def _look_up(self, issue: int, shown: _ShownIssue) -> None:
        """Finds comments of an earlier run, or of a post with an unknown outcome, on the issue."""
        now = self.clock.now().timestamp()
        wait = max(shown.begun.values(), default=0.0) + SETTLED_AFTER - now
        if 0.0 < wait <= SETTLED_AFTER:  # a longer wait means that the clock was set back
            raise NotNow("whether a comment arrived is not settled yet", wait)
        # A key holds a digest of its entry, so only we can have written it.
        for key, comment in (await self._api.marked(issue, key_in)).items():
            if key not in shown.posted:
                await self._memory.posted(issue, key, comment, now)
        self._listed.add(issue)

    async def _post(self, issue: int, due: Due) -> None:
        body = comment_of(due, self.settings.mention)
        now = self.clock.now().timestamp()
        self._listed.discard(issue)  # until the outcome is known
        try:
            made = await self._api.comment(issue, body, partial(self._begin, issue, due.key))
        except (NotNow, GithubRefused) as trouble:
            if not (isinstance(trouble, NotNow) and trouble.unsure):
                await self._memory.never_began(issue, due.key)
                self._listed.add(issue)
            raise
        await self._memory.posted(issue, due.key, made, now)
        self._listed.add(issue)
        _log.info("mirrored to GitHub", issue=issue, entry=due.key, comment=made)

    async def _begin(self, issue: int, key: str) -> None:
        await self._memory.begin_post(issue, key, self.clock.now().timestamp())

    async def _label(self, issue: int, wanted: frozenset[str], shown: _ShownIssue) -> frozenset[str] | None:
        """Returns our labels that the issue has now; None: nothing of ours was ever there."""
        has = shown.labels
        if has is None:
            if not (wanted or shown.posted):
                return None
            has = await self._api.labels(issue) & LABELS.keys()
        if has != wanted:
            await self._memory.begin_labels(issue)
            await self._change_labels(issue, sorted(wanted - has), sorted(has - wanted))
        return wanted

    async def _change_labels(self, issue: int, add: list[str], drop: list[str]) -> None:
        for name in drop:
            await self._api.remove_label(issue, name)
        if not add:
            return
        for name in add:
            await self._create(name)
        await self._api.add_labels(issue, add)

    async def _create(self, name: str) -> None:
        """Creates a label with our colour. If the token may not, GitHub picks a colour when we add it."""
        if name in self._created:
            return
        try:
            await self._api.create_label(LABELS[name])
        except GithubRefused as refused:
            _log.warning("cannot create a label on GitHub", label=name, reason=str(refused))
        self._created.add(name)

    def _report(self, issue: int, reason: str) -> None:
        if self._reported.get(issue) != reason:
            self._reported[issue] = reason
            _log.error("GitHub issue skipped until it changes", issue=issue, reason=reason)


def _is_on_github(issue: int) -> bool:
    """Whether its number is not reserved for sessions."""
    return 0 < issue < FIRST_RESERVED


def _shows(what: str) -> bool:
    """Whether a change may mean another comment, or another label."""
    return any(name != RECEIPT for name, _ in told_in(what)) or f"{ABANDONED}/" in what


# What an issue should show (pure)


@dataclass(frozen=True, slots=True)
class Due:
    """An entry that should be a comment; `key` identifies it in the comment's marker."""

    record: Clarification
    key: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Plan:
    """What an issue should show: `comments` in order, and our `labels`."""

    comments: tuple[Due, ...]
    labels: frozenset[str]


def planned(records: Sequence[Clarification], known: Collection[str], since: datetime) -> Plan:
    """Returns what an issue should show.

    Args:
        records: all records of its ledger.
        known: the keys of comments that were posted, or begun.
        since: records closed before this are not mirrored, unless begun.
    """
    comments = []
    for record in records:
        if is_forgotten(record):  # its entries are others now, and say nothing
            continue
        entries = entries_of(record)
        if record.is_open or record.last_change >= since or any(due.key in known for due in entries):
            comments += entries
    return Plan(tuple(comments), _labels_for(records))


def _labels_for(records: Sequence[Clarification]) -> frozenset[str]:
    """Returns `active` while a question is open, and also `stale` while one was nudged, is stale or escalated."""
    waiting = [record for record in records if record.is_open]
    late = any(record.nudges or record.status != "pending" for record in waiting)
    return frozenset((ACTIVE,) if waiting else ()) | frozenset((STALE,) if late else ())


def entries_of(record: Clarification) -> list[Due]:
    """Returns each entry of the thread with the key of its comment.

    The key depends on the entry's content, author and time, not its position: others may write the file, too. Equal
    entries are counted.
    """
    seen: dict[str, int] = {}
    found = []
    for entry in record.thread:
        facts = [entry.round, entry.type, entry.from_, iso(entry.timestamp), entry.body]
        content = json.dumps(facts)
        count = seen[content] = seen.get(content, 0) + 1
        digest = hashlib.sha256(f"{count} {content}".encode()).hexdigest()[:16]
        found.append(Due(record, f"{record.id} r{entry.round} {entry.type} {digest}", entry))
    return found


# An entry as a comment (pure). Agent text stands in a fenced code block or a code span, where it can't mention, link,
# refer, or be HTML or an image. Sources: GitHub Flavored Markdown Spec, 4.5 and 6.3; docs.github.com, "Basic writing and
# formatting syntax".

LIMIT = 65_536  # characters of a comment; GitHub answers 422 to more
_NAME, _TOPIC = 80, 200
_LONGEST_RUN = 64  # a longer run of backticks becomes look-alikes: it would need two fences of its length
_RUN = re.compile(f"`{{{_LONGEST_RUN},}}")
_MARKER = re.compile(r"<!-- clarify-bot: (CLR-\d{1,15}-\d{3,15} r-?\d+ [a-z]{1,20} [0-9a-f]{16}) -->")
_NOTE = "_Cut: the beginning is shown; the whole, {count:,} characters, is in the ledger._"
_NO_TEXT = "(no words)"


def key_in(body: str) -> str | None:
    """Returns the key of a comment. Only a marker at its beginning counts: agents may write one elsewhere."""
    found = _MARKER.match(body)
    return found.group(1) if found else None


def comment_of(due: Due, mention: str | None = None) -> str:
    """Returns the comment's body, at most `LIMIT` characters. `mention`: whom to mention in an escalation."""
    record, entry = due.record, due.entry
    lines = [f"<!-- clarify-bot: {due.key} -->", _heading(record, entry)]
    if entry.type == "question" and line(record.topic):
        lines.append(f"Topic: {_code_span(record.topic, _TOPIC)}")
    if entry.type == "escalation" and mention:
        lines.append(f"{mention}: this needs a person.")
    text = plain(entry.body)
    return _with_body("\n\n".join(lines), text.strip("\n") if text.strip() else _NO_TEXT)


def _heading(record: Clarification, entry: Entry) -> str:
    who = _code_span(entry.from_, _NAME * 4)
    place = f"`{record.id}`, round {entry.round} of {record.max_rounds}"
    if entry.type == "question":
        waits = "" if record.blocking else ", not blocking"
        return f"**Question** from {who} to {_code_span(record.to, _NAME)} · {place}{waits}"
    names = {"answer": "Answer", "resolution": "Resolution", "escalation": "Escalation"}
    return f"**{names[entry.type]}** by {who} · {place}"


def _code_span(text: str, limit: int) -> str:
    """Returns agent text on one line, in a code span with more backticks than any run in it."""
    text = clip(_RUN.sub(_lookalikes, line(text)), limit) or "?"
    ticks = "`" * (_longest_run(text) + 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _with_body(head: str, body: str) -> str:
    body = _RUN.sub(_lookalikes, body)
    whole = _fenced(head, body)
    if size(whole) <= LIMIT:
        return whole
    note = "\n\n" + _NOTE.format(count=size(body))
    room = LIMIT - (size(whole) - size(body)) - len(note)
    return _fenced(head, clip(body, room)) + note


def _fenced(head: str, body: str) -> str:
    fence = "`" * max(3, _longest_run(body) + 1)
    return f"{head}\n\n{fence}text\n{body}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _lookalikes(match: re.Match[str]) -> str:
    return "ˋ" * len(match[0])


# The storage


@dataclass(frozen=True, slots=True)
class _ShownIssue:
    """What an issue shows, as far as we know: the entries that were `posted`, those whose outcome is unknown with the time when
    they were `begun` (seconds since 1970), and our `labels` (None: unknown).
    """

    posted: frozenset[str]
    begun: Mapping[str, float]
    labels: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class _Memory:
    """Stores what was mirrored to one repository, `owner/name`.

    Methods raise StorageUnavailable if the storage cannot be used.
    """

    store: Store
    repo: str

    def begin(self, tx: Tx, *, now: datetime) -> tuple[datetime, list[int]]:
        """Returns when mirroring to the repository began, and the issues that are owed. If another repository was mirrored to
        until now, or changes were missed, these are also the issues with open questions, and those that were left unfinished.
        """
        same = {"repo": self.repo}
        tx.run(
            """insert into github_repositories (repo, since) values (:repo, :now)
               on conflict (repo) do nothing""",
            now=now.timestamp(),
            **same,
        )
        (row,) = tx.rows("select since from github_repositories where repo = :repo", **same)
        since = datetime.fromtimestamp(row["since"], UTC)
        if tx.run(
            "update github_repositories set is_current = 1 where repo = :repo and is_current = 0", **same
        ):
            tx.run("update github_repositories set is_current = 0 where repo <> :repo", **same)
            tx.run(
                """insert into github_owed (repo, issue, change)
                   select :repo, issue, 0 from clarifications
                   where issue between 1 and :last and (closed is null or closed >= :since)
                   union select repo, issue, 0 from github_issues
                   where repo = :repo and (labels is null or labels <> '[]')
                   on conflict (repo, issue) do nothing""",
                last=FIRST_RESERVED - 1,
                since=max(since, now - _CATCHES_UP).timestamp(),
                **same,
            )
        rows = tx.rows("select issue from github_owed where repo = :repo order by issue", **same)
        return since, [row["issue"] for row in rows]

    def begin_anew(self, tx: Tx) -> None:
        """Notes that changes were missed."""
        tx.run("update github_repositories set is_current = 0")

    def owe(self, tx: Tx, issue: int, change: int) -> None:
        """Notes that an issue is to be brought in line with a change."""
        tx.run(
            """insert into github_owed (repo, issue, change) values (:repo, :issue, :change)
               on conflict (repo, issue) do update set change = excluded.change""",
            repo=self.repo,
            issue=issue,
            change=change,
        )

    async def owed(self, issue: int) -> int | None:
        """Returns the newest change that an issue is to be brought in line with; None: it is in line."""
        row = await self.store.read_one(
            "select change from github_owed where repo = :repo and issue = :issue",
            repo=self.repo,
            issue=issue,
        )
        return None if row is None else row["change"]

    async def settled(self, issue: int, change: int, labels: Collection[str] | None) -> None:
        """Notes that an issue is in line with a change, or never will be. `labels`: ours that it has, if that is known."""

        def work(tx: Tx) -> None:
            if labels is not None:
                self._label(tx, issue, labels)
            tx.run(
                "delete from github_owed where repo = :repo and issue = :issue and change = :change",
                repo=self.repo,
                issue=issue,
                change=change,
            )

        await self.store.write(work)

    async def shown(self, issue: int) -> _ShownIssue:
        rows = await self.store.read(
            "select entry, begun_at, comment from github_comments where repo = :repo and issue = :issue",
            repo=self.repo,
            issue=issue,
        )
        row = await self.store.read_one(
            "select labels from github_issues where repo = :repo and issue = :issue",
            repo=self.repo,
            issue=issue,
        )
        labels = None if row is None or row["labels"] is None else frozenset(json.loads(row["labels"]))
        posted = frozenset(each["entry"] for each in rows if each["comment"] is not None)
        begun = {each["entry"]: each["begun_at"] for each in rows if each["comment"] is None}
        return _ShownIssue(posted, begun, labels)

    async def begin_post(self, issue: int, entry: str, now: float) -> None:
        """Notes that a comment is about to be posted."""
        await self.store.run(
            """insert into github_comments (repo, issue, entry, begun_at) values (:repo, :issue, :entry, :now)
               on conflict (repo, issue, entry) do update set begun_at = excluded.begun_at, comment = null""",
            repo=self.repo,
            issue=issue,
            entry=entry,
            now=now,
        )

    async def posted(self, issue: int, entry: str, comment: int, now: float) -> None:
        """Notes a comment's id."""
        await self.store.run(
            """insert into github_comments (repo, issue, entry, begun_at, comment)
               values (:repo, :issue, :entry, :now, :comment)
               on conflict (repo, issue, entry) do update set comment = excluded.comment""",
            repo=self.repo,
            issue=issue,
            entry=entry,
            now=now,
            comment=comment,
        )

    async def never_began(self, issue: int, entry: str) -> None:
        """Notes that a begun comment does not exist and never will."""
        await self.store.run(
            """delete from github_comments
               where repo = :repo and issue = :issue and entry = :entry and comment is null""",
            repo=self.repo,
            issue=issue,
            entry=entry,
        )

    async def begin_labels(self, issue: int) -> None:
        """Notes that our labels on an issue are about to change: until it is settled, they are unknown."""
        await self.store.write(partial(self._label, issue=issue, labels=None))

    def _label(self, tx: Tx, issue: int, labels: Collection[str] | None) -> None:
        tx.run(
            """insert into github_issues (repo, issue, labels) values (:repo, :issue, :labels)
               on conflict (repo, issue) do update set labels = excluded.labels""",
            repo=self.repo,
            issue=issue,
            labels=None if labels is None else json.dumps(sorted(labels)),
        )


def comments_about(tx: Tx, subject: Subject) -> tuple[str, ...]:
    """Returns the issues, as `owner/name#42`, that have comments about `subject`."""
    rows = tx.rows(
        "select repo, issue, entry from github_comments where comment is not null order by repo, issue"
    )
    return tuple(
        dict.fromkeys(f"{row['repo']}#{row['issue']}" for row in rows if subject.is_in(row["entry"]))
    )


# GitHub's REST API


_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_PER_PAGE = 50  # comments may be long
_MOST_PAGES = 1000
_MAX_BODY = 32 * 1024 * 1024
_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')  # of a Link header
_FIRST_LIMIT, _LONGEST_LIMIT = 60.0, 3600.0  # seconds to wait after a limit that does not say how long
_LONGEST_RESET = 7200.0  # GitHub's limits reset every hour; our clocks may differ
_RESET_MARGIN = 1.0
_SHORTEST = 0.001
_REFUSALS = {
    403: "the token may not do this",
    404: "there is no such issue, or the token cannot see it",
    410: "the issue was deleted, or the repository has no issues",
    422: "GitHub finds it invalid",
}


class NotNow(Exception):
    """The request failed: try again after `seconds`, or when the caller decides.

    `party_wide`: hold back all other requests, too. `unsure`: GitHub may have executed it.
    """

    def __init__(
        self, why: str, seconds: float | None = None, *, party_wide: bool = False, unsure: bool = False
    ) -> None:
        super().__init__(why)
        self.seconds = seconds
        self.party_wide = party_wide
        self.unsure = unsure


class Limited(NotNow):
    """A rate limit; GitHub did not execute the request."""

    def __init__(self, why: str, seconds: float | None) -> None:
        super().__init__(why, seconds, party_wide=True)


class GithubRefused(Exception):
    """GitHub refused the request and would refuse it again."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


@dataclass(eq=False)
class GithubApi:
    """Calls GitHub about one repository's issues, for one caller at a time. `http` sends the token."""

    http: HttpClient
    settings: GithubSettings
    clock: Clock
    rng: random.Random
    acting: Acting

    def __post_init__(self) -> None:
        self._base = self.settings.api_url.rstrip("/")
        self._repo = f"{self._base}/repos/{self.settings.repo}"
        self._pace = Pace(self.settings.comments_per_second)
        self._limits = 0  # rate limits in a row

    async def marked(self, issue: int, key_in: Callable[[str], str | None]) -> dict[str, int]:
        """Returns the ids of an issue's comments by the key that `key_in` finds in them."""
        found: dict[str, int] = {}
        async for answer in self._pages(f"{self._issue(issue)}/comments?per_page={_PER_PAGE}"):
            for each in _objects(answer):
                comment, key = _id_of(each), key_in(str(each.get("body") or ""))
                if comment is not None and key is not None:
                    found.setdefault(key, comment)
        return found

    async def comment(self, issue: int, body: str, begin: Callable[[], Awaitable[None]]) -> int:
        """Posts a comment; returns its id. Calls `begin` right before the request."""
        await self._pause(write=True)
        await begin()
        made = _json(await self._send("POST", f"{self._issue(issue)}/comments", {"body": body}))
        if (comment := _id_of(made)) is None:
            raise NotNow("GitHub's answer names no comment", unsure=True)
        return comment

    async def labels(self, issue: int) -> frozenset[str]:
        """Returns the names of an issue's labels. GitHub allows 100."""
        answer = await self._request("GET", f"{self._issue(issue)}/labels?per_page=100")
        return frozenset(str(each["name"]).casefold() for each in _objects(answer))

    async def add_labels(self, issue: int, names: list[str]) -> None:
        await self._request("POST", f"{self._issue(issue)}/labels", {"labels": names})

    async def remove_label(self, issue: int, name: str) -> None:
        """Removes a label; succeeds if the issue does not have it."""
        try:
            await self._request("DELETE", f"{self._issue(issue)}/labels/{quote(name, safe='')}")
        except GithubRefused as refused:
            if refused.status != 404:
                raise

    async def create_label(self, label: Label) -> None:
        """Creates a label; keeps an existing one as it is."""
        try:
            await self._request("POST", f"{self._repo}/labels", asdict(label))
        except GithubRefused as refused:
            if refused.status != 422:
                raise

    def _issue(self, issue: int) -> str:
        return f"{self._repo}/issues/{issue}"

    async def _pages(self, first: str) -> AsyncIterator[HttpAnswer]:
        url: str | None = first
        for _ in range(_MOST_PAGES):
            if url is None:
                return
            answer = await self._request("GET", url)
            yield answer
            url = self._next_page(answer)
        raise NotNow("GitHub has more pages than can be looked through")

    def _next_page(self, answer: HttpAnswer) -> str | None:
        """Returns the next page's address, only on the same host: the token must not travel."""
        found = _NEXT.search(answer.headers.get("link", ""))
        if found is None:
            return None
        if urlsplit(found[1])[:2] == urlsplit(self._base)[:2]:
            return found[1]
        raise NotNow("the next page is said to be on another host")

    async def _request(self, method: str, url: str, body: dict[str, Any] | None = None) -> HttpAnswer:
        await self._pause(write=method != "GET")
        return await self._send(method, url, body)

    async def _pause(self, *, write: bool) -> None:
        """Waits until a request may be sent. A write also holds back the next one."""
        while (wait := self._pace.wait(self.clock.steady(), post=write)) > 0:
            await self.clock.sleep(max(wait, _SHORTEST))
        if write:
            self._pace.posted(self.clock.steady())

    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> HttpAnswer:
        try:
            async with self.acting(), asyncio.timeout(ANSWER_TIMEOUT):
                answer = await self.http.request(
                    method,
                    url,
                    None if body is None else json.dumps(body).encode(),
                    headers=_HEADERS,
                    most=_MAX_BODY,
                )
        except NETWORK as error:
            raise NotNow(words(error), party_wide=True, unsure=not isinstance(error, NOT_SENT)) from error
        now = self.clock.now()
        problem = _problem(answer, now)
        if isinstance(problem, Limited):
            if problem.seconds is None:
                chance = self.rng.uniform(0, _FIRST_LIMIT / 10)
                problem.seconds = backoff(self._limits, first=_FIRST_LIMIT, longest=_LONGEST_LIMIT) + chance
            self._limits += 1
        elif not isinstance(problem, NotNow):
            self._limits = 0
            if (wait := _reset_wait(answer.headers, now)) is not None:
                self._pace.refused(self.clock.steady(), wait)
        if problem is not None:
            raise problem
        return answer


def _problem(answer: HttpAnswer, now: datetime) -> NotNow | GithubRefused | None:
    """Returns what went wrong, or None. In our own words, as GitHub's may quote the request."""
    status, said = answer.status, f"HTTP {answer.status}"
    if 200 <= status < 300:
        return None
    if status == 429 or (status == 403 and _is_limit(answer)):
        return Limited(f"asked too much of GitHub ({said})", _limit_wait(answer.headers, now))
    if status == 408 or status >= 500:
        seconds = retry_after(answer.headers, now)
        return NotNow(f"trouble on GitHub's side ({said})", seconds, unsure=True)
    if status == 401:  # concerns all issues, so hold them all back
        return NotNow(f"the token is not valid, or not any more ({said})", party_wide=True)
    if 300 <= status < 400:
        return GithubRefused(f"the repository or the issue has moved ({said}); see github.repo", status)
    return GithubRefused(f"{_REFUSALS.get(status, 'GitHub refuses it')} ({said})", status)


def _is_limit(answer: HttpAnswer) -> bool:
    """Whether a 403 is a rate limit, according to a header or only its text."""
    if "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining", "").strip() == "0":
        return True
    said = answer.body[:2000].lower()
    return b"rate limit" in said or b"abuse" in said


def _limit_wait(headers: Mapping[str, str], now: datetime) -> float | None:
    """Returns the seconds that GitHub asks to wait, or None."""
    waits = [wait for wait in (retry_after(headers, now), _reset_wait(headers, now)) if wait is not None]
    return max(waits, default=None)


def _reset_wait(headers: Mapping[str, str], now: datetime) -> float | None:
    """Returns the seconds until the rate limit resets if this answer used it up, or None."""
    if headers.get("x-ratelimit-remaining", "").strip() != "0":
        return None
    reset = headers.get("x-ratelimit-reset", "").strip()
    if not (reset.isascii() and reset.isdigit() and len(reset) <= 12):
        return None
    return min(_LONGEST_RESET, max(0.0, int(reset) - now.timestamp()) + _RESET_MARGIN)


def _objects(answer: HttpAnswer) -> list[dict[str, Any]]:
    found = _json(answer)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _id_of(thing: object) -> int | None:
    found = thing.get("id") if isinstance(thing, dict) else None
    return found if isinstance(found, int) else None


def _json(answer: HttpAnswer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise NotNow("what came is not JSON", unsure=True) from error


async def check_repository(settings: GithubSettings, token: str) -> CheckResult:
    subject = "github.repo"
    try:
        async with HttpClient(token) as http:
            answer = await http.request(
                "GET",
                f"{settings.api_url}/repos/{settings.repo}",
                headers={"Accept": "application/vnd.github+json"},
            )
    except NETWORK as error:
        text = f"GitHub at {settings.api_url} cannot be reached: {words(error)}"
        return wrong(subject, text, "check the network and api_url")
    if answer.status != HTTPStatus.OK:
        fix = "check the name, and that the token may read and write its issues"
        return wrong(subject, f"GitHub answers {answer.status} for {settings.repo}", fix)
    return right(subject, f"{settings.repo} can be read with {settings.token_env}")
