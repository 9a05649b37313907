"""How PagerDuty is asked who is on call, and what of its answers counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from bot.integrations.pagerduty.settings import PagerDutySettings
from bot.integrations.pagerduty.source import PagerDutySource
from bot.oncall.feeds import AHEAD, BEFORE, SourceError, Timetable
from tests.kit.served import served

NOW = datetime(2026, 10, 21, tzinfo=UTC)


def on_call(name: str, start: str | None, end: str | None, policy: str = "PPOLICY") -> dict[str, Any]:
    return {
        "escalation_policy": {"id": policy, "type": "escalation_policy_reference", "summary": "Platform"},
        "escalation_level": 1,
        "schedule": {"id": "PABC123", "type": "schedule_reference", "summary": "Platform"},
        "user": {
            "id": f"P{name.upper()}",
            "type": "user",
            "summary": f"{name} Example",
            "name": f"{name} Example",
            "email": f"{name}@Example.com",
            "time_zone": "Europe/Berlin",
        },
        "start": start,
        "end": end,
    }


class PagerDuty:
    """Answers with one page after the other, or with `other`."""

    def __init__(
        self, *pages: Any, limit: int = 100, other: Callable[[], web.Response] | None = None
    ) -> None:
        self.pages, self.limit, self.other = pages, limit, other
        self.asked: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        if self.other is not None:
            return self.other()
        number = int(request.query["offset"]) // self.limit
        more = number + 1 < len(self.pages)
        return web.json_response(
            {"oncalls": self.pages[number], "limit": self.limit, "offset": 0, "more": more, "total": None}
        )

    async def read(self) -> Timetable:
        async with served(self.answer) as url:
            settings = PagerDutySettings(schedule="PABC123", token_env="TOKEN", api_url=url)
            return await PagerDutySource(settings, "y_NbAkKc66ryYTWUXYEu").read(NOW)


@pytest.mark.parametrize("limit", [100, 1], ids=["as asked for", "shorter pages"])
async def test_pages_tell_each_shift_once(limit: int) -> None:
    pagerduty = PagerDuty(
        [
            on_call("Ben", "2026-10-27T09:00:00+01:00", "2026-11-03T09:00:00+01:00"),
            on_call("Ann", "2026-10-20T10:00:00+02:00", "2026-10-27T09:00:00+01:00"),
            on_call("Ann", "2026-10-20T10:00:00+02:00", "2026-10-27T09:00:00+01:00", "POTHER"),
        ],
        [on_call("Cem", None, None)],
        limit=limit,
    )
    found = await pagerduty.read()
    eight = datetime(2026, 10, 20, 8, tzinfo=UTC)
    assert [(each.begins, each.ends, each.email) for each in found.shifts] == [
        (NOW - BEFORE, NOW + AHEAD, "cem@example.com"),
        (eight, eight + timedelta(days=7), "ann@example.com"),
        (eight + timedelta(days=7), eight + timedelta(days=14), "ben@example.com"),
    ]
    assert found.shifts[1].names == ("Ann Example",)
    assert found.faults == ()
    asked = pagerduty.asked[0]
    assert asked.path == "/oncalls"
    assert asked.headers["Authorization"] == "Token token=y_NbAkKc66ryYTWUXYEu"
    assert asked.headers["Accept"] == "application/vnd.pagerduty+json;version=2"
    assert (asked.query["schedule_ids[]"], asked.query["include[]"]) == ("PABC123", "users")
    assert asked.query["since"] < "2026-10-21" < asked.query["until"]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({}, "KeyError"),
        ({"user": None, "start": None}, "AttributeError"),
        ({"user": {"name": "Ben"}, "start": "soon", "end": None}, "ValueError"),
        (None, "AttributeError"),
    ],
)
async def test_odd_entry_is_left_out_and_the_others_count(odd: Any, why: str) -> None:
    found = await PagerDuty([odd, on_call("Ann", None, None)]).read()
    assert [each.email for each in found.shifts] == ["ann@example.com"]
    assert found.faults == (f"entry 1: it is malformed ({why})",)
    with pytest.raises(SourceError, match="does not say who is on call now"):
        await PagerDuty([odd]).read()


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (
            lambda: web.Response(status=401),
            "HTTP 401: the token in TOKEN is not allowed to read the schedule",
        ),
        (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1"}), "HTTP 302"),
        *(
            (lambda body=body: web.Response(body=body), "not an on-call")
            for body in ("no", "{}", "[]", '{"oncalls": null}')
        ),
    ],
)
async def test_other_answers_are_refused(response: Callable[[], web.Response], why: str) -> None:
    with pytest.raises(SourceError, match=why):
        await PagerDuty(other=response).read()
