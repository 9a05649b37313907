from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.paging.targets import LAST_RESORT, Address, Targets
from bot.workspace.seed import AGENTS, FALLBACK
from core.index import Summary
from tests.unit.bot.home.parties import summary
from tests.unit.bot.paging.crew_parties import BASE, settings

SESSION = ("planner", "sess_1")
ON_CALL = '[[on_call]]\nname = "platform"\nusers = ["U1", "U2"]\n'
ROUTES = '[[routes]]\nagent = "deploy-*"\nchannel = "C0DEPLOY"\n'


@dataclass(frozen=True)
class Incident:
    agent_id: str | None = "planner-1"
    clarification: str | None = "CLR-42-001"


class Crew:
    def __init__(self) -> None:
        self.turns: dict[str, tuple[str, ...]] = {"platform": ("U1", "U2")}
        self.gone: set[str] = set()

    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        return self.turns.get(policy_name, ())

    async def members(self, group: str) -> tuple[str, ...]:
        return ("U3", "U4") if group == "S1" else ()

    async def active(self, users: Iterable[str]) -> tuple[str, ...]:
        return tuple(user for user in users if user not in self.gone)


def known(clarification: str) -> Summary | None:
    put_to: dict[str, dict[str, Any]] = {
        "CLR-42-001": {},
        "CLR-42-002": {"to": "Architect"},
        "CLR-42-003": {"to": "lead", "producer": None},
    }
    more = put_to.get(clarification)
    return summary(int(clarification[-3:]), agent_id="planner-1", **more) if more is not None else None


def slack(target: str, thread: tuple[str, str] | None = None, mentions: str = "") -> Address:
    return Address("slack", target, thread, tuple(mentions.split()))


ROLES = '[responders.architect]\npeople = ["C0ARCHITECTS"]\n[responders.lead]\npeople = ["U0LEAD"]\n'
TO_ROLE, TO_LEAD = Incident(clarification="CLR-42-002"), Incident(clarification="CLR-42-003")
ABOUT, OTHER, NONE = Incident(), Incident("deploy-1", "CLR-7-001"), Incident(None, None)


@pytest.mark.parametrize(
    ("notify", "incident", "holder", "expected"),
    [
        ("dm", ABOUT, None, [slack("U1"), slack("U2")]),
        ("dm", ABOUT, "U9", [slack("U9")]),
        ("dm", ABOUT, "U0GONE", [slack("U1"), slack("U2")]),
        ("thread", ABOUT, None, [slack(AGENTS, SESSION, "U1 U2")]),
        ("thread", ABOUT, "U9", [slack(AGENTS, SESSION, "U9")]),
        ("thread", OTHER, None, [slack("C0DEPLOY", None, "U1 U2")]),
        ("thread", TO_ROLE, None, [slack("C0ARCHITECTS", ("", "CLR-42-002"), "U1 U2")]),
        ("thread", TO_LEAD, None, [slack(AGENTS, ("", "CLR-42-003"), "U1 U2")]),
        ("thread", NONE, None, [slack(AGENTS, None, "U1 U2")]),
        ("group:S1", ABOUT, None, [slack("U3"), slack("U4")]),
        ("group:S2", ABOUT, None, []),
        ("channel:C7", ABOUT, None, [slack("C7", None, "U1 U2")]),
        ("apprise:PAGER_URL", ABOUT, "U9", [Address("apprise", "PAGER_URL")]),
        (LAST_RESORT, ABOUT, None, [slack(FALLBACK, None, "U1 U2")]),
        (LAST_RESORT, ABOUT, "U9", [slack("U9"), slack(FALLBACK, None, "U9")]),
    ],
)
async def test_addresses_table(
    tmp_path: Path, notify: str, incident: Incident, holder: str | None, expected: list[Address]
) -> None:
    crew = Crew()
    crew.gone = {"U0GONE"}
    targets = Targets(settings(tmp_path, ON_CALL + ROLES, base=BASE + ROUTES), crew, known)

    assert await targets.addresses(notify, "platform", incident, holder) == tuple(expected)


async def test_addresses_nobody_on_call_is_no_address(tmp_path: Path) -> None:
    targets = Targets(settings(tmp_path, ON_CALL), Crew(), known)

    assert await targets.addresses("dm", None, ABOUT, None) == ()
    assert await targets.addresses("dm", "gone", ABOUT, None) == ()


async def test_addresses_last_resort_without_fallback_channel_is_the_routes(tmp_path: Path) -> None:
    base = BASE.replace(f'fallback_channel = "{FALLBACK}"', "")
    targets = Targets(settings(tmp_path, base=base + ROUTES), Crew(), known)

    assert await targets.addresses(LAST_RESORT, None, OTHER, None) == (slack("C0DEPLOY"),)
