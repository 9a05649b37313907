"""Every step of a message, by what is stored of it, what it should be, and what came of the last call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.show.desired import Desired
from bot.show.lanes import Again, Done, NotYet
from bot.show.messages import MessageRow
from bot.show.steps import NO_TROUBLE, NOT_NEEDED, PostTrouble, Step, Tried, next_step
from bot.slackapi import Later, Never, Sent, Unknown
from bot.views.render import RenderedMessage

NEW = MessageRow("card:CLR-1-001:1", "card", "C1", "CLR-1-001", 1, "planner", "ses")
BEGUN = replace(NEW, channel="C1", intent_at=100.0)
THERE = replace(NEW, channel="C1", ts="1.1", shown="old")
OPEN = Desired(
    RenderedMessage("Deploy?", []), "new", final=False, channel="C1", metadata={}, matches={}, needed=True
)
OVER = replace(OPEN, needed=False, final=True)
UNWANTED = replace(OPEN, unwanted=True)
GONE = replace(OVER, gone=True, unwanted=True)
IN_THREAD = replace(OPEN, thread_ts="1.0")
SENT = Sent("C1", "1.1")
BUSY, SILENT = Later("ratelimited", 7.0), Unknown("timeout")
NO_PLACE, NO_SCOPE = Never("is_archived", "place"), Never("missing_scope", "app")
NO_DELETE = Never("cant_delete_message", "content")
NO_BLOCKS, NO_MESSAGE = Never("invalid_blocks", "content"), Never("message_not_found", "message")


@pytest.mark.parametrize(
    ("row", "desired", "tried", "step"),
    [
        (NEW, OPEN, None, Step("post")),
        (NEW, replace(OPEN, waits=True), None, Step(None, Again(1.0))),
        (NEW, UNWANTED, None, Step("set aside")),
        (replace(NEW, kind="page"), UNWANTED, None, Step("give up", reason=NOT_NEEDED)),
        (NEW, OPEN, Tried("open", NO_PLACE), Step("unplaceable", reason="is_archived")),
        (NEW, OPEN, Tried("open", BUSY), Step(None, Again(7.0, pause=True))),
        (NEW, OPEN, Tried("open", SILENT), Step(None, Again(None, pause=True))),
        (NEW, OPEN, Tried("post", SENT), Step("landed", Done(posted=True))),
        (NEW, OPEN, Tried("post", None), Step(None, Again(1.0))),
        (NEW, OPEN, Tried("post", BUSY), Step(None, Again(7.0, pause=True, posted=True))),
        (NEW, OPEN, Tried("post", Later("down")), Step(None, Again(None, pause=True, posted=True))),
        (NEW, OPEN, Tried("post", SILENT), Step(None, Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", NO_SCOPE), Step(None, Again(30.0))),
        (NEW, OPEN, Tried("post", NO_BLOCKS), Step("plain", Again(0.0))),
        (NEW, OPEN, Tried("post", NO_PLACE), Step("unplaceable", reason="is_archived")),
        (NEW, OPEN, Tried("post", NO_MESSAGE), Step("unplaceable", reason="message_not_found")),
        (NEW, IN_THREAD, Tried("post", NO_MESSAGE), Step("move", Again(0.0))),
        (BEGUN, OPEN, None, Step("look up")),
        (BEGUN, UNWANTED, None, Step("look up")),
        (BEGUN, OPEN, Tried("look up", SENT, 100.5), Step("found")),
        (BEGUN, OPEN, Tried("look up", None, 100.0), Step(None, Again(0.5))),
        (BEGUN, OPEN, Tried("look up", None, 100.5), Step(None, Again(0.5))),
        (BEGUN, OPEN, Tried("look up", None, 101.0), Step(None, Again(1.0))),
        (BEGUN, OPEN, Tried("look up", None, 102.0), Step(None, Again(3.0))),
        (BEGUN, OPEN, Tried("look up", None, 105.0), Step("post")),
        (BEGUN, OPEN, Tried("look up", None, 99.0), Step("post")),  # the clock went back
        (BEGUN, UNWANTED, Tried("look up", None, 105.0), Step("give up", reason=NOT_NEEDED)),
        (BEGUN, OPEN, Tried("look up", BUSY, 105.0), Step(None, Again(7.0, pause=True))),
        (BEGUN, OPEN, Tried("look up", SILENT, 105.0), Step(None, Again(1.0))),
        (BEGUN, OPEN, Tried("look up", NO_SCOPE, 105.0), Step(None, Again(30.0))),
        (BEGUN, OPEN, Tried("look up", NO_PLACE, 105.0), Step("post")),
        (THERE, OPEN, None, Step("update")),
        (replace(THERE, shown="new"), OPEN, None, Step()),
        (replace(THERE, shown="new"), OVER, None, Step("shown")),
        (replace(THERE, shown="new", final=True), OVER, None, Step()),
        (THERE, OPEN, Tried("update", SENT), Step("shown")),
        (THERE, OPEN, Tried("update", BUSY), Step(None, Again(7.0, pause=True))),
        (THERE, OPEN, Tried("update", SILENT), Step("may change", Again(None, pause=True))),
        (THERE, OPEN, Tried("update", NO_SCOPE), Step(None, Again(30.0))),
        (THERE, OPEN, Tried("update", NO_MESSAGE), Step("move", Again(0.0))),
        (THERE, OPEN, Tried("update", NO_PLACE), Step("unplaceable", reason="is_archived")),
        (THERE, OVER, Tried("update", NO_MESSAGE), Step("give up", reason="message_not_found")),
        (THERE, OVER, Tried("update", NO_PLACE), Step("give up", reason="is_archived")),
        (THERE, GONE, None, Step("delete")),
        (NEW, GONE, None, Step("set aside")),
        (replace(THERE, shown="new"), GONE, None, Step("shown")),  # people replied: it was updated
        (THERE, GONE, Tried("delete", SENT), Step("deleted")),
        (THERE, GONE, Tried("delete", None), Step("update")),
        (THERE, GONE, Tried("delete", NO_DELETE), Step("update")),
        (THERE, GONE, Tried("delete", BUSY), Step(None, Again(7.0, pause=True))),
        (THERE, GONE, Tried("delete", SILENT), Step(None, Again(None, pause=True))),
    ],
)
def test_next_step(row: MessageRow, desired: Desired, tried: Tried | None, step: Step) -> None:
    assert next_step(row, desired, tried, paused=False) == step


@pytest.mark.parametrize(
    ("row", "desired", "tried", "step"),
    [
        (NEW, OPEN, None, Step("postpone", NotYet())),
        (BEGUN, OPEN, None, Step("look up")),
        (BEGUN, OPEN, Tried("look up", None, 105.0), Step("postpone", NotYet())),
        (THERE, OPEN, None, Step("update")),
    ],
)
def test_next_step_while_posting_is_paused(
    row: MessageRow, desired: Desired, tried: Tried | None, step: Step
) -> None:
    assert next_step(row, desired, tried, paused=True) == step


@pytest.mark.parametrize("row", [NEW, THERE])
def test_what_is_refused_also_as_plain_text_cannot_be_placed(row: MessageRow) -> None:
    tried = Tried("update" if row.ts else "post", NO_BLOCKS)
    step = next_step(row, OPEN, tried, paused=False, trouble=PostTrouble("plain", "invalid_blocks", 1))
    assert step == Step("unplaceable", reason="invalid_blocks")


NEW_CODE = Never("brand_new_code", "unknown")
FAILS = Unknown("internal_error")


@pytest.mark.parametrize(
    ("row", "desired", "tried", "trouble", "step"),
    [
        (NEW, OPEN, Tried("post", NEW_CODE, 100.0), PostTrouble("full", "", 1, 100.0), Step(None, Again(15.0, posted=True))),
        (THERE, OVER, Tried("update", NEW_CODE, 399.0), PostTrouble("full", "", 9, 100.0), Step(None, Again(15.0))),
        (THERE, OVER, Tried("update", NEW_CODE, 400.0), PostTrouble("full", "", 9, 100.0), Step("plain", Again(0.0))),
        (NEW, OPEN, Tried("post", NEW_CODE, 400.0), PostTrouble("plain", "", 1, 100.0), Step("unplaceable", reason="brand_new_code")),
        (NEW, OPEN, Tried("post", Later("update_failed", alone=True)), PostTrouble(), Step(None, Again(15.0, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("full", "internal_error", 2), Step(None, Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("full", "internal_error", 3), Step("classic", Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("classic", "internal_error", 3), Step("plain", Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("plain", "internal_error", 3), Step("unplaceable", Again(30.0, posted=True), "internal_error")),
        (NEW, OPEN, Tried("post", SILENT), PostTrouble("full", "timeout", 9), Step(None, Again(0.5, posted=True))),
        (THERE, OVER, Tried("update", FAILS), PostTrouble("full", "internal_error", 3), Step("classic", Again(0.5))),
        (THERE, OVER, Tried("update", FAILS), PostTrouble("plain", "internal_error", 3), Step("may change", Again(30.0), "internal_error")),
        (THERE, OVER, Tried("update", Never("edit_window_closed", "message")), PostTrouble(), Step("say below", reason="edit_window_closed")),
        (THERE, OPEN, Tried("update", Never("edit_window_closed", "message")), PostTrouble(), Step("move", Again(0.0))),
    ],
)  # fmt: skip
def test_step_after_several_refusals(
    row: MessageRow, desired: Desired, tried: Tried, trouble: PostTrouble, step: Step
) -> None:
    assert next_step(row, desired, tried, paused=False, trouble=trouble) == step


def test_trouble_counts_the_same_refusal_of_the_same_layout() -> None:
    once = NO_TROUBLE.after("internal_error", 10.0)
    twice = once.after("internal_error", 20.0)
    assert (twice.count, twice.since) == (2, 10.0)
    assert twice.after("other", 30.0) == PostTrouble("full", "other", 1, 30.0)
    assert twice.plainer("classic").after("internal_error", 40.0) == PostTrouble(
        "classic", "internal_error", 1, 10.0
    )
