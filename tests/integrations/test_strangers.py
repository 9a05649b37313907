"""An on-call source, a pager, a command and a job that others wrote: one file, found by its entry point."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from bot import integrations
from bot.check import check_machine
from bot.errors import ConfigurationError
from bot.intake.notices import needed_channels
from bot.integrated import check_integrations
from tests.kit.databases import found_in
from tests.kit.world import said, url_of
from tests.scenario.pagers import Night, asked_and_paged, night, step
from tests.scenario.test_feeds import read
from tests.scenario.typist import command, words
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE

MODULE = """
import asyncio
from datetime import timedelta

from bot.api import (
    Asked, ChannelId, Delivered, Metric, Integration, OnCall, Paging, Response, Route, RouteRefused, Section, SettingsTable, Shift,
    SlackCommand, Timetable, Words, fixed
)
from core.questions import NewQuestion

TOLD, CALLS, STORED = [], [], []


class NightSettings(SettingsTable):
    channel: ChannelId


def says(text):
    return fixed("night", (Section(Words(text)),))


async def reply(host, wanted, person):
    return says(f"You asked for {wanted}.")


def poem(host, settings):
    async def post(now):
        CALLS.append(now)
        if len(CALLS) == 1:
            raise RuntimeError("a defect")
        if not await host.is_posted("night:poem"):
            await host.post("night:poem", settings.channel, says("Good night"))
        return now + timedelta(minutes=3)

    return post


class Defective:
    def record_changed(self, record):
        raise RuntimeError("a defect")

    async def run(self):
        await asyncio.Event().wait()

    async def close(self):
        raise RuntimeError("a defect")


class Telltale:
    name, part, gather, undone = "telltale", "telltale", 0.0, None

    def observe(self, change):
        raise RuntimeError("a defect")

    def begin_anew(self, tx):
        pass

    async def run(self, done):
        await asyncio.Event().wait()

    async def settle(self):
        pass

    def trouble(self):
        return None


class Lamp:
    def __init__(self, host, settings):
        self.host = host

    async def turn(self, request):
        if request.path["how"] == "upside-down":
            raise RouteRefused(418, "NO_LAMP", "Lamps are not turned so.")
        if request.path["how"] == "in":
            raise RuntimeError("a defect")
        fields = {"action": "Turn the lamp " + request.path["how"], "arguments": {"room": 7}}
        questions, producer = self.host.questions, request.speaker.producer
        asked = Asked(name="night", about={"lamp": 1}, store=lambda tx, record: STORED.append(record.id))
        record, _ = await questions.ask(NewQuestion.model_validate(fields), request.speaker, by=asked)
        record = await questions.until_settled(record.id, producer, 60, request.ends())
        await self.host.store.write(lambda tx: self.host.executed(tx, record, "d" * 43, is_error=False))
        questions.wake_feed()
        return Response(200, {"id": record.id, "who": producer, "said": request.body.decode()})


async def shone(host, settings):
    if STORED:
        raise RuntimeError("a defect")
    return [Metric("lamps", "Lamps that shine", ["room"], {("7",): 1.0})]


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
    settings=NightSettings,
    follows=lambda host, settings: Telltale(),
    commands=[
        SlackCommand(word=word, form=word, meaning="x", help="x", read=str.upper, reply=reply)
        for word in ("night", "stale")
    ],
    job=poem,
    channels=lambda settings: {"channel": settings.channel},
    routes=lambda host, settings: [Route("POST", "/lamp/{how}", Lamp(host, settings).turn)],
    metrics=shone,
    watches=lambda file, known, clock: Defective(),
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


@pytest.fixture
def _no_figure(module: Path) -> None:
    """A value of it is no number."""
    module.write_text(MODULE.replace('{("7",): 1.0}', '{("7",): "bright"}'))


@pytest.fixture
def _no_mirror(module: Path) -> None:
    """What it returns is a mere `Observer`."""
    module.write_text(MODULE.replace("async def settle(self)", "async def finish(self)"))


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


async def test_stranger_adds_a_command_and_posts_once_though_all_else_of_it_fails(stage: Night) -> None:
    text = stage.config(step("0m", "dm")) + f'\n[night]\nchannel = "{FALLBACK}"\n'
    assert needed_channels(stage._settings(text))[FALLBACK][-1] == "night.channel"
    async with stage.bot(text) as bot:
        await stage.until(lambda: sys.modules["clarify_night"].CALLS)
        assert "night: its job failed (RuntimeError)" in str(await bot.feed.trouble())
        assert "You asked for SOME SLEEP." in words(await command(stage, "night some sleep"))
        assert "No overdue questions" in words(await command(stage, "stale")), "the bot's own word"
        assert "Did you mean “/clarify night”?" in words(await command(stage, "nihgt"))
        await stage.emit(timeout_seconds=600_000)
        await stage.card("Shall I go on?")
        assert [m for m in stage.workspace.messages(FALLBACK) if "Good night" in said(m)] == []
        for _ in range(3):
            await stage.later(bot, minutes=4)
            await stage.message("Good night", FALLBACK)
        trouble = str(await bot.feed.trouble())
        assert "night: it watches no more, or missed a change (RuntimeError)" in trouble
        assert "telltale: it is left out until the next start (RuntimeError)" in trouble
    assert len([m for m in stage.workspace.messages(FALLBACK) if "Good night" in said(m)]) == 1


async def test_stranger_asks_through_a_route_of_its_own_and_the_log_says_what_was_carried_out(
    stage: Night,
) -> None:
    text = stage.config(step("0m", "dm")) + f'\n[night]\nchannel = "{FALLBACK}"\n'
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        assert 'clarify_night_lamps{room="7"} 1.0' in (await http.get("/metrics")).text
        call = asyncio.create_task(http.post("/night/lamp/off", json="please"))
        card = await stage.card("Turn the lamp off")
        asked = (await http.get("/questions")).json()["questions"][0]
        assert asked["asked"]["about"] == {"night": {"lamp": 1}}
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        assert (await call).json() == {"id": asked["id"], "who": "local", "said": '"please"'}
        assert [asked["id"]] == sys.modules["clarify_night"].STORED
        kinds = "select kind from decisions order by seq"
        await stage.until(lambda: found_in(stage.rows, kinds) == ["decision", "executed"])
        answers = [await http.post(f"/night/lamp/{how}", json=1) for how in ("upside-down", "in")]
        assert [each.status_code for each in answers] == [418, 500]
        assert answers[0].json() == {"error": "NO_LAMP", "message": "Lamps are not turned so."}
        foreign = await http.post("/night/lamp/off", json=1, headers={"Origin": "https://example.org"})
        assert foreign.json()["error"] == "BROWSER"
        assert "clarify_build_info" in (await http.get("/metrics")).text, "though its metrics fail"


@pytest.mark.usefixtures("_no_figure")
async def test_figures_that_cannot_be_shown_are_left_out_and_told(stage: Night) -> None:
    text = stage.config(step("0m", "dm")) + f'\n[night]\nchannel = "{FALLBACK}"\n'
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        shown = await http.get("/metrics")
        assert (shown.status_code, "clarify_build_info" in shown.text) == (200, True)
        troubles = {each["name"]: each["why"] for each in (await http.get("/readyz")).json()["degraded"]}
        assert troubles["integrations"] == "night has no metrics (ValueError); see the log"


@pytest.mark.usefixtures("_no_mirror")
async def test_stranger_whose_follower_is_none_is_told_and_stops_nothing(stage: Night) -> None:
    async with stage.bot(stage.config(step("0m", "dm")) + f'\n[night]\nchannel = "{FALLBACK}"\n') as bot:
        assert bot.integrated.broken == {"night": "cannot be started (TypeError); see the log"}
        await asked_and_paged(stage)


@pytest.mark.usefixtures("_broken")
async def test_stranger_that_cannot_be_loaded_leaves_the_backup_to_be_paged(stage: Night) -> None:
    stage.environ["BELL"] = "tower"
    text = stage.config(step("0m", "dm", "night:BELL"), people=f'night = "x"\nusers = ["{FOLAKE}"]')
    async with stage.bot(text):
        _, page = await asked_and_paged(stage, FOLAKE)
        assert "backup" in said(page)


async def test_one_of_ours_that_cannot_be_loaded_is_told_and_stops_nothing(
    stage: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bot.integrations.digest.integration", None)
    found = [each async for each in check_integrations(stage._settings(stage.config(step("0m", "dm"))))]
    assert [each.text.partition(":")[0] for each in found if each.subject == "digest"] == [
        "cannot be loaded (ModuleNotFoundError"
    ]
    async with stage.bot(stage.config(step("0m", "dm"))) as bot:
        assert "Unknown command “digest”" in words(await command(stage, "digest"))
        assert bot.integrated.broken.keys() == {"digest"}


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
