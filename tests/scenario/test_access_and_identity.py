"""Promises P5 and P6: who may answer, under which name, and what those who may not are told."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.errors import ConfigurationError
from bot.people import access, directory
from tests.kit.world import PATIENT, World, config, of_a_click, own_url_of, scene
from workspace.seed import ADE, AGENTS, EVA, FOLAKE, GIO, GONE, ONCALL, OTHER_BOT_USER, PLATFORM
from workspace.state import Ephemeral, User


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (GIO, "you are a guest"),
        (EVA, "you are not a member of this workspace"),
        (OTHER_BOT_USER, "bots cannot answer"),
        (GONE, "your account is deactivated"),
    ],
)
async def test_p6_click_of_one_who_may_not_is_refused_aloud_and_logged(
    stage: World, user: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    if user == GONE:
        stage.workspace.state.channels[AGENTS].members.append(GONE)
    async with stage.bot():
        card = await stage.ask()
        assert (await stage.workspace.click(user, AGENTS, card.ts, label="Yes")).ok
        told = await stage.whisper(user, "You cannot answer this")
        assert why in told.text
        assert "full members of this workspace" in told.text
        assert stage.record()["status"] == "pending"
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False
    assert any("refused" in line and user in line and why in line for line in caplog.messages)


async def test_p6_who_left_the_channel_is_refused_at_the_click(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["freetext"])
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")
        await stage.modal(ADE)
        stage.workspace.leave(ADE, AGENTS)
        await stage.heard("member_left_channel")
        await stage.workspace.submit_view(ADE, {"Your answer": "go"})
        told = await stage.modal(ADE)
        assert "you are not in the channel" in str(told.payload["blocks"])
        assert stage.record()["status"] == "pending"


async def test_p6_guest_made_of_a_member_is_refused_from_then_on(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1")
        await stage.workspace.click(ADE, AGENTS, first.ts, label="Yes")
        await stage.reply("rpl_1")
        stage.workspace.change_user(ADE, is_restricted=True)
        await stage.heard("user_change")
        second = await stage.ask("rpl_2", question="And now?")
        await stage.workspace.click(ADE, AGENTS, second.ts, label="Yes")
        await stage.whisper(ADE, "you are a guest")


async def test_p6_only_the_listed_group_answers_and_its_changes_count_at_once(stage: World) -> None:
    async with stage.bot(config(stage.producer.url, answerers=(PLATFORM,))):
        card = await stage.ask()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        told = await stage.whisper(FOLAKE, "you are not an answerer for this agent")
        assert f"<!subteam^{PLATFORM}>" in told.text
        stage.workspace.change_group(PLATFORM, [FOLAKE])
        await stage.heard("subteam_members_changed")
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        await stage.whisper(ADE, "you are not an answerer for this agent")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False


async def test_p6_unknown_who_it_is_takes_nothing_and_says_so(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.workspace.change_user(ADE, real_name="Ade B.")
        await stage.heard("user_change")
        stage.workspace.faults.add("users.info", "refuse:internal_error", times=10)
        stage.slack_waits()
        outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        assert not outcome.ok  # Slack shows an error, so nobody believes that it counted
        await stage.whisper(ADE, "Slack did not say who you are")
        assert stage.record()["status"] == "pending"


IDENTITIES = f"""
[identities]
{FOLAKE} = "user:folake"
"""


@pytest.mark.parametrize(
    ("settings", "user", "decided_by"),
    [
        ({"more": IDENTITIES}, FOLAKE, "user:folake"),
        ({"identity": "email"}, ADE, "user:ade@local.example"),
        ({"identity": "email", "more": IDENTITIES}, FOLAKE, "user:folake"),
        ({"identity": "email", "answerers": (EVA,)}, EVA, f"user:slack/T0EXTERN/{EVA}"),
    ],
)
async def test_p5_decided_by_is_stable_and_the_ledger_keeps_the_ids(
    stage: World, settings: dict[str, Any], user: str, decided_by: str
) -> None:
    async with stage.bot(config(stage.producer.url, **settings)):
        card = await stage.ask()
        stage.workspace.change_user(user, name="somebody-else", real_name="Somebody Else")
        await stage.workspace.click(user, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["decided_by"] == decided_by
    team = stage.workspace.state.users[user].team_id
    assert stage.record()["aaep"]["answeredBy"] == {"surface": "slack", "team": team, "user": user}
    assert stage.record()["thread"][1]["from"] == decided_by


async def test_p6_member_whom_slack_does_not_tell_about_is_nobody_who_may_answer(
    stage: World, caplog: pytest.LogCaptureFixture
) -> None:
    stage.workspace.change_user(ADE, hidden="user_not_found")
    stage.workspace.add_user(User("U000HIDDEN", "hidden", "Hidden", "T0EXTERN", hidden="user_not_visible"))
    stage.workspace.channel(AGENTS).members.append("U000HIDDEN")
    async with stage.bot():
        bots = list(stage.bots)
        card = await stage.ask()
        for user in (ADE, "U000HIDDEN"):
            await stage.workspace.click(user, AGENTS, card.ts, label="Yes")
            told = await stage.whisper(user, "You cannot answer this")
            assert "you are not a member of this workspace" in told.text
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False
    told_of = [line for line in caplog.messages if "Slack does not return the user U000HIDDEN" in line]
    assert 1 <= len(told_of) <= len(bots)  # each says so once


@pytest.mark.parametrize(
    ("method", "fault"),
    [("users.info", "delay:60"), ("conversations.members", "429:60"), ("usergroups.users.list", "delay:60")],
)
async def test_start_does_not_wait_until_slack_tells_who_may_answer(
    stage: World, method: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.people.access._LONGEST_CHECK", 1.0)
    stage.workspace.faults.add(method, fault, times=1000)
    begun = time.monotonic()
    async with stage.bot(config(stage.producer.url, answerers=("members", PLATFORM))):
        assert time.monotonic() - begun < 15
        stage.workspace.faults.clear()
        card = await stage.ask()
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["response"] is True


BOTH = ("members", PLATFORM)


async def becomes_degraded(stage: World, *troubles: dict[str, str]) -> None:
    """Returns once every bot says that this is wrong, and nothing else."""
    async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as client:
        for bot in stage.bots:
            url = f"{own_url_of(bot)}/readyz"
            while (await client.get(url)).json()["degraded"] != list(troubles):  # noqa: ASYNC110 - of a server
                await asyncio.sleep(0.01)


@pytest.mark.either_database
@pytest.mark.parametrize("when", ["before the start", "later"])
async def test_disabled_user_group_keeps_nobody_out_whom_another_entry_admits(
    stage: World, when: str
) -> None:
    if when == "before the start":
        stage.workspace.disable_group(PLATFORM)
    async with stage.bot(config(stage.producer.url, answerers=BOTH)):
        if when == "later":
            await becomes_degraded(stage)
            stage.workspace.disable_group(PLATFORM)
        why = f"routes[0].answerers: {PLATFORM} (Slack says no_such_subteam)"
        await becomes_degraded(stage, {"name": "answerers", "why": why})
        card = await stage.ask()
        await stage.workspace.click(GIO, AGENTS, card.ts, label="Yes")
        await stage.whisper(GIO, "you are a guest")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False
        stage.workspace.disable_group(PLATFORM, undo=True)
        await becomes_degraded(stage)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("usergroups.users.list", "429:60"),
        ("*", "delay:60"),
    ],
)
async def test_expired_answer_serves_while_slack_tells_nothing_newer(
    stage: World, method: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOK_UPS", 0.8)  # as in life
    async with stage.bot(config(stage.producer.url, answerers=(PLATFORM,))) as bot:
        card = await stage.ask()
        assert await bot.base.people.group(PLATFORM) == {ONCALL, ADE}
        await bot.base.people.profile(ADE)
        monkeypatch.setattr(directory, "_KEEP", 0.0)  # all of it is out of date
        stage.workspace.faults.add(method, fault, times=100)
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        assert stage.record()["aaep"]["response"] is True
        stage.workspace.faults.clear()
        assert (await stage.reply())["decided_by"].endswith(ADE)


async def test_nobody_is_refused_on_what_slack_said_long_ago(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot(config(stage.producer.url, answerers=(PLATFORM,))) as bot:
        card = await stage.ask()
        assert FOLAKE not in await bot.base.people.group(PLATFORM)
        monkeypatch.setattr(directory, "_KEEP", 0.0)
        bot.base.people._again = 0.0
        stage.workspace.faults.add("usergroups.users.list", "429:60", times=100)
        stage.slack_waits()
        assert not (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
        await stage.whisper(FOLAKE, "Slack did not say who you are")


async def test_start_ends_where_only_a_disabled_user_group_could_answer(stage: World) -> None:
    stage.workspace.disable_group(PLATFORM)
    with pytest.raises(ConfigurationError) as caught:
        async with stage.bot(config(stage.producer.url, answerers=(PLATFORM,))):
            pass
    assert caught.value.problems == (
        f"routes[0].answerers: the user group {PLATFORM}: Slack says no_such_subteam",
    )


async def test_p6_colleague_of_another_workspace_of_the_same_organization_answers(stage: World) -> None:
    stage.workspace.join_enterprise("E0ORG", org_wide=False)
    stage.workspace.change_user(EVA, enterprise_id="E0ELSE")
    stage.workspace.add_user(User("U0COL", "col", "Col", "T0OTHER", enterprise_id="E0ORG"))
    stage.workspace.channel(AGENTS).members.append("U0COL")
    async with stage.bot():
        card = await stage.ask()
        await stage.workspace.click(EVA, AGENTS, card.ts, label="No")
        await stage.whisper(EVA, "you are not a member of this workspace")
        await stage.workspace.click("U0COL", AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["decided_by"] == "user:slack/T0OTHER/U0COL"


async def test_org_wide_installation_starts_and_its_user_groups_answer(stage: World) -> None:
    stage.workspace.join_enterprise("E0ORG", org_wide=True)
    async with stage.bot(config(stage.producer.url, answerers=(PLATFORM,))):
        card = await stage.ask()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.whisper(FOLAKE, "you are not an answerer for this agent")
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        assert (await stage.reply())["decided_by"] == f"user:slack/T0LOCAL/{ADE}"
        await stage.ask("rpl_2", question="And now?")
        assert (await stage.workspace.command(ONCALL, AGENTS, "/clarify", "answer CLR-100001-002 no")).ok
        assert (await stage.reply("rpl_2"))["decided_by"] == f"user:slack/T0LOCAL/{ONCALL}"


@pytest.mark.parametrize(("org_wide", "team"), [(False, "T0LOCAL"), (True, "E0ORG")])
async def test_p5_click_that_names_no_team_is_of_the_home_team(
    stage: World, org_wide: bool, team: str
) -> None:
    if org_wide:
        stage.workspace.join_enterprise("E0ORG", org_wide=True)
    async with stage.bot():
        card = await stage.ask()
        payload = of_a_click(stage, ADE, card)
        payload["team"] = None
        del payload["user"]["team_id"]
        assert (await stage.workspace.link.deliver("interactive", payload)).ok
        assert (await stage.reply())["decided_by"] == f"user:slack/{team}/{ADE}"
    by = stage.record()["aaep"]["answeredBy"]
    assert by == {"surface": "slack", "team": team, "user": ADE}


async def test_p6_refused_click_is_said_where_the_click_was(stage: World) -> None:
    """Not in the card's thread, which nobody who clicks in the channel has open."""
    async with stage.bot():
        root = await stage.ask("rpl_1", question="First?")
        broadcast = await stage.ask("rpl_2", question="Second?")  # in the thread, and in the channel
        assert broadcast.thread_ts == root.ts
        for card in (root, broadcast):
            known = len(stage.workspace.ephemerals(GIO))
            await stage.workspace.click(GIO, AGENTS, card.ts, label="Yes")
            told = (await stage.until(partial(_whispered, stage, known)))[0]
            assert "You cannot answer this" in told.text
            assert (told.channel, told.thread_ts) == (AGENTS, None)
        assert stage.calls("response_url") == 2
        assert stage.calls("chat.postEphemeral") == 0
        assert {stage.record(number=number)["status"] for number in (0, 1)} == {"pending"}


def _whispered(stage: World, known: int) -> list[Ephemeral]:
    return stage.workspace.ephemerals(GIO)[known:]


async def test_p6_refused_click_whose_response_url_does_not_work_is_said_beside_it(tmp_path: Path) -> None:
    async with scene(tmp_path, replace(PATIENT, response_uses=0)) as stage, stage.bot():
        card = await stage.ask("rpl_1", question="First?")
        await stage.ask("rpl_2", question="Second?")
        await stage.workspace.click(GIO, AGENTS, card.ts, label="Yes")
        told = await stage.whisper(GIO, "You cannot answer this")
        assert (told.channel, told.thread_ts) == (AGENTS, None)
        assert stage.calls("chat.postEphemeral") == 1
