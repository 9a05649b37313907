"""The App Home of the bot as a whole: what it shows, that it follows what happens, and that it is answered from."""

from __future__ import annotations

import pytest

from tests.kit.world import World, controls, question
from tests.scenario.typist import (
    FREE,
    HOSTILE,
    LIN,
    YES_NO,
    assert_inert,
    buttons,
    command,
    of_issue,
    outsider,
    words,
)
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, ONCALL
from workspace.state import View

PATIENCE = 60.0
SECTIONS = ["My inbox", "Claimed by me", "Agents", "Ready queue", "On call", "Recent decisions"]


async def home(stage: World, user: str, *said: str, unsaid: str = "") -> View:
    """The Home tab of somebody who looks at it, once it says all of `said`, and not `unsaid`."""

    def there() -> View | None:
        view = stage.workspace.home(user)
        told = words(view) if view is not None else ""
        done = view is not None and all(each in told for each in said) and not (unsaid and unsaid in told)
        return view if done else None

    found: View = await stage.until(there, PATIENCE)
    return found


def section(view: View, name: str) -> str:
    """What stands in one section."""
    told = words(view)
    following = SECTIONS[SECTIONS.index(name) + 1 :]
    begin = told.index(name)
    end = next((told.index(f"\n{each}", begin) for each in following if f"\n{each}" in told), len(told))
    return told[begin:end]


async def test_home_has_all_sections_and_follows_what_happens_elsewhere(stage: World) -> None:
    async with stage.bot():
        await stage.workspace.open_home(ADE)
        empty = await home(
            stage,
            ADE,
            "No questions are waiting for you.",
            "You haven't claimed any questions.",
            "No decisions yet.",
        )
        assert [words(empty).index(each) for each in SECTIONS] == sorted(
            words(empty).index(each) for each in SECTIONS
        )
        assert f"<@{ONCALL}>" in section(empty, "On call")

        later = await stage.ask(
            "rpl_1", session="sess_1", question="Later?", timeout_seconds=7200, **of_issue(42)
        )
        await stage.ask("rpl_2", session="sess_2", question="Sooner?", timeout_seconds=3600, **of_issue(42))
        view = await home(stage, ADE, "My inbox (2)", "Ready queue (2)")
        inbox = section(view, "My inbox")
        assert inbox.index("Sooner?") < inbox.index("Later?")
        assert "Planner: waiting for a person" in section(view, "Agents")
        assert "waiting for CLR-42-001" in section(view, "Ready queue")

        await command(stage, "escalate CLR-42-001", FOLAKE)
        await command(stage, "oncall take 2h", FOLAKE)
        row = await command(stage, "CLR-42-001")
        assert (await stage.workspace.press_ephemeral(ADE, row, "Take")).ok
        view = await home(stage, ADE, "Claimed by me (1)", f"<@{FOLAKE}>")
        assert "Later?" in section(view, "Claimed by me")
        assert "Claimed by you" in section(view, "Claimed by me")

        await stage.workspace.click(FOLAKE, AGENTS, later.ts, label="Yes")
        view = await home(stage, ADE, "My inbox (1)", "Recent decisions (1)")
        assert "Later?" not in section(view, "My inbox")
        assert "You haven't claimed any questions." in words(view)
        decided = section(view, "Recent decisions")
        assert "“Later?”\n" in decided
        assert f"answered: “Yes” by <@{FOLAKE}>" in decided


async def test_home_is_answered_from_and_others_see_it(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(question="Which port?", **FREE, **of_issue(42))
        await stage.workspace.open_home(ADE)
        await stage.workspace.open_home(FOLAKE)
        await home(stage, FOLAKE, "Which port?")
        await home(stage, ADE, "Which port?")

        assert (await stage.workspace.press_home(ADE, "View full")).ok
        assert "Which port?" in words(await stage.modal(ADE))
        await stage.workspace.close_view(ADE)
        assert (await stage.workspace.press_home(ADE, "Answer…")).ok
        await stage.modal(ADE)
        assert (await stage.workspace.submit_view(ADE, {"Your answer": "8080"})).ok

        reply = await stage.reply()
        assert (reply["response"], reply["decided_by"]) == ("8080", f"user:slack/T0LOCAL/{ADE}")
        assert controls(await stage.now_says(card, "8080")) == ["Verify"]
        for user in (ADE, FOLAKE):
            view = await home(stage, user, "No questions are waiting for you.", "answered: “8080” by")
            assert f"<@{ADE}>" in section(view, "Recent decisions")


async def test_p6_home_shows_only_what_is_theirs(stage: World) -> None:
    async with stage.bot():
        outsider(stage)
        await stage.ask(question="Deploy to production?", **of_issue(42))
        for user in (GIO, LIN):
            await stage.workspace.open_home(user)
            view = await home(
                stage, user, "No questions are waiting for you.", "You don't answer any agents here"
            )
            assert "Deploy" not in words(view)
            assert "Planner" not in words(view)
            assert not buttons(view)
        await command(stage, "escalate CLR-42-001", FOLAKE)
        await stage.workspace.open_home(ONCALL)
        view = await home(stage, ONCALL, "Deploy to production?", "Escalated")
        assert buttons(view) == ["Answer…", "View full"]


async def test_p8_agents_words_are_inert_on_the_home(stage: World) -> None:
    evil = {"agent_id": HOSTILE, "agent_name": HOSTILE}
    async with stage.bot():
        for n, text in enumerate((HOSTILE, f"Answered {HOSTILE}"), start=1):
            asked = question(f"rpl_{n}", session=f"{n} {HOSTILE}", question=text, producer=evil)
            await stage.producer.emit(asked | FREE | of_issue(42, topic=HOSTILE))
        await stage.card("Answered Ping")
        await command(stage, f"answer CLR-42-002 {HOSTILE}", FOLAKE)
        await stage.workspace.open_home(ADE)
        view = await home(stage, ADE, "My inbox (1)", "Recent decisions (1)")
        assert "Ping" in section(view, "Agents")
        assert_inert(view)


@pytest.mark.either_database
async def test_home_is_kept_up_after_a_restart_and_says_what_changed_meanwhile(stage: World) -> None:
    async with stage.bot():
        await stage.ask("rpl_1", session="sess_1", question="Before?", **of_issue(42))
        await stage.workspace.open_home(ADE)
        await home(stage, ADE, "Before?")
    await stage.producer.emit(
        question("rpl_2", session="sess_2", question="Meanwhile?") | YES_NO | of_issue(42)
    )
    async with stage.bot():
        view = await home(stage, ADE, "My inbox (2)", "Meanwhile?")
        assert "Before?" in section(view, "My inbox")


async def test_home_is_brought_up_to_date_by_a_control_of_another_release_but_not_by_another_tab(
    stage: World,
) -> None:
    async with stage.bot() as bot:
        text = {"type": "plain_text", "text": "Old"}
        button = {"type": "button", "action_id": "home.old.1", "value": "0|old", "text": text}
        view = {"type": "home", "blocks": [{"type": "actions", "elements": [button]}]}
        await bot.base.web.views_publish(user_id=ADE, view=view)
        await stage.workspace.open_home(FOLAKE, "messages")

        assert (await stage.workspace.press_home(ADE, "Old")).ok

        await home(stage, ADE, "My inbox")
        assert stage.workspace.home(FOLAKE) is None
