"""What was mirrored to GitHub: the entries of clarifications that are comments there, and the labels of issues."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import NamedTuple

from bot.delivery.store import Store


class Post(NamedTuple):
    """A comment that was begun at `begun_at` (seconds since 1970); `comment` is its id once it is known."""

    begun_at: float
    comment: int | None


class Mirrored(NamedTuple):
    """What an issue shows, as far as we know; `posts` by entry, `labels` None where they are not known.

    `labelled`: whether labels of ours were ever set, or about to be.
    """

    posts: Mapping[str, Post]
    labels: frozenset[str] | None
    labelled: bool


class GithubMemory:
    """Of one repository, `owner/name`. Every method raises StorageUnavailable if nothing could be stored or read."""

    def __init__(self, store: Store, repo: str) -> None:
        self._store = store
        self._repo = repo.casefold()

    async def since(self, now: float) -> float:
        """Since when this repository is mirrored to; `now` if it begins now. Seconds since 1970."""
        await self._store.execute(
            "insert into github_repositories (repo, since) values (?, ?) on conflict do nothing",
            self._repo,
            now,
        )
        row = await self._store.read_one("select since from github_repositories where repo = ?", self._repo)
        return now if row is None else float(row["since"])

    async def author(self) -> int | None:
        """The account that our comments are by, if it is known from one of them."""
        row = await self._store.read_one("select author from github_repositories where repo = ?", self._repo)
        return None if row is None else row["author"]

    async def written_by(self, author: int) -> None:
        """A comment of ours turned out to be by this account."""
        await self._store.execute(
            "update github_repositories set author = ? where repo = ?", author, self._repo
        )

    async def searched(self) -> bool:
        """Whether it was looked for issues that have labels of ours from before."""
        row = await self._store.read_one(
            "select searched from github_repositories where repo = ?", self._repo
        )
        return row is not None and bool(row["searched"])

    async def found(self, issues: Collection[int]) -> None:
        """Those that have. What is known of them already stays."""

        def work(db: sqlite3.Connection) -> None:
            db.executemany(
                "insert into github_issues (repo, issue) values (?, ?) on conflict do nothing",
                [(self._repo, issue) for issue in issues],
            )
            db.execute("update github_repositories set searched = 1 where repo = ?", (self._repo,))

        await self._store.write(work)

    async def unsettled(self) -> list[int]:
        """The issues that have, or may have, a label of ours, or a comment whose outcome is not known."""
        rows = await self._store.read(
            """select issue from github_issues where repo = ? and (labels is null or labels <> '[]')
               union select issue from github_comments where repo = ? and comment is null order by issue""",
            self._repo,
            self._repo,
        )
        return [row["issue"] for row in rows]

    async def mirrored(self, issue: int) -> Mirrored:
        """What was mirrored to an issue."""
        posts = await self._store.read(
            "select entry, begun_at, comment from github_comments where repo = ? and issue = ?",
            self._repo,
            issue,
        )
        row = await self._store.read_one(
            "select labels from github_issues where repo = ? and issue = ?", self._repo, issue
        )
        known = None if row is None or row["labels"] is None else frozenset(json.loads(row["labels"]))
        by_entry = {each["entry"]: Post(each["begun_at"], each["comment"]) for each in posts}
        return Mirrored(by_entry, known, row is not None)

    async def begin(self, issue: int, entry: str, now: float) -> None:
        """A comment is about to be posted."""
        await self._store.execute(
            """insert into github_comments (repo, issue, entry, begun_at) values (?, ?, ?, ?)
               on conflict do update set begun_at = excluded.begun_at, comment = null""",
            self._repo,
            issue,
            entry,
            now,
        )

    async def posted(self, issue: int, entry: str, comment: int, now: float) -> None:
        """It is there, with this id."""
        await self._store.execute(
            """insert into github_comments (repo, issue, entry, begun_at, comment) values (?, ?, ?, ?, ?)
               on conflict do update set comment = excluded.comment""",
            self._repo,
            issue,
            entry,
            now,
            comment,
        )

    async def never_began(self, issue: int, entry: str) -> None:
        """It is certain that it is not there, and will not come."""
        await self._store.execute(
            "delete from github_comments where repo = ? and issue = ? and entry = ? and comment is null",
            self._repo,
            issue,
            entry,
        )

    async def labelled(self, issue: int, labels: Collection[str] | None) -> None:
        """The labels of ours that an issue has now; None: not known, until they are looked up."""
        await self._store.execute(
            """insert into github_issues (repo, issue, labels) values (?, ?, ?)
               on conflict do update set labels = excluded.labels""",
            self._repo,
            issue,
            None if labels is None else json.dumps(sorted(labels)),
        )
