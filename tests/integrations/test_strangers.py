"""An on-call source and a pager that others wrote: one file, found by its entry point."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot import integrations
from bot.check import check_machine
from bot.errors import ConfigurationError
from bot.integrated import check_integrations
from tests.kit.world import said
from tests.scenario.pagers import Night, asked_and_paged, night, step
from tests.scenario.test_feeds import read
from workspace.seed import ADE, FOLAKE

MODULE = """
from datetime import timedelta

from bot.api import Delivered, Integration, OnCall, Paging, Shift, Timetable

TOLD = []


class Rota:
    title, variable, origin, advice = "the rota", "night", "rota", "fill it in"

    def __init__(self, email):
        self.email = email

    async def read(self, at):
        day = timedelta(days=1)
        return Timetable((Shift(at - day, at + day, email=self.email),))


class Bell:
    async def send(self, page):
        TOLD.append(page.title)
        return Delivered()


integration = Integration(
    name="night",
    on_call=OnCall(
        settings=str, about="The e-mail address.", label="rota", source=lambda email, zone, secret: Rota(email)
    ),
    paging=Paging(service=lambda address: "a bell" if address == "tower" else None, pager=lambda address: Bell()),
)
"""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stranger's file, installed."""
    (tmp_path / "clarify_night.py").write_text(MODULE)
    installed = tmp_path / "clarify_night-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: clarify-night\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        f"[{integrations.GROUP}]\nnight = clarify_night:integration\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "clarify_night", raising=False)
    monkeypatch.setattr(integrations, "_theirs", integrations._theirs.__wrapped__)
    return tmp_path / "clarify_night.py"


@pytest.fixture
def _broken(module: Path) -> None:
    module.write_text("raise RuntimeError('a defect')")


async def test_stranger_says_who_is_on_call_and_pages_outside(stage: Night) -> None:
    stage.environ["BELL"] = "tower"
    email = stage.workspace.context.state.users[ADE].email
    text = stage.config(step("0m", "dm", "night:BELL"), people=f'night = "{email}"\nusers = ["{FOLAKE}"]')
    results = {each.subject: each.text for each in check_machine(stage._settings(text))}
    assert results["on_call[0].steps"] == "BELL notifies through a bell"
    async with stage.bot(text) as bot:
        await read(bot)
        _, page = await asked_and_paged(stage, ADE)
        assert "backup" not in said(page)
        told = sys.modules["clarify_night"].TOLD
        await stage.until(lambda: told)
        assert told == ["Escalated: Planner is waiting · CLR-100001-001"]


@pytest.mark.usefixtures("_broken")
async def test_stranger_that_cannot_be_loaded_leaves_the_backup_to_be_paged(stage: Night) -> None:
    stage.environ["BELL"] = "tower"
    text = stage.config(step("0m", "dm", "night:BELL"), people=f'night = "x"\nusers = ["{FOLAKE}"]')
    async with stage.bot(text):
        _, page = await asked_and_paged(stage, FOLAKE)
        assert "backup" in said(page)


async def test_file_names_a_pager_that_is_not_installed(stage: Night) -> None:
    with pytest.raises(ConfigurationError, match=r"steps\[0\].notify\[0\]: expected .*apprise:VARIABLE"):
        stage._settings(stage.config(step("0m", "tower:BELL")))


async def test_integration_that_is_on_by_default_and_cannot_be_loaded_stops_nothing_else(
    stage: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = integrations.load

    def broken(name: str) -> object:
        if name in integrations.DEFAULT_ON:
            raise RuntimeError("a defect")
        return load(name)

    monkeypatch.setattr(integrations, "load", broken)
    text = stage.config(step("0m", "dm"), people=f'users = ["{FOLAKE}"]')
    results = {each.subject: each async for each in check_integrations(stage._settings(text))}
    assert not results["ledgerfiles"].ok
    async with stage.bot(text) as bot:
        assert "ledgerfiles" in bot.integrated.broken
        await asked_and_paged(stage, FOLAKE)
