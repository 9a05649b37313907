"""Who is on call, who stands in, and where the steps of a policy lead."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.oncall import feeds
from bot.oncall.feeds import Copies, Copy, Shift, Timetable
from bot.oncall.incidents import Incident
from bot.oncall.pages import Destination
from bot.oncall.roster import OnDuty, Policies, Roster
from bot.routing import Audiences
from bot.storage.opening import open_storage
from bot.storage.store import Store
from core.clarification import Clarification
from tests.kit.clocks import START, ManualClock
from tests.unit.bot.oncall.crew_parties import BASE, Directory, Said, settings
from tests.unit.bot.records import asked
from workspace.seed import AGENTS, FALLBACK

LIST = '[[on_call]]\nname = "platform"\nusers = ["U1", "U2"]\n'
GROUP = '[[on_call]]\nname = "platform"\ngroup = "S1"\n'
PRESENT = GROUP + 'pick = "first_present"\n'
ROTATION = """
[[on_call]]
name = "platform"
rotation = { start = 2026-11-20T09:00:00, shift = "1d", users = ["U1", "U2", "U3"] }
"""  # at the clock's start it is U2's turn
HOUR = timedelta(hours=1)


@pytest.fixture
def directory() -> Directory:
    found = Directory()
    found.groups = {"S1": frozenset({"U3", "U1", "U2"})}
    return found


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_storage(tmp_path / "clarify.db")
    yield opened
    await opened.close()


def copies(store: Store) -> Copies:
    return Copies({"platform": Said()}, store)


class Crew(Roster):
    """A roster on a directory of the test's, and its clock."""

    def __init__(self, folder: Path, on_call: str, directory: Directory, store: Store, **more: Any) -> None:
        people: Any = directory
        self.clock = ManualClock()
        super().__init__(
            settings(folder, on_call), people, copies(store), store, self.clock, **({"patience": 0.2} | more)
        )


@pytest.fixture
def crew(tmp_path: Path, directory: Directory, store: Store) -> Any:
    return lambda on_call, **more: Crew(tmp_path, on_call, directory, store, **more)


@pytest.mark.parametrize(
    ("on_call", "gone", "made", "expected"),
    [
        pytest.param(LIST, "U1", None, "U2", id="list: deactivated"),
        pytest.param(LIST, "U1 U2", None, "", id="list: nobody left"),
        pytest.param(ROTATION, "U2 U3", None, "U1", id="rotation: the one after"),
        pytest.param(ROTATION, "U1 U2 U3", None, "", id="rotation: nobody left"),
        pytest.param(GROUP, "U2", None, "U1 U3", id="group: deactivated"),
        pytest.param(PRESENT, "", None, "U1", id="first present"),
        pytest.param(PRESENT, "U1", None, "U2", id="first present: deactivated"),
        pytest.param(ROTATION, "U7", (1, "U9"), "U2", id="override: deactivated"),
        pytest.param(LIST, "", (0, "U9"), "U1 U2", id="override: over"),
    ],
)
async def test_on_call_table(
    crew: Any, directory: Directory, *, on_call: str, gone: str, made: tuple[int, str] | None, expected: str
) -> None:
    directory.gone = set(gone.split())
    assert (await stood_in(crew(on_call), made)).users == tuple(expected.split())


async def stood_in(crew: Crew, made: tuple[int, str] | None) -> OnDuty:
    """Who is on call after U7 stood in for so many hours, by somebody's word."""
    if made is not None:
        hours, by = made
        await crew.hand("platform", "U7", START + hours * HOUR, by)
    return await crew.who("platform")


@pytest.mark.parametrize(
    ("away", "expected"),
    [("U1", ("U2",)), ("U1 U2", ("U3",)), ("U1 U2 U3", ("U1", "U2", "U3"))],
)
async def test_on_call_first_present(
    crew: Any, directory: Directory, away: str, expected: tuple[str, ...]
) -> None:
    directory.away = set(away.split())

    assert await crew(PRESENT).on_call("platform") == expected


@pytest.mark.parametrize("trouble", ["down", "slow", "refusal"])
@pytest.mark.parametrize(
    ("on_call", "expected"),
    [(LIST, ("U1", "U2")), (ROTATION, ("U2",)), (GROUP, ())],
    ids=["list", "rotation", "group"],
)
async def test_while_slack_does_not_tell_and_never_told_people_are_as_named(
    crew: Any, directory: Directory, on_call: str, expected: tuple[str, ...], trouble: str
) -> None:
    """What it told before, `People` keeps."""
    setattr(directory, trouble, "missing_scope" if trouble == "refusal" else True)
    assert await crew(on_call).on_call("platform") == expected


async def test_somebody_whom_slack_does_not_know_and_a_group_that_was_deleted_are_nobody(
    crew: Any, directory: Directory
) -> None:
    directory.unknown = {"U1"}
    assert await crew(LIST).on_call("platform") == ("U2",)
    directory.groups.clear()
    assert await crew(GROUP).on_call("platform") == ()


async def test_on_call_does_not_wait_again_for_a_slack_that_is_silent(
    crew: Any, directory: Directory
) -> None:
    """A page about hundreds asks for each of them; the next step must not wait for all these silences."""
    directory.slow = True
    silent = crew(LIST, patience=0.5)
    began = time.monotonic()
    for _ in range(200):
        assert await silent.on_call("platform") == ("U1", "U2")
    assert time.monotonic() - began < 50  # two hundred times half a second would be a hundred
    directory.slow, directory.gone = False, {"U1"}
    await silent.clock.advance(15)
    assert await silent.on_call("platform") == ("U2",)


@pytest.mark.parametrize(
    ("on_call", "gone", "made", "expected"),
    [
        (LIST, "", None, OnDuty(("U1", "U2"), "fixed list")),
        (ROTATION, "", None, OnDuty(("U2",), "rotation", START.replace(day=22))),
        (ROTATION, "U2", None, OnDuty(("U3",), "backup")),
        (GROUP, "", None, OnDuty(("U1", "U2", "U3"), "user group")),
        (LIST, "", (1, "U9"), OnDuty(("U7",), "handed over", START + HOUR, "U9")),
        (LIST, "", (1, "U7"), OnDuty(("U7",), "took over", START + HOUR, "U7")),
    ],
)
async def test_who_says_by_what_and_until_when(
    crew: Any,
    directory: Directory,
    *,
    on_call: str,
    gone: str,
    made: tuple[int, str] | None,
    expected: OnDuty,
) -> None:
    directory.gone = set(gone.split())

    assert await stood_in(crew(on_call), made) == expected


async def test_stand_ins_of_the_same_policy_follow_each_other(crew: Any) -> None:
    told: list[int] = []
    roster = crew(LIST, on_change=lambda: told.append(1))
    await roster.hand("platform", "U7", START + 8 * HOUR, "U7")
    await roster.clock.advance(60)
    await roster.hand("platform", "U8", START + HOUR, "U7")
    await roster.hand("data", "U3", START + HOUR, "U3")
    assert len(told) == 3
    assert await roster.on_call("platform") == ("U8",), "the one made last holds"
    await roster.clock.advance(3600)
    assert await roster.on_call("platform") == ("U7",)
    await roster.clock.advance(8 * 3600)
    assert await roster.on_call("platform") == ("U1", "U2")


async def test_crew_takes_turns_whoever_is_on_call(crew: Any) -> None:
    assert await crew(ROTATION).crew("platform") == {"U1", "U2", "U3"}
    assert await crew(PRESENT).crew("platform") == {"U1", "U2", "U3"}


async def test_stand_ins_outlive_the_process_and_go_when_they_are_over(crew: Any, store: Store) -> None:
    await crew(LIST).hand("platform", "U7", START + HOUR, "U7")
    again = crew(LIST)
    assert await again.on_call("platform") == ("U7",)
    await again.clock.advance(3600)
    await again.hand("platform", "U8", START + 2 * HOUR, "U8")
    assert [row["user_id"] for row in await store.read("select user_id from overrides")] == ["U8"]


SESSION = ("planner", "sess_1")
ROUTES = '[[routes]]\nagent = "deploy-*"\nchannel = "C0DEPLOY"\n'
ROLES = '[responders.architect]\npeople = ["C0ARCHITECTS"]\n[responders.lead]\npeople = ["U0LEAD"]\n'


def incident(agent: str | None, clarification: str | None, policy: str | None = "platform") -> Incident:
    return Incident(1, "e:1", "event", policy, agent, clarification, "", "", "", None, START, None)


ABOUT, OTHER, NONE = (
    incident("planner-1", "CLR-42-001"),
    incident("deploy-1", "CLR-7-001"),
    incident(None, None),
)
ANSWERED = replace(OTHER, kind="escalated")  # no such question is open any more
TO_ROLE, TO_LEAD = incident("planner-1", "CLR-42-002"), incident("planner-1", "CLR-42-003")


def known(clarification: str) -> Clarification | None:
    put_to: dict[str, dict[str, Any]] = {
        "CLR-42-001": {},
        "CLR-42-002": {"to": "Architect"},
        "CLR-42-003": {"to": "lead", "producer": None},
    }
    more = put_to.get(clarification)
    return asked(int(clarification[-3:]), agent_id="planner-1", **more) if more is not None else None


def slack(target: str, thread: tuple[str, str] | None = None, mentions: str = "") -> Destination:
    return Destination("slack", target, thread, tuple(mentions.split()))


@pytest.fixture
def policies(tmp_path: Path, directory: Directory, store: Store) -> Any:
    directory.groups = {"S1": frozenset({"U3", "U4"})}
    directory.gone = {"U0GONE"}

    def built(on_call: str, base: str) -> Policies:
        people: Any = directory
        found = settings(tmp_path, on_call, base=base, PAGER_URL="json://127.0.0.1:1")
        return Policies(
            found,
            Audiences(found),
            Roster(found, people, copies(store), store, ManualClock()),
            known,
            ManualClock(),
        )

    return built


async def led(policies: Policies, incident: Incident, step: int, holder: str | None) -> list[Destination]:
    return await policies.destinations(incident, step, holder, await policies.turn(incident))


@pytest.mark.needs("apprise")
@pytest.mark.parametrize(
    ("notify", "incident", "holder", "expected"),
    [
        ("dm", ABOUT, None, [slack("U1"), slack("U2")]),
        ("dm", ABOUT, "U9", [slack("U9")]),
        ("dm", ABOUT, "U0GONE", [slack("U1"), slack("U2")]),
        ("thread", ABOUT, None, [slack(AGENTS, SESSION, "U1 U2")]),
        ("thread", ABOUT, "U9", [slack(AGENTS, SESSION, "U9")]),
        ("thread", OTHER, None, [slack("C0DEPLOY", None, "U1 U2")]),
        ("thread", ANSWERED, None, []),
        ("thread", TO_ROLE, None, [slack("C0ARCHITECTS", ("", "CLR-42-002"), "U1 U2")]),
        ("thread", TO_LEAD, None, [slack(AGENTS, ("", "CLR-42-003"), "U1 U2")]),
        ("thread", NONE, None, [slack(AGENTS, None, "U1 U2")]),
        ("group:S1", ABOUT, None, [slack("U3"), slack("U4")]),
        ("group:S2", ABOUT, None, []),
        ("channel:C7", ABOUT, None, [slack("C7", None, "U1 U2")]),
        ("apprise:PAGER_URL", ABOUT, "U9", [Destination("apprise", "PAGER_URL")]),
        (None, ABOUT, None, [slack(FALLBACK, None, "U1 U2")]),
        (None, ABOUT, "U9", [slack("U9"), slack(FALLBACK, None, "U9")]),
    ],
)
async def test_destinations_table(
    policies: Any, notify: str | None, incident: Incident, holder: str | None, expected: list[Destination]
) -> None:
    """`notify` None: the last resort."""
    steps = f'steps = [{{after = "0s", notify = ["{notify or "dm"}"]}}]\n'
    found = policies(LIST + steps + ROLES, BASE + ROUTES)

    assert await led(found, incident, 0 if notify else -1, holder) == expected


@pytest.mark.needs("apprise")
@pytest.mark.parametrize(
    ("notify", "every", "expected"),
    [
        (["dm"], True, {"U1", "U2"}),
        (["thread", "dm"], True, {"U1", "U2"}),
        (["dm", "channel:C7"], True, {"U1", "U2", "C7"}),
        (["channel:C7"], True, {"C7"}),
        (["thread"], True, set()),
        (["dm"], False, set()),
        (["dm", "group:S1"], True, set()),
        (["dm", "apprise:PAGER_URL"], True, set()),
    ],
)
def test_step_is_repeated_by_lists_only_if_they_reach_everyone_whom_it_notifies(
    policies: Any, notify: list[str], every: bool, expected: set[str]
) -> None:
    repeated = ', every = "5m"' if every else ""
    found = policies(f'{LIST}steps = [{{after = "0s", notify = {notify}{repeated}}}]\n', BASE + ROUTES)
    assert found.repeats_to(ABOUT, 0, ["U1", "U2"]) == expected
    assert found.repeats_to(ABOUT, -1, ["U1", "U2"]) == set()


@pytest.mark.parametrize("policy", [None, "gone"])
async def test_destinations_without_a_policy_are_the_last_resort(policies: Any, policy: str | None) -> None:
    lost = incident("planner-1", "CLR-42-001", policy)

    assert await led(policies(LIST, BASE), lost, -1, None) == [slack(FALLBACK)]
    assert await led(policies(LIST, BASE), lost, 0, "U9") == [slack("U9")]


async def test_destinations_last_resort_without_fallback_channel_is_the_routes(policies: Any) -> None:
    base = BASE.replace(f'fallback_channel = "{FALLBACK}"', "") + ROUTES

    assert await led(policies("", base), incident("deploy-1", "CLR-7-001", None), -1, None) == [
        slack("C0DEPLOY")
    ]


FEED = '[[on_call]]\nname = "platform"\nical_env = "FEED"\n'


async def kept(store: Store, *shifts: Shift) -> None:
    """What a source said, as the bot that leads keeps it."""
    copy = Copy(Said.origin, Timetable(shifts), START)
    await store.write(lambda tx: feeds._put(tx, "platform", copy))


def shift_of(user: str | None, begins: float, ends: float, level: int = 0) -> Shift:
    hour = timedelta(hours=1)
    return Shift(START + begins * hour, START + ends * hour, level, "x@example.com", (), user)


@pytest.mark.needs("ical")
@pytest.mark.parametrize(
    ("more", "shifts", "expected"),
    [
        ("", [("U1", -1, 1)], OnDuty(("U1",), "calendar", START + HOUR)),
        ("", [("U1", -1, 1), ("U1", 1, 2)], OnDuty(("U1",), "calendar", START + 2 * HOUR)),
        ("", [("U2", -1, 2), ("U1", -1, 1)], OnDuty(("U2", "U1"), "calendar", START + HOUR)),
        ("", [("U1", -1, 2), ("U2", -1, 1, 1)], OnDuty(("U2",), "calendar", START + HOUR)),
        ("", [("U1", -1, 2), ("UGONE", -1, 1, 1)], OnDuty(("U1",), "calendar", START + 2 * HOUR)),
        ("", [("U1", -1, 2), (None, -1, 1, 1)], OnDuty(("U1",), "calendar", START + 2 * HOUR)),
        (
            'users = ["U7", "UGONE"]\n',
            [("U1", 1, 2)],
            OnDuty(
                ("U7",),
                "backup: the calendar lists no one right now",
                START + HOUR,
                note="the calendar lists no one right now",
            ),
        ),
        (
            "",
            [(None, -1, 2)],
            OnDuty(
                (),
                "the calendar lists x@example.com, but no full member in Slack matches",
                note="the calendar lists x@example.com, but no full member in Slack matches",
            ),
        ),
        (
            "",
            [("UGONE", -1, 2)],
            OnDuty(
                (),
                "the person the calendar lists has left or is no longer a full member",
                note="the person the calendar lists has left or is no longer a full member",
            ),
        ),
    ],
)
async def test_who_by_a_calendar(  # noqa: PLR0917
    tmp_path: Path,
    directory: Directory,
    store: Store,
    more: str,
    shifts: list[tuple[Any, ...]],
    expected: OnDuty,
) -> None:
    directory.gone = {"UGONE"}
    found = settings(tmp_path, FEED + more, FEED="http://127.0.0.1:1")
    people: Any = directory
    roster = Roster(found, people, copies(store), store, ManualClock())
    await kept(store, *(shift_of(*each) for each in shifts))
    assert await roster.who("platform") == expected
    await roster.hand("platform", "U9", START + HOUR, "U9")
    assert (await roster.who("platform")).users == ("U9",), "who took over comes before every source"
