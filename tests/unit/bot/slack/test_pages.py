"""The listeners of pages: what they hand on, and what they do with the reaction."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from bot.pagecodec import HAND_ACTION, HAND_BLOCK, HAND_CALLBACK, PagePress, action_id
from bot.people import Person, Reaction
from bot.seal import seal
from bot.workspace.seed import ADE, FOLAKE, TEAM
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import Bot

MODAL = {
    "type": "modal",
    "callback_id": HAND_CALLBACK,
    "private_metadata": PagePress("hand", 7).pack(),
    "title": {"type": "plain_text", "text": "Hand over"},
    "submit": {"type": "plain_text", "text": "Hand over"},
    "blocks": [
        {
            "type": "input",
            "block_id": HAND_BLOCK,
            "label": {"type": "plain_text", "text": "To whom"},
            "element": {"type": "users_select", "action_id": HAND_ACTION},
        }
    ],
}


class Actions:
    def __init__(self, reaction: Reaction) -> None:
        self.reaction = reaction
        self.pressed: list[tuple[PagePress, Person]] = []
        self.handed: list[tuple[PagePress, str, Person]] = []

    async def press(self, press: PagePress, person: Person) -> Reaction:
        self.pressed.append((press, person))
        return self.reaction

    async def submit_hand(self, press: PagePress, user: str, person: Person) -> Reaction:
        self.handed.append((press, user, person))
        return self.reaction


async def page(bot: Bot, press: PagePress | str) -> tuple[str, str]:
    """A direct message with one control."""
    value = press if isinstance(press, str) else press.pack()
    button = {"type": "button", "action_id": action_id("take"), "value": value,
              "text": {"type": "plain_text", "text": "Take"}}  # fmt: skip
    posted = await bot.web.chat_postMessage(
        channel=ADE, text="A page", blocks=[{"type": "actions", "block_id": "b", "elements": [button]}]
    )
    channel, ts = str(posted["channel"]), str(posted["ts"])

    def work(db: sqlite3.Connection) -> None:
        db.execute(
            "insert into messages (key, kind, target, channel, ts) values ('page:7', 'page', ?, ?, ?)",
            (ADE, channel, ts),
        )
        db.execute(
            "insert into page_sendings (page, via, target, mentions, message) values (7, 'slack', ?, '[]', 'page:7')",
            (ADE,),
        )

    await bot.store.write(work)
    return channel, ts


async def test_press_is_handed_on_and_its_words_told(start: Start) -> None:
    pages = Actions(Reaction("You have it."))
    bot = await start(page_actions=pages)
    channel, ts = await page(bot, PagePress("take", 7, 3))

    assert (await bot.ws.click(ADE, channel, ts, label="Take")).ok

    assert pages.pressed == [(PagePress("take", 7, 3), Person(TEAM, ADE))]
    await bot.ws.wait_for(lambda: bot.told(ADE) == ["You have it."])


async def test_press_that_was_not_recorded_is_told_before_the_acknowledgement(start: Start) -> None:
    bot = await start(page_actions=Actions(Reaction("Busy.", recorded=False)))
    channel, ts = await page(bot, PagePress("take", 7))

    assert (await bot.ws.click(ADE, channel, ts, label="Take")).ok
    assert bot.told(ADE) == ["Busy."]


async def test_press_of_another_release_gets_a_word(start: Start) -> None:
    pages = Actions(Reaction())
    bot = await start(page_actions=pages)
    channel, ts = await page(bot, "9|take|7|0")

    assert (await bot.ws.click(ADE, channel, ts, label="Take")).ok

    await bot.ws.wait_for(lambda: bot.told(ADE))
    assert "another release" in bot.told(ADE)[0]
    assert not pages.pressed


@pytest.mark.parametrize(
    ("reaction", "ok", "errors"),
    [
        (Reaction("Handed over."), True, {}),
        (Reaction(errors={HAND_BLOCK: "A guest cannot take it."}), False, {HAND_BLOCK: "A guest cannot take it."}),
        (Reaction("Busy.", recorded=False), False, {HAND_BLOCK: "Busy."}),
    ],
)  # fmt: skip
async def test_hand_over_is_handed_on(
    start: Start, reaction: Reaction, ok: bool, errors: dict[str, Any]
) -> None:
    pages = Actions(Reaction())
    bot = await start(page_actions=pages)
    sealed = seal(bot.store.installation, str(MODAL["private_metadata"]))
    pages.reaction = Reaction(view=MODAL | {"private_metadata": sealed})
    channel, ts = await page(bot, PagePress("hand", 7))
    assert (await bot.ws.click(ADE, channel, ts, label="Take")).ok
    await bot.ws.wait_for(lambda: bot.ws.views(ADE))
    pages.reaction = reaction

    outcome = await bot.ws.submit_view(ADE, {HAND_BLOCK: FOLAKE})

    assert (outcome.ok, outcome.errors) == (ok, errors)
    assert pages.handed == [(PagePress("hand", 7), FOLAKE, Person(TEAM, ADE))]
