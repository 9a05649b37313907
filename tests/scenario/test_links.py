"""Agents' addresses in Slack: what may be clicked by `links` of the producer that asked, in every kind of message."""

from __future__ import annotations

from typing import Any

import httpx

from bot.app import Bot
from tests.kit.times import walk
from tests.kit.world import World, config, url_of
from tests.scenario.test_questions import Asker
from tests.scenario.typist import command, words
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL

PULL, ISSUE = "https://github.com/acme/shop/pull/7", "https://github.com/acme/shop/issues/9"
BAD = ("https://github.com/acme-evil/x", "https://github.com/acme/../evil", "https://ann@github.com/acme/x")
TEXT = f"Merge {PULL}? Not {', '.join(BAD)}."
TABLES = """
[[producers]]
name = "reviewer"
token_env = "REVIEWER_TOKEN"
links = ["https://github.com/acme/*"]

[[producers]]
name = "other"
token_env = "OTHER_TOKEN"
"""


def configured(stage: World) -> str:
    stage.environ |= {"REVIEWER_TOKEN": "reviewer-token", "OTHER_TOKEN": "other-token"}
    text = config(stage.producer.url, more=TABLES)
    return text.replace('dialect = "auto"\n', 'dialect = "auto"\nlinks = ["https://github.com/acme/*"]\n', 1)


def links(payload: Any) -> list[str]:
    """Where links lead; each shows its whole address."""
    found = [each for each in walk(payload) if each.get("type") == "link"]
    assert all(set(each) <= {"type", "url", "style"} for each in found)
    return [each["url"] for each in found]


def safe(stage: World, *users: str) -> set[str]:
    """Where links lead, in all that is there; nothing that Slack reads for markup has an address of the agent's."""
    workspace = stage.workspace
    messages = [*workspace.messages(AGENTS)]
    for user in users:
        messages += [*workspace.direct(user)]
    for message in messages:
        assert not message.mrkdwn  # so that Slack makes no link of the fallback text
    everything: list[Any] = [message.blocks for message in messages]
    for user in users:
        everything += [each.blocks for each in workspace.ephemerals(user)]
        everything += [
            each.payload for each in (*workspace.views(user), workspace.home(user)) if each is not None
        ]
    for item in walk(everything):
        if item.get("type") == "mrkdwn":
            assert "<http" not in item["text"].replace(f"<{workspace.url}", ""), item["text"]
    return set(links(everything))


def caller(bot: Bot, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url_of(bot), headers={"Authorization": f"Bearer {token}"}, timeout=60)


async def test_p8_question_over_http_links_only_what_its_producer_may(stage: World) -> None:
    async with (
        stage.bot(configured(stage)) as bot,
        caller(bot, "reviewer-token") as reviewer,
        caller(bot, "other-token") as other,
    ):
        markdown = f"**See** {ISSUE}, `{PULL}`\n\n* {BAD[0]}\n* [the safe one]({BAD[1]})"
        await Asker(reviewer).ask(question=TEXT, context=markdown)
        card = await stage.card("Merge ")
        assert links(card.blocks) == [PULL, ISSUE]
        assert all(each in card.text for each in (PULL, ISSUE, *BAD))
        shown = words(card)
        assert [each for each in (*BAD, PULL) if each not in shown] == []

        await Asker(other).ask(agent="reviewer", question=f"Really? {PULL}")
        assert links((await stage.card("Really?")).blocks) == []

        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
        assert links((await stage.modal(FOLAKE)).payload) == [PULL, ISSUE]
        await stage.workspace.submit_view(FOLAKE, {"answer.freetext": f"See {ISSUE} and {BAD[0]}"})
        done = await stage.now_says(card, f"<@{FOLAKE}>")
        assert links(done.blocks) == [PULL]
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="View full")
        assert set(links((await stage.modal(FOLAKE)).payload)) == {PULL, ISSUE}
        assert safe(stage, FOLAKE) == {PULL, ISSUE}


async def test_p8_event_links_only_what_its_producer_may_in_all_kinds_of_messages(stage: World) -> None:
    async with stage.bot(configured(stage)):
        long = f"{TEXT} {'word ' * 3000}"
        await stage.emit("rpl_1", question=TEXT, context=TEXT, default_response=TEXT, session="one")
        await stage.emit(
            "rpl_2", question=f"All of it? {long}", session="two", accepted_response_kinds=["freetext"]
        )
        card = await stage.card("Merge ")
        assert links(card.blocks)[0] == PULL
        whole = await stage.card("All of it?")
        await stage.until(
            lambda: len(stage.workspace.thread(AGENTS, whole.ts)) > 2
        )  # the whole text in pieces
        await stage.workspace.click(FOLAKE, AGENTS, whole.ts, label="View full")
        assert links((await stage.modal(FOLAKE)).payload) == [PULL]
        await stage.says("session.errored", urgency="critical", summary_normal=TEXT, remediation_hint=TEXT)
        await stage.message("stopped with an error")
        for text in ("", "CLR-100001-001", "agents", "mine"):
            await command(stage, text)
        await command(stage, "escalate CLR-100001-001 it is late", FOLAKE)
        page = await stage.page("it is late")
        assert PULL in links(page.blocks)
        await stage.workspace.open_home(ADE)
        await stage.until(lambda: stage.workspace.home(ADE))
        assert safe(stage, FOLAKE, ADE, ONCALL) == {PULL}
        for message in stage.workspace.thread(AGENTS, whole.ts):
            assert not message.mrkdwn


async def test_p8_approval_shows_what_is_linked_exactly(stage: World) -> None:
    async with stage.bot(configured(stage)) as bot, caller(bot, "reviewer-token") as http:
        other = "https://GitHub.com/acme/shop/pull/8"
        await Asker(http).ask(
            action=f"Merge {PULL} and {other}", arguments={"url": ISSUE, "code": other, "bad": BAD[1]}
        )
        card = await stage.card("Merge ")
        assert set(links(card.blocks)) <= {PULL, ISSUE}
        assert PULL in links(card.blocks)
        assert [each for each in (other, BAD[1]) if each not in words(card)] == []
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        state = await stage.until(lambda: stage.record()["aaep"].get("response"))
        assert state
        assert safe(stage, FOLAKE) <= {PULL, ISSUE}


async def test_p8_card_takes_up_a_changed_list_at_its_next_change(stage: World) -> None:
    allowed = configured(stage)
    async with stage.bot(allowed):
        await stage.emit(question=TEXT)
        card = await stage.card("Merge ")
        assert links(card.blocks) == [PULL]
    async with stage.bot(
        allowed.replace("https://github.com/acme/*", "https://github.com/acme/shop/issues/*")
    ):
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Take")
        changed = await stage.now_says(card, "Claimed by")
        assert links(changed.blocks) == []
        assert PULL in words(changed)
