"""Promise P7 to its end: what nobody answers is nudged, escalated, and paged step by step until somebody has it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from bot.oncall import pageview
from bot.oncall.incidents import Incident
from bot.views.blockkit import Draft
from bot.views.page import PageContent, page_card
from core.clarification import Decider, Holder
from core.escalation import NewIncident
from tests.kit.until import until
from tests.kit.world import controls, said, url_of
from tests.scenario.pagers import ALL, FIRST, SECOND, WORDS, Night, asked_and_paged, night, pager, step
from tests.scenario.typist import command, words
from workspace.controls import controls as found_controls
from workspace.seed import ADE, AGENTS, ARCHIVED, FALLBACK, FOLAKE, ONCALL, PLATFORM
from workspace.state import Message


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Night]:
    speed = request.node.get_closest_marker("speed")
    async with night(tmp_path, speed=speed.args[0] if speed else 1.0) as made:
        yield made


@pytest.mark.parametrize(
    ("answerers", "called"),
    [(("members",), ""), ((ADE, PLATFORM), f"<@{ADE}> <!subteam^{PLATFORM}>\n")],
)
async def test_p7_question_that_nobody_answers_is_nudged_then_escalated_then_paged(
    stage: Night, answerers: tuple[str, ...], called: str
) -> None:
    async with stage.bot(stage.config(answerers=answerers)) as bot:
        card = await stage.ask(timeout_seconds=3600, default_response="no")
        await stage.later(bot, minutes=31)
        nudge = await stage.message("still waiting")
        assert nudge.text.startswith(f"Planner is still waiting · {FIRST}.\n{called}“Shall I go on?”\n")
        assert (nudge.thread_ts, nudge.broadcast) == (card.ts, False)
        assert "the agent uses its default: “no”" in nudge.text
        reminded = await stage.now_says(card, "Reminder sent")
        assert reminded.text.count("Reminder sent") == json.dumps(reminded.blocks).count("Reminder sent") == 1
        in_channel = [m.ts for m in stage.workspace.messages(AGENTS) if m.thread_ts is None or m.broadcast]
        assert in_channel == [card.ts], "a question is one message in its channel"
        assert not stage.pages()

        await stage.later(bot, minutes=15)
        page = await stage.live("No answer, even after a reminder")
        thread = await stage.live("No answer, even after a reminder", AGENTS)
        assert (thread.thread_ts, f"<@{ONCALL}>" in thread.text) == (card.ts, True)
        await stage.becomes(card, "Escalated")
        await stage.press(page, "Yes")
        assert (await stage.reply())["response"] is True
        settled = await stage.now_says(nudge, "is no longer waiting")
        assert "Reminder sent" not in said(await stage.now_says(card, f"Answered: “Yes” by <@{ONCALL}>"))
        for told in ("still waiting", "Answer on its card", ONCALL):
            assert told not in said(settled)
    assert stage.record()["aaep"]["nudges"] == 1


async def test_reminder_of_a_question_that_ended_says_so_and_its_card_how(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        card = await stage.ask(timeout_seconds=3600)
        await stage.later(bot, minutes=31)
        nudge = await stage.message("still waiting")
        await stage.says("session.cancelled")
        await stage.now_says(card, "Cancelled: the agent no longer needs an answer")
        settled = await stage.now_says(nudge, "is no longer waiting")
        assert "still waiting" not in said(settled)


@pytest.mark.needs("ledgerfiles")
async def test_reminder_is_settled_also_when_the_answer_came_while_the_bot_was_down(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        card = await stage.ask(timeout_seconds=3600, **WORDS)
        await stage.later(bot, minutes=31)
        nudge = await stage.message("still waiting")
        await stage.in_step()
    ledger = stage.ledger(100001)
    [record] = ledger["clarifications"]
    record["status"] = "answered"
    record["thread"].append(
        {"round": 1, "from": "architect", "type": "answer", "body": "Go on", "timestamp": record["created"]}
    )
    stage.write_ledger(100001, ledger)
    async with stage.bot(stage.config()):
        await stage.now_says(nudge, "is no longer waiting")
        assert "Go on" in said(await stage.now_says(card, "by agent:architect"))


async def test_no_reminder_is_sent_in_the_second_a_question_ends(tmp_path: Path) -> None:
    # Its last seconds take ten times as long: a busy machine does not miss them.
    async with night(tmp_path, speed=0.1) as stage, stage.bot(stage.config()) as bot:
        card = await stage.ask(timeout_seconds=3600)
        await stage.later(bot, seconds=3597)
        await until(lambda: stage.record()["aaep"].get("nudges"))
        await stage.later(bot, seconds=5)
        await stage.now_says(card, "Expired")
        await stage.ask(
            "rpl_2", session="sess_two", question="And now?"
        )  # what was due before it is there by now
        assert not [m for m in stage.workspace.messages(AGENTS) if "still waiting" in said(m)]


async def test_page_holds_all_that_it_takes_to_decide_in_blocks_and_in_text_alone(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card, page = await asked_and_paged(
            stage, context="The gate is red", default_response="no", timeout_seconds=5400
        )
        for shown in (page.text, str(page.blocks)):
            for words in (
                "Planner",
                FIRST,
                "Shall I go on?",
                "The gate is red",
                "it is urgent",
                "89 min left",
            ):
                assert words in shown, words
            assert "uses its default: “no”" in shown
        assert controls(page) == ["Yes", "No", "Go to the question", *ALL]
        links = [control.element.get("url") for control in found_controls(page.blocks)]
        assert stage.workspace.permalink(AGENTS, card.ts) in links


@pytest.mark.parametrize(
    ("notify", "places"),
    [
        ("thread", [AGENTS]),
        ("dm", [ONCALL]),
        (f"group:{PLATFORM}", [ADE, ONCALL]),
        (f"channel:{AGENTS}", [AGENTS]),
        (f"channel:{FALLBACK}", [FALLBACK]),
    ],
)
async def test_step_tells_whom_its_notify_names(stage: Night, notify: str, places: list[str]) -> None:
    async with stage.bot(stage.config(step("0s", notify))):
        card, _ = await asked_and_paged(stage, places[0])
        for place in places:
            page = await stage.live("Shall I go on?", place, wants=["Yes", *ALL])
            if place.startswith("C"):
                assert f"<@{ONCALL}>" in page.text
                assert page.thread_ts == (card.ts if place == AGENTS else None)


@pytest.mark.needs("apprise")
async def test_pager_outside_slack_is_told_the_question_and_what_is_assumed(stage: Night) -> None:
    async with pager() as outside:
        stage.environ["PAGER_URL"] = outside.url
        text = stage.config(step("0s", "apprise:PAGER_URL"), step("15m", "dm"))
        async with stage.bot(text) as bot:
            card = await stage.ask(default_response="no", timeout_seconds=5400)
            await stage.escalate()
            told = await outside.says("Shall I go on?")
            assert FIRST in told["title"]
            for words in (
                "89 min left",
                "uses its default: “no”",
                stage.workspace.permalink(AGENTS, card.ts),
            ):
                assert words in told["message"]
            await stage.later(bot, minutes=15)
            await stage.live("Shall I go on?")
        assert len(outside.told) == 1


@pytest.mark.needs("apprise")
async def test_pager_that_refuses_is_passed_over_at_once(stage: Night) -> None:
    async with pager() as outside:
        outside.refuses = True
        stage.environ["PAGER_URL"] = outside.url
        async with stage.bot(stage.config(step("0s", "apprise:PAGER_URL"), step("15m", "dm"))):
            await asked_and_paged(stage)
        assert outside.asked


def hours_from_now(stage: Night, begin: int, end: int) -> str:
    """Hours that begin and end so many hours from now in Kathmandu, a zone that is no whole hours from UTC."""
    now = stage.clock.now().astimezone(ZoneInfo("Asia/Kathmandu"))
    return "-".join(f"{now + timedelta(hours=each):%H:%M}" for each in (begin, end))


@pytest.mark.needs("apprise")
async def test_step_outside_its_hours_is_passed_over_and_goes_when_they_begin(stage: Night) -> None:
    async with pager() as outside:
        stage.environ["PAGER_URL"] = outside.url
        text = stage.config(
            step("0s", "dm"),
            step("10m", "apprise:PAGER_URL", hours=hours_from_now(stage, 2, 4)),
            step("60m", "dm", f"group:{PLATFORM}"),
            people=f'users = ["{ONCALL}"]\ntimezone = "Asia/Kathmandu"',
        )
        async with stage.bot(text) as bot:
            await stage.ask(timeout_seconds=36_000)
            await stage.escalate()
            await stage.live("Shall I go on?")
            assert not stage.pages(ADE)
            await stage.later(bot, minutes=10)
            page = await stage.live("Shall I go on?", ADE)
            assert not outside.told
            await stage.later(bot, minutes=111)
            await outside.says("Shall I go on?")
            await stage.press(page, "Take", ADE)


async def test_where_no_step_may_go_the_fallback_channel_hears_until_hours_begin(stage: Night) -> None:
    hours = hours_from_now(stage, 2, 4)
    text = stage.config(
        step("0s", "dm", every="5m", hours=hours),
        step("10m", f"group:{PLATFORM}", hours=hours),
        people=f'users = ["{ONCALL}"]\ntimezone = "Asia/Kathmandu"',
    )
    async with stage.bot(text) as bot:
        _, page = await asked_and_paged(stage, FALLBACK)
        assert f"<@{ONCALL}>" in page.text
        assert not stage.pages()
        await stage.later(bot, minutes=121)
        await stage.live("Shall I go on?")


async def test_planned_override_is_told_listed_and_holds_when_its_hour_comes_unless_it_is_taken_back(
    stage: Night,
) -> None:
    text = stage.config(
        step("0s", "dm"), people=f'users = ["{ONCALL}"]\ntimezone = "Asia/Kathmandu"', answerers=(FOLAKE,)
    )
    begins = stage.clock.now().astimezone(ZoneInfo("Asia/Kathmandu")) + timedelta(minutes=61)
    at = f"from {begins:%Y-%m-%dT%H:%M}"
    async with stage.bot(text) as bot:
        hand = f"oncall hand <@{ADE}|ade> {at} for 2h"
        assert f"<@{ADE}> is on call for platform from" in words(await command(stage, hand, ONCALL))
        told = await stage.page("handed you on-call", ADE)
        assert f"<@{ONCALL}> handed you on-call: you are on call for platform from" in told.text
        who = words(await command(stage, "oncall", ONCALL))
        assert f"platform: <@{ONCALL}> (fixed list), until" in who

        take = words(await command(stage, f"oncall take {at} for 1h", FOLAKE))
        assert "You are on call for platform from" in take
        listed = words(await command(stage, "oncall overrides", ADE))
        assert f"1. platform: <@{ADE}> from" in listed
        assert f", by <@{ONCALL}>" in listed
        assert f"2. platform: <@{FOLAKE}> from" in listed
        assert "These people can" in words(await command(stage, "oncall cancel 2", ADE))
        assert f"<@{FOLAKE}> is not on call for" in words(await command(stage, "oncall cancel 2", ONCALL))
        await stage.page("cancelled your override", FOLAKE)
        assert "Override 2 doesn" in words(await command(stage, "oncall cancel 2", ONCALL))

        await stage.later(bot, minutes=62)
        await asked_and_paged(stage, ADE)
        assert not stage.pages()
        assert f"platform: <@{ADE}> (handed over), until" in words(await command(stage, "oncall", ONCALL))
        assert "is over. Nothing was changed" in words(await command(stage, hand, ONCALL))


async def test_channel_that_takes_no_page_is_passed_over_at_once(stage: Night) -> None:
    async with stage.bot(stage.config(step("0s", f"channel:{ARCHIVED}"), step("15m", "dm"))):
        await asked_and_paged(stage)


async def test_page_that_reaches_nobody_is_in_the_fallback_channel_in_the_end(stage: Night) -> None:
    stage.workspace.change_user(ONCALL, deleted=True)
    async with stage.bot(stage.config(step("0s", f"channel:{ARCHIVED}"), step("15m", "dm"))):
        _, page = await asked_and_paged(stage, FALLBACK)
        assert f"<@{ONCALL}>" not in page.text
        await stage.press(page, "Yes", FOLAKE)
        await stage.reply()


async def test_deactivated_person_on_call_is_not_waited_for(stage: Night) -> None:
    stage.workspace.change_user(ONCALL, deleted=True)
    async with stage.bot(stage.config(step("0s", "dm"), step("1h", "thread"))):
        await asked_and_paged(stage, AGENTS)
        assert not stage.pages(ONCALL)


@pytest.mark.either_database
async def test_pages_go_on_after_a_restart_and_nothing_is_doubled(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        card, page = await asked_and_paged(stage)
        await stage.live("is waiting", AGENTS)
        await stage.later(bot)
    async with stage.bot(stage.config()) as bot:
        await stage.ask("rpl_2", session="sess_two", question="And now?", timeout_seconds=36_000)
        await stage.escalate(SECOND)
        await stage.live("And now?")  # what the start brought is there by now
        assert len(stage.about(FIRST)) == 1
        await stage.later(bot, minutes=6)
        again = await stage.live(FIRST, but=[page.ts])
        await stage.gone(page)
        await stage.press(card, "Yes", FOLAKE)
        await stage.reply()
        await stage.gone(again)


async def test_what_was_due_while_the_bot_was_down_is_paged_at_its_start(stage: Night) -> None:
    async with stage.bot(stage.config()):
        await stage.ask(timeout_seconds=3600)
    stage.clock.leap(timedelta(minutes=50))
    async with stage.bot(stage.config()):
        page = await stage.live("Shall I go on?")
        await stage.press(page, "Yes")
        await stage.reply()


async def test_p12_rest_of_a_long_page_is_in_its_thread_and_goes_with_it(stage: Night) -> None:
    """Inert, as the agent wrote it; in the card's thread it stands once, below the card."""

    def rest_of(there: list[Message], page: Message) -> list[Message]:
        return [each for each in there if each.thread_ts == page.ts and key_of(each).startswith("more:")]

    long = "Deploy? " + "Use <!channel> *bold* `code` & a < b, or <https://x|y>? " * 150 + "The end."
    async with stage.bot(stage.config(step("0s", "thread", "dm", every="5m"))) as bot:
        await stage.emit("rpl_1", question=long, timeout_seconds=36_000, **WORDS)
        card = await stage.card("Deploy?")
        await stage.escalate()
        page = await stage.live("Deploy?")
        await stage.until(lambda: any("The end." in said(each) for each in rest_of(stage.pages(), page)))
        rest = rest_of(stage.pages(), page)
        blocks = [block for each in rest for block in each.blocks]
        assert {block["text"]["type"] for block in blocks} == {"plain_text"}
        lines = "\n".join(block["text"]["text"] for block in blocks).split("\n")
        agents = lines[1 : lines.index("Why: it is urgent")]
        assert all(line.startswith("│ ") for line in agents)
        assert "".join("".join(agents).split()).replace("│", "") == "".join(long.split())
        assert not any("<!channel>" in each.text or "<https" in each.text for each in rest)
        below = rest_of(stage.workspace.messages(AGENTS), card)
        assert {key_of(each).rpartition(":")[0] for each in below} == {f"more:card:{FIRST}:1"}

        await stage.later(bot, minutes=5, seconds=1)
        again = await stage.live("Deploy?", but=[page.ts])
        for each in (page, *rest):
            await stage.gone(each)
        await stage.until(lambda: len(rest_of(stage.pages(), again)) == len(rest))


def key_of(message: Message) -> str:
    return str((message.metadata or {}).get("event_payload", {}).get("key", ""))


@pytest.mark.needs("ledgerfiles")
async def test_alike_pages_of_one_moment_are_one_with_their_number(stage: Night) -> None:
    """All four are escalated while the bot is down: it finds them together."""
    async with stage.bot(stage.config()):
        for number in (1, 2, 3, 4):
            await stage.ask(
                f"rpl_{number}",
                question=f"Number {number}?",
                session=f"sess_{number}",
                timeout_seconds=36_000,
                extensions={"agentx": {"issue": 42}},
                **WORDS,
            )
        await stage.in_step(42)
    ledger = stage.ledger(42)
    for record in ledger["clarifications"]:
        record["status"] = "escalated"
    stage.write_ledger(42, ledger)
    async with stage.bot(stage.config()):
        page = await stage.live("Escalated: 4 waiting", wants=["Take all", "Open"])
        for number in (1, 2, 3, 4):
            assert f"Number {number}?" in page.text
        await stage.press(page, "Open CLR-42-002")
        await stage.modal(ONCALL)
        assert (await stage.workspace.submit_view(ONCALL, {"Your answer": "By day"})).ok
        assert (await stage.reply("rpl_2"))["response"] == "By day"
        page = await stage.becomes(page, "Escalated: 3 waiting")
        assert "CLR-42-002" not in said(page)
        await stage.press(page, "Take all")
        for number in (1, 3, 4):
            card = await stage.card(f"Number {number}?")
            await stage.becomes(card, f"Claimed by <@{ONCALL}>")


@pytest.mark.speed(10)
@pytest.mark.either_database
async def test_p12_from_four_on_a_person_has_one_page_that_lists_them(stage: Night) -> None:
    async def ask(number: int) -> Message:
        token, session = f"rpl_{number}", f"sess_{number}"
        card = await stage.ask(token, session=session, question=f"Number {number}?", timeout_seconds=36_000)
        await stage.escalate(f"CLR-10000{number}-001")
        return card

    def in_thread(card: Message) -> list[str]:
        return [each.ts for each in stage.workspace.thread(AGENTS, card.ts)]

    async def only(*numbers: int) -> Message:
        """The page that lists these questions, once it stands alone."""

        def find() -> Message | None:
            pages = stage.pages()
            asked = {number for page in pages for number in range(1, 7) if f"Number {number}?" in said(page)}
            return pages[0] if len(pages) == 1 and asked == {*numbers} else None

        found: Message = await stage.until(find)
        return found

    steps = step("0s", "thread", "dm", every="5m")
    async with stage.bot(stage.config(steps)) as bot:
        cards = {}
        for number in (1, 2, 3):
            cards[number] = await ask(number)
            await stage.live(f"Number {number}?", wants=ALL)
        assert len(stage.pages()) == 3
        cards[4] = await ask(4)
        page = await only(1, 2, 3, 4)
        assert controls(page) == ["Open"] * 4 + ["Take all", "Hand to…", "Snooze", "Not mine"]
        assert "Since" in page.text
        assert "left when this was sent" in page.text
        mentioned = {number: in_thread(card) for number, card in cards.items()}
        await stage.later(bot, minutes=5, seconds=1)
        again = await stage.live("Escalated: 4 waiting", wants=["Take all"], but=[page.ts])
        await stage.gone(page)
        assert (await only(1, 2, 3, 4)).ts == again.ts, "one page repeats all four"
        assert {number: in_thread(card) for number, card in cards.items()} == mentioned
        cards[5] = await ask(5)
        page = await only(1, 2, 3, 4, 5)
        for number in (1, 2, 3):
            await stage.press(cards[number], "Yes", FOLAKE)
        assert (await only(4, 5)).ts == page.ts, "what is over disappears from it"
        cards[6] = await ask(6)
        page = await only(4, 5, 6)
        await stage.press(page, "Take all")
        for number in (4, 5, 6):
            await stage.becomes(cards[number], f"Claimed by <@{ONCALL}>")


async def test_p12_the_same_trouble_is_one_message_in_a_channel_and_counts(stage: Night) -> None:
    def there() -> list[str]:
        return [said(each) for each in stage.workspace.messages(FALLBACK)]

    async with stage.bot(stage.config(step("0s", f"channel:{FALLBACK}"))):
        cards = []
        for number in (1, 2, 3):
            token, session = f"rpl_{number}", f"sess_{number}"
            cards.append(
                await stage.ask(token, session=session, question=f"Number {number}?", timeout_seconds=36_000)
            )
            await stage.escalate(f"CLR-10000{number}-001")
            await stage.live(f"Number {number}?", FALLBACK, wants=["Hand to…"])
        await stage.until(lambda: len(there()) == 1)
        assert "Escalated: 3 waiting" in there()[0]
        assert all(f"Number {number}?" in there()[0] for number in (1, 2, 3))
        await stage.press(cards[0], "Yes", FOLAKE)
        await stage.until(lambda: "Escalated: 2 waiting" in there()[0])
        assert len(there()) == 1


async def test_storm_is_few_pages_and_everything_is_in_one(stage: Night) -> None:
    async with stage.bot(stage.config(step("0s", "dm"))) as bot:
        for number in range(30):
            await bot.board.incidents.raise_(
                NewIncident(f"errored:{number}", "It broke", f"Agent {number} stopped")
            )
            if not number:
                await stage.live("Agent 0 stopped", wants=["Take"])
        assert len(stage.pages()) == 1
        await stage.later(bot, seconds=11)
        page = await stage.live("30", wants=["Take all"])
        assert "And 10 more" in page.text
        await stage.until(lambda: stage.pages() == [page])


async def test_incident_that_cannot_be_paged_stops_nobody(
    stage: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot(stage.config(step("0s", "dm"))) as bot:
        lead = bot.board.policies._destinations_of

        async def poisoned(notify: str, incident: Incident, *rest: Any, **more: Any) -> Any:
            if incident.key == "errored:1":
                raise RuntimeError("poisoned")
            return await lead(notify, incident, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(bot.board.policies, "_destinations_of", poisoned)
            for number in (1, 2):
                await bot.board.incidents.raise_(
                    NewIncident(f"errored:{number}", "why", f"Agent {number} stopped")
                )
            page = await stage.live("Agent 2 stopped", wants=["Take"])
            assert "Agent 1" not in said(page)
        await stage.later(bot, seconds=61)
        await stage.live("Agent 1 stopped", wants=["Take"])


async def test_escalation_that_could_not_be_followed_is_told_and_paged_later(
    stage: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defective(_: object) -> None:
        raise RuntimeError("a defect")

    async with stage.bot(stage.config()) as bot, httpx.AsyncClient(base_url=url_of(bot)) as http:
        await stage.ask(timeout_seconds=36_000)
        with monkeypatch.context() as patched:
            patched.setattr(bot.oncall.escalations, "_follow", defective)
            await stage.escalate()
            await stage.until(bot.oncall.escalations.trouble)
            told = (await http.get("/readyz")).json()["degraded"]
            assert {"name": "pages", "why": f"1 not followed, will retry: {FIRST}"} in told
        await stage.later(bot, seconds=61)
        await stage.live("Shall I go on?")
        assert bot.oncall.escalations.trouble() is None


async def test_what_was_escalated_as_the_process_died_is_paged_by_the_next(
    stage: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is escalated, and there is no incident yet: the feed tells of it again."""

    async def nothing() -> None:
        pass

    async with stage.bot(stage.config()) as bot:
        await stage.ask(timeout_seconds=36_000)
        monkeypatch.setattr(bot.oncall.escalations, "work", nothing)
        await bot.base.router.escalate(FIRST, "by hand")
        await until(lambda: bot.feed.idle)
    async with stage.bot(stage.config()):
        await stage.live("Shall I go on?")


@pytest.mark.parametrize("what", ["taken", "handed", "withdrawn"])
async def test_what_became_of_a_question_as_the_process_died_counts_for_its_pages(
    stage: Night, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The record has it, and the incident has not."""

    async def nothing() -> None:
        pass

    async with stage.bot(stage.config()) as bot:
        _, page = await asked_and_paged(stage)
        monkeypatch.setattr(bot.oncall.escalations, "work", nothing)
        router, holder = bot.base.router, Holder(user=ADE, team="T0LOCAL", at=stage.clock.now())
        match what:
            case "taken":
                await router.take(FIRST, holder)
            case "handed":
                await router.hand(FIRST, holder)
            case _:
                await router.abandon(FIRST, Decider("user:os/ann@host", "shell"))
    async with stage.bot(stage.config()) as bot:
        match what:
            case "taken":
                await stage.becomes(page, f"Claimed by <@{ADE}>")
            case "handed":
                await stage.live("Shall I go on?", ADE)
            case _:
                await stage.gone(page)
        await stage.later(bot, minutes=6)
        assert len(stage.about(FIRST)) == (0 if what == "withdrawn" else 1)


async def test_page_that_cannot_be_laid_out_says_that_there_is_one(
    stage: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(content: PageContent) -> Draft:
        if content.only is not None and content.only.record is not None:
            raise KeyError("a fault of ours")
        return page_card(content)

    monkeypatch.setattr(pageview, "page_card", broken)
    async with stage.bot(stage.config(step("0s", "dm"))):
        await stage.ask(timeout_seconds=36_000)
        await stage.escalate()
        await stage.live("The bot's log has the reason", wants=["Take"])
