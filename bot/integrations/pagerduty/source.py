"""An on-call source: PagerDuty's `GET /oncalls`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from bot.api import AHEAD, BEFORE, HttpClient, Shift, SourceError, Timetable, whole
from bot.integrations.pagerduty.settings import PagerDutySettings

_PAGE, _MOST_PAGES = 100, 20
_PATIENCE = 30.0  # seconds


class PagerDutySource:
    """A schedule, read with a token."""

    title = "PagerDuty"
    advice = "add the schedule to an escalation policy; without one it puts no one on call"

    def __init__(self, settings: PagerDutySettings, token: str) -> None:
        self.variable, self._settings, self._token = settings.token_env, settings, token
        self.origin = hashlib.sha256(f"{settings.api_url}\n{settings.schedule}".encode()).hexdigest()

    async def read(self, at: datetime) -> Timetable:
        """As `OnCallSource.read`: each shift once, even if the schedule is in several policies."""
        found: dict[Shift, None] = {}
        faults: list[str] = []
        async with asyncio.timeout(_PATIENCE):
            entries = await self._entries(at)
        for number, entry in enumerate(entries, 1):
            try:
                shift = _shift(entry, at)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                faults.append(f"entry {number}: it is malformed ({type(error).__name__})")
                continue
            if shift.ends > at - BEFORE and shift.begins < at + AHEAD:
                found[shift] = None
        if faults and not any(each.is_at(at) for each in found):
            raise SourceError(f"it does not say who is on call now ({faults[0]})")
        return Timetable(tuple(sorted(found, key=lambda shift: shift.begins)), tuple(faults))

    async def _entries(self, at: datetime) -> list[Any]:
        """All pages of the response. Follows no redirects: they would get the token."""
        headers = {
            "Authorization": f"Token token={self._token}",
            "Accept": "application/vnd.pagerduty+json;version=2",
        }
        entries: list[Any] = []
        offset = 0
        async with HttpClient(None) as client:
            for _ in range(_MOST_PAGES):
                query: dict[str, str | int] = {
                    "schedule_ids[]": self._settings.schedule,
                    "include[]": "users",
                    "since": (at - BEFORE).isoformat(timespec="seconds"),
                    "until": (at + AHEAD).isoformat(timespec="seconds"),
                    "limit": _PAGE,
                    "offset": offset,
                }
                url = f"{self._settings.api_url}/oncalls?{urlencode(query)}"
                async with client.stream("GET", url, headers=headers) as response:
                    refused = f"the token in {self.variable} is not allowed to read the schedule"
                    body = await whole(response, refused)
                try:
                    page = json.loads(body)
                    entries += page["oncalls"]
                except (ValueError, KeyError, TypeError):
                    raise SourceError("its response is not an on-call schedule") from None
                if not page.get("more"):
                    break
                limit = page.get("limit")  # may be less than we asked for
                offset += limit if isinstance(limit, int) and limit > 0 else _PAGE
        return entries


def _shift(entry: Mapping[str, Any], at: datetime) -> Shift:
    begins = datetime.fromisoformat(entry["start"]) if entry.get("start") else at - BEFORE
    ends = datetime.fromisoformat(entry["end"]) if entry.get("end") else at + AHEAD
    person = entry["user"]
    names = (person.get("name"), person.get("summary"))
    return Shift(
        begins.astimezone(UTC),
        ends.astimezone(UTC),
        email=str(person.get("email") or "").lower(),
        names=tuple(dict.fromkeys(str(name) for name in names if name)),
    )
