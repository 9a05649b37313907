from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.delivery.store import Store
from bot.errors import StorageUnavailable
from bot.paging.duty import Duty
from bot.paging.roster import OnDuty, Roster
from bot.people import People
from bot.workspace import Workspace
from bot.workspace.seed import ADE, BOT_TOKEN, FOLAKE, GONE, ONCALL, PLATFORM
from core.escalation import Override
from tests.clocks import START, ManualClock
from tests.unit.bot.paging.crew_parties import Directory, settings

LIST = '[[on_call]]\nname = "platform"\nusers = ["U1", "U2"]\n'
GROUP = '[[on_call]]\nname = "platform"\ngroup = "S1"\n'
PRESENT = GROUP + 'pick = "first_present"\n'
ROTATION = """
[[on_call]]
name = "platform"
rotation = { start = 2026-11-20T09:00:00, shift = "1d", users = ["U1", "U2", "U3"] }
"""  # at the clock's start it is U2's turn
HOUR = timedelta(hours=1)


class Overrides:
    def __init__(self, *made: Override) -> None:
        self.made: list[Override] = list(made)
        self.down = False

    async def list(self, policy: str) -> Sequence[Override]:
        if self.down:
            raise StorageUnavailable
        return self.made


@pytest.fixture
def directory() -> Directory:
    found = Directory()
    found.groups = {"S1": frozenset({"U3", "U1", "U2"})}
    return found


def roster(folder: Path, on_call: str, directory: Directory, *made: Override) -> Roster:
    return Roster(settings(folder, on_call), directory, Overrides(*made), ManualClock(), patience=0.2)


def override(user: str, hours: float = 1, by: str = "U9") -> Override:
    return Override(user, START, START + hours * HOUR, by)


@pytest.mark.parametrize(
    ("on_call", "gone", "made", "expected"),
    [
        pytest.param(LIST, "", [], "U1 U2", id="list"),
        pytest.param(LIST, "U1", [], "U2", id="list: deactivated"),
        pytest.param(LIST, "U1 U2", [], "", id="list: nobody left"),
        pytest.param(ROTATION, "", [], "U2", id="rotation"),
        pytest.param(ROTATION, "U2", [], "U3", id="rotation: deactivated, the next"),
        pytest.param(ROTATION, "U2 U3", [], "U1", id="rotation: the one after"),
        pytest.param(ROTATION, "U1 U2 U3", [], "", id="rotation: nobody left"),
        pytest.param(GROUP, "", [], "U1 U2 U3", id="group"),
        pytest.param(GROUP, "U2", [], "U1 U3", id="group: deactivated"),
        pytest.param(PRESENT, "", [], "U1", id="first present"),
        pytest.param(PRESENT, "U1", [], "U2", id="first present: deactivated"),
        pytest.param(LIST, "", [override("U7")], "U7", id="override"),
        pytest.param(ROTATION, "U7", [override("U7")], "U2", id="override: deactivated"),
        pytest.param(LIST, "", [override("U7", 0)], "U1 U2", id="override: over"),
    ],
)
async def test_on_call_table(
    tmp_path: Path, directory: Directory, *, on_call: str, gone: str, made: list[Override], expected: str
) -> None:
    directory.gone = set(gone.split())

    assert await roster(tmp_path, on_call, directory, *made).on_call("platform") == tuple(expected.split())


@pytest.mark.parametrize(
    ("away", "expected"),
    [("U1", ("U2",)), ("U1 U2", ("U3",)), ("U1 U2 U3", ("U1", "U2", "U3"))],
)
async def test_on_call_first_present(
    tmp_path: Path, directory: Directory, away: str, expected: tuple[str, ...]
) -> None:
    directory.away = set(away.split())

    assert await roster(tmp_path, PRESENT, directory).on_call("platform") == expected


@pytest.mark.parametrize("trouble", ["down", "slow", "refusal"])
@pytest.mark.parametrize(
    ("on_call", "before", "expected"),
    [
        pytest.param(LIST, True, "U2", id="list: as last known"),
        pytest.param(LIST, False, "U1 U2", id="list: as named"),
        pytest.param(ROTATION, False, "U2", id="rotation: as named"),
        pytest.param(GROUP, True, "U2 U3", id="group: as last known"),
        pytest.param(GROUP, False, "", id="group: never known"),
        pytest.param(PRESENT, True, "U2 U3", id="group: presence not known"),
    ],
)
async def test_on_call_while_slack_does_not_tell(
    tmp_path: Path, directory: Directory, on_call: str, *, before: bool, expected: str, trouble: str
) -> None:
    crew = roster(tmp_path, on_call, directory)
    directory.gone = {"U1"}
    if before:
        await crew.on_call("platform")

    setattr(directory, trouble, "missing_scope" if trouble == "refusal" else True)

    assert await crew.on_call("platform") == tuple(expected.split())


async def test_on_call_somebody_whom_slack_does_not_know_is_nobody(
    tmp_path: Path, directory: Directory
) -> None:
    directory.unknown = {"U1"}

    assert await roster(tmp_path, LIST, directory).on_call("platform") == ("U2",)


async def test_on_call_a_group_that_was_deleted_has_nobody(tmp_path: Path, directory: Directory) -> None:
    crew = roster(tmp_path, GROUP, directory)
    await crew.on_call("platform")
    directory.groups.clear()

    assert await crew.on_call("platform") == ()


async def test_on_call_without_the_storage_goes_by_the_plan(tmp_path: Path, directory: Directory) -> None:
    duty = Overrides(override("U7"))
    duty.down = True

    crew = Roster(settings(tmp_path, LIST), directory, duty, ManualClock())

    assert await crew.on_call("platform") == ("U1", "U2")


async def test_on_call_does_not_wait_again_for_a_slack_that_is_silent(
    tmp_path: Path, directory: Directory
) -> None:
    """A page about hundreds asks for each of them; the next step must not wait for all these silences."""
    directory.slow = True
    clock = ManualClock()
    crew = Roster(settings(tmp_path, LIST), directory, Overrides(), clock, patience=0.5)
    began = time.monotonic()
    for _ in range(200):
        assert await crew.on_call("platform") == ("U1", "U2")
    assert time.monotonic() - began < 50  # two hundred times half a second would be a hundred
    directory.slow, directory.gone = False, {"U1"}
    await clock.advance(15)
    assert await crew.on_call("platform") == ("U2",)


async def test_on_call_of_a_policy_that_is_no_more(tmp_path: Path, directory: Directory) -> None:
    crew = roster(tmp_path, LIST, directory)

    assert await crew.on_call("gone") == ()
    assert await crew.everybody("gone") == frozenset()


@pytest.mark.parametrize(
    ("on_call", "gone", "made", "expected"),
    [
        (LIST, "", [], OnDuty(("U1", "U2"), "fixed list")),
        (ROTATION, "", [], OnDuty(("U2",), "rotation", START.replace(day=22))),
        (ROTATION, "U2", [], OnDuty(("U3",), "stands in")),
        (GROUP, "", [], OnDuty(("U1", "U2", "U3"), "user group")),
        (LIST, "", [override("U7")], OnDuty(("U7",), "handed over", START + HOUR, "U9")),
        (LIST, "", [override("U7", by="U7")], OnDuty(("U7",), "took over", START + HOUR, "U7")),
    ],
)
async def test_who_says_by_what_and_until_when(
    tmp_path: Path, directory: Directory, *, on_call: str, gone: str, made: list[Override], expected: OnDuty
) -> None:
    directory.gone = set(gone.split())

    assert await roster(tmp_path, on_call, directory, *made).who("platform") == expected


async def test_everybody_is_who_is_on_call_named_or_in_the_group(
    tmp_path: Path, directory: Directory
) -> None:
    directory.gone = {"U1"}

    listed = await roster(tmp_path, ROTATION, directory, override("U7")).everybody("platform")
    grouped = await roster(tmp_path, PRESENT, directory, override("U7")).everybody("platform")

    assert listed == frozenset({"U7", "U2", "U3"}) == grouped


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "clarify.db")
    yield opened
    await opened.close()


async def test_on_call_asked_of_a_workspace(tmp_path: Path, store: Store) -> None:
    async with Workspace() as ws:
        people = People(AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[]), again=0.0)
        on_call = (
            f'[[on_call]]\nname = "group"\ngroup = "{PLATFORM}"\npick = "first_present"\n'
            f'[[on_call]]\nname = "list"\nusers = ["{GONE}", "{FOLAKE}"]\n'
        )
        clock = ManualClock()
        duty = Duty(store, clock)
        crew = Roster(settings(tmp_path, on_call), people, duty, clock, patience=10)

        assert await crew.members(PLATFORM) == (ADE, ONCALL)
        assert await crew.on_call("group") == (ADE,)
        ws.set_presence(ADE, "away")
        assert await crew.on_call("group") == (ONCALL,)
        assert await crew.on_call("list") == (FOLAKE,)
        await duty.hand("list", ADE, clock.now() + HOUR, FOLAKE)
        assert await crew.on_call("list") == (ADE,)
