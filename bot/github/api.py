"""Calls GitHub's REST API for issues, comments and labels: one request at a time, at the pace that GitHub asks for.

Every method raises NotNow (try again) or Refused (do not).

Sources: docs.github.com, "REST API endpoints for issue comments" and "… for labels"; "Rate limits for the REST API" and
"Best practices for using the REST API": a second between writes; `retry-after` and `x-ratelimit-reset` obeyed; after a
limit without either, a minute, and longer each time.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from bot.http import ANSWER_TIMEOUT, NETWORK, NOT_SENT, retry_after, words
from bot.settings.model import GithubSettings
from core.clock import Clock, Pace, backoff

_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_PER_PAGE = 50  # comments may be long
_MOST_PAGES = 1000
_MAX_BODY = 32 * 1024 * 1024
_FIRST_TROUBLE, _LONGEST_TROUBLE = 2.0, 300.0  # seconds, after failures; half of it by chance
_FIRST_LIMIT, _LONGEST_LIMIT = 60.0, 3600.0  # the same, after limits that do not say how long
_LONGEST_RESET = 7200.0  # a window of GitHub's limits is an hour; our clocks may differ
_RESET_MARGIN = 1.0
_SHORTEST = 0.001
_REFUSALS = {
    403: "the token may not do this",
    404: "there is no such issue, or the token cannot see it",
    410: "the issue was deleted, or the repository has no issues",
    422: "GitHub finds it invalid",
}


class NotNow(Exception):
    """The request failed for now: try again after `seconds`, or as the caller sees fit.

    `everybody`: make no other request before that, either. `unsure`: it may have been done.
    """

    def __init__(
        self, why: str, seconds: float | None = None, *, everybody: bool = False, unsure: bool = False
    ) -> None:
        super().__init__(why)
        self.seconds = seconds
        self.everybody = everybody
        self.unsure = unsure


class Limited(NotNow):
    """A rate limit was hit; the request was certainly not done."""

    def __init__(self, why: str, seconds: float | None) -> None:
        super().__init__(why, seconds, everybody=True)


class Refused(Exception):
    """The request was refused, and would be refused again; it was certainly not done."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Label:
    """A label, as created if the repository has none of that name. GitHub limits descriptions to 100 characters."""

    name: str
    color: str
    description: str


def patience(failures: int, rng: random.Random) -> float:
    """Seconds before the try that follows so many failures."""
    return backoff(failures, first=_FIRST_TROUBLE, longest=_LONGEST_TROUBLE, spread=0.5, chance=rng.random())


class GithubApi:
    """Issues, comments and labels of one repository. `http` sends the token and follows no redirects.

    One caller at a time.
    """

    def __init__(
        self, http: httpx.AsyncClient, settings: GithubSettings, clock: Clock, rng: random.Random
    ) -> None:
        self._http = http
        self._base = settings.api_url.rstrip("/")
        self._repo = f"{self._base}/repos/{settings.repo}"
        self._clock = clock
        self._rng = rng
        self._pace = Pace(settings.comments_per_second)
        self._limits = 0  # in a row

    async def marked(self, issue: int, key_in: Callable[[str], str | None]) -> dict[str, int]:
        """The comments of an issue in which `key_in` finds a key: the key, and the comment's id."""
        found: dict[str, int] = {}
        async for answer in self._pages(f"{self._issue(issue)}/comments?per_page={_PER_PAGE}"):
            for each in _listed(answer):
                comment, key = _id_of(each), key_in(str(each.get("body") or ""))
                if comment is not None and key is not None:
                    found.setdefault(key, comment)
        return found

    async def comment(self, issue: int, body: str, begin: Callable[[], Awaitable[None]]) -> int:
        """Post a comment; returns its id. `begin` is called right before it is sent."""
        await self._turn(write=True)
        await begin()
        made = _json(await self._asked("POST", f"{self._issue(issue)}/comments", {"body": body}))
        if (comment := _id_of(made)) is None:
            raise NotNow("GitHub's answer names no comment", unsure=True)
        return comment

    async def labels(self, issue: int) -> frozenset[str]:
        """The names of an issue's labels, of which GitHub allows 100."""
        answer = await self._ask("GET", f"{self._issue(issue)}/labels?per_page=100")
        return frozenset(str(each["name"]).casefold() for each in _listed(answer))

    async def add_labels(self, issue: int, names: list[str]) -> None:
        await self._ask("POST", f"{self._issue(issue)}/labels", {"labels": names})

    async def remove_label(self, issue: int, name: str) -> None:
        """One that is not there is as well as removed."""
        try:
            await self._ask("DELETE", f"{self._issue(issue)}/labels/{quote(name, safe='')}")
        except Refused as refused:
            if refused.status != 404:
                raise

    async def create_label(self, label: Label) -> None:
        """One that is there stays as it is."""
        try:
            await self._ask("POST", f"{self._repo}/labels", asdict(label))
        except Refused as refused:
            if refused.status != 422:
                raise

    def _issue(self, issue: int) -> str:
        return f"{self._repo}/issues/{issue}"

    async def _pages(self, first: str) -> AsyncIterator[_Answer]:
        url: str | None = first
        for _ in range(_MOST_PAGES):
            if url is None:
                return
            answer = await self._ask("GET", url)
            yield answer
            url = self._next_page(answer)
        raise NotNow("GitHub has more pages than can be looked through")

    def _next_page(self, answer: _Answer) -> str | None:
        """Only of the same host: the token must not travel."""
        if answer.next is None or urlsplit(answer.next)[:2] == urlsplit(self._base)[:2]:
            return answer.next
        raise NotNow("the next page is said to be on another host")

    async def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> _Answer:
        await self._turn(write=method != "GET")
        return await self._asked(method, url, body)

    async def _turn(self, *, write: bool) -> None:
        """Returns when a request may go. A write that begins now holds up the next one."""
        while (wait := self._pace.wait(self._clock.steady(), post=write)) > 0:
            await self._clock.sleep(max(wait, _SHORTEST))
        if write:
            self._pace.posted(self._clock.steady())

    async def _asked(self, method: str, url: str, body: dict[str, Any] | None) -> _Answer:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                answer = await self._sent(method, url, body)
        except NETWORK as error:
            trouble = NotNow(words(error), everybody=True, unsure=not isinstance(error, NOT_SENT))
            self._pause_for(trouble)
            raise trouble from error
        now = self._clock.now()
        problem = _problem(answer, now)
        if isinstance(problem, NotNow):
            self._pause_for(problem)
        else:
            self._limits = 0
            self._pace.went_well()
            if (wait := _spent(answer.headers, now)) is not None:
                self._pause(wait)
        if problem is not None:
            raise problem
        return answer

    async def _sent(self, method: str, url: str, body: dict[str, Any] | None) -> _Answer:
        content = None if body is None else json.dumps(body).encode()
        headers = _HEADERS if content is None else {**_HEADERS, "Content-Type": "application/json"}
        request = self._http.build_request(method, url, content=content, headers=headers)
        response = await self._http.send(request, stream=True)
        try:
            found = bytearray()
            async for chunk in response.aiter_raw():
                found += chunk
                if len(found) > _MAX_BODY:
                    raise httpx.RemoteProtocolError("more than we read")
            following = response.links.get("next", {}).get("url")
            return _Answer(response.status_code, response.headers, bytes(found), following)
        finally:
            await response.aclose()

    def _pause_for(self, trouble: NotNow) -> None:
        """If a failure concerns all requests, wait before the next: as long as GitHub said, else longer each time."""
        if not trouble.everybody:
            return
        wait = trouble.seconds
        if isinstance(trouble, Limited):
            if wait is None:
                wait = backoff(self._limits, first=_FIRST_LIMIT, longest=_LONGEST_LIMIT)
                wait += self._rng.uniform(0, _FIRST_LIMIT / 10)
            self._limits += 1
        self._pause(patience(self._pace.failures, self._rng) if wait is None else wait)

    def _pause(self, seconds: float) -> None:
        self._pace.refused(self._clock.steady(), seconds)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A whole answer of GitHub; `next` is the address of the next page."""

    status: int
    headers: httpx.Headers = field(repr=False)
    body: bytes = field(repr=False)
    next: str | None = field(repr=False)


def _problem(answer: _Answer, now: datetime) -> NotNow | Refused | None:
    """What went wrong, if anything. In our own words: GitHub's may quote what was sent."""
    status, said = answer.status, f"HTTP {answer.status}"
    if 200 <= status < 300:
        return None
    if status == 429 or (status == 403 and _is_limit(answer)):
        return Limited(f"asked too much of GitHub ({said})", _limit_wait(answer.headers, now))
    if status == 408 or status >= 500:
        seconds = retry_after(answer.headers, now)
        return NotNow(f"trouble on GitHub's side ({said})", seconds, unsure=True)
    if status == 401:  # of every issue alike: thousands would be told so, one by one
        return NotNow(f"the token is not valid, or not any more ({said})", everybody=True)
    if 300 <= status < 400:
        return Refused(f"the repository or the issue has moved ({said}); see github.repo", status)
    return Refused(f"{_REFUSALS.get(status, 'GitHub refuses it')} ({said})", status)


def _is_limit(answer: _Answer) -> bool:
    """Whether an answer is a rate limit; 403 may be one too, shown by a header or only in the text."""
    if "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining", "").strip() == "0":
        return True
    said = answer.body[:2000].lower()
    return b"rate limit" in said or b"abuse" in said


def _limit_wait(headers: httpx.Headers, now: datetime) -> float | None:
    """Seconds that GitHub asks to wait, by either header; None: it does not say."""
    waits = [wait for wait in (retry_after(headers, now), _spent(headers, now)) if wait is not None]
    return max(waits, default=None)


def _spent(headers: httpx.Headers, now: datetime) -> float | None:
    """Seconds until anything may be asked again, where this answer used up what was left."""
    if headers.get("x-ratelimit-remaining", "").strip() != "0":
        return None
    reset = headers.get("x-ratelimit-reset", "").strip()
    if not (reset.isascii() and reset.isdigit() and len(reset) <= 12):
        return None
    return min(_LONGEST_RESET, max(0.0, int(reset) - now.timestamp()) + _RESET_MARGIN)


def _listed(answer: _Answer) -> list[dict[str, Any]]:
    found = _json(answer)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _id_of(thing: object) -> int | None:
    found = thing.get("id") if isinstance(thing, dict) else None
    return found if isinstance(found, int) else None


def _json(answer: _Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise NotNow("what came is not JSON", unsure=True) from error
