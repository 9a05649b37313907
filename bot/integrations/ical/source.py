"""Fetches a calendar, and has it read in a process that can be killed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from urllib.parse import urljoin

from bot.api import (
    AHEAD,
    BEFORE,
    HttpClient,
    Shift,
    SourceError,
    Timetable,
    clean,
    is_loopback,
    is_web_address,
    read_environment,
    url_host,
    whole,
)
from bot.integrations.ical import reader

_ANEW = timedelta(days=1)
COMPUTING = 10
"""Seconds of computing that reading a calendar may take, or `_SLOWEST` times as long by the clock."""
_SLOWEST = 6
# The environment that Python needs to start: no secrets.
_PYTHONS = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "PYTHONTZPATH", "SYSTEMROOT"}
)
_PATIENCE = 30.0  # seconds
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class CalendarSource:
    """The calendar at the secret address in `variable`; `zone`: of whole days, and of times without a zone.

    What it said last is kept in memory: a calendar that did not change is not read again for a day.
    """

    title = "the calendar"
    advice = "share it with all details, and check that it is the right one; of GoAlert, use the feed of a whole schedule"

    def __init__(self, variable: str, address: str, zone: str) -> None:
        self.variable, self._address, self._zone = variable, address, zone
        self.origin = hashlib.sha256(f"{address}\n{zone}".encode()).hexdigest()
        self._etag: str | None = None
        self._digest = b""
        self._at: datetime | None = None  # when it was worked out
        self._shifts: Sequence[Shift] = ()
        self._left_out: Sequence[reader.LeftOut] = ()

    async def read(self, at: datetime) -> Timetable:
        """As `OnCallSource.read`. An event that cannot be read, and may put someone on call at `at`, is a fault of the source
        unless someone else is.
        """
        if self._at is None or not timedelta(0) <= at - self._at < _ANEW:
            self._etag, self._at = None, None
        async with asyncio.timeout(_PATIENCE):
            body = await self._fetch()
        digest = self._digest if body is None else hashlib.sha256(body).digest()
        if body is not None and (self._at is None or digest != self._digest):
            self._shifts, self._left_out = await _worked_out(body, self._zone, at - BEFORE, at + AHEAD)
            self._digest, self._at = digest, at
        hidden = [each for each in self._left_out if each.may_be(at)]
        if hidden and not any(each.is_at(at) for each in self._shifts):
            raise SourceError(f"it does not say who is on call now ({hidden[0]})")
        return Timetable(tuple(self._shifts), tuple(map(str, self._left_out)))

    async def _fetch(self) -> bytes | None:
        """The calendar; None: it did not change. Follows redirects to https only; from loopback also to loopback."""
        url = feed_url(self._address)
        if url is None:
            raise SourceError(f"{self.variable} is not set to a feed's address")
        headers = {"Accept": "text/calendar, */*;q=0.1"}
        if self._etag is not None:
            headers["If-None-Match"] = self._etag
        async with HttpClient(None) as client:
            for _ in range(_MOST_REDIRECTS + 1):
                async with client.stream("GET", url, headers=headers) as response:
                    if response.status in _REDIRECTS and "location" in response.headers:
                        url = _redirected(url, response.headers["location"])
                        continue
                    if response.status == HTTPStatus.NOT_MODIFIED and self._etag is not None:
                        return None
                    body = await whole(response, "the address may be out of date")
                    tag = response.headers.get("etag", "")
                    self._etag = tag if tag and tag.isprintable() else None  # it goes back as a header
                    return body
        raise SourceError("it redirects too many times")


def feed_url(value: str) -> str | None:
    """Returns the address of a calendar feed, or None if it is not one or would be fetched unencrypted."""
    url = re.sub(r"^webcals?://", "https://", value)
    if not is_web_address(url) or re.search(r"\s", url):
        return None
    return url if url.startswith("https://") or is_loopback(url_host(url)) else None


def _redirected(url: str, location: str) -> str:
    target = urljoin(url, location)
    here, there = is_loopback(url_host(url)), is_loopback(url_host(target))
    if feed_url(target) is None or (there and not here):
        raise SourceError("it redirects to an address without https or to this machine")
    return target


async def _worked_out(
    feed: bytes, zone: str, since: datetime, until: datetime
) -> tuple[Sequence[Shift], Sequence[reader.LeftOut]]:
    """Runs `reader.main` on a feed.

    Raises:
        SourceError: it cannot be read, or takes too long.
    """
    given = read_environment()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", reader.__file__),
        *(zone, since.isoformat(), until.isoformat(), str(COMPUTING)),
        env={name: given[name] for name in _PYTHONS & given.keys()}
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SLOWEST * COMPUTING):
            said, _ = await process.communicate(feed)
    except TimeoutError:
        raise SourceError(reader.TOO_MUCH) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status := process.returncode:
        failed = f"its reader exited with status {status}; see the log"
        raise SourceError(reader.TOO_MUCH if status < 0 else failed)
    told = json.loads(said)
    if "refused" in told:
        raise SourceError(clean(told["refused"]))
    shifts, left_out = map(Shift.from_json, told["shifts"]), map(reader.LeftOut.from_json, told["left_out"])
    return tuple(shifts), tuple(left_out)
