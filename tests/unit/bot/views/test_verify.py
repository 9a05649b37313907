"""The window behind Verify, and which messages have the button."""

from __future__ import annotations

from typing import Any

import pytest

from bot.views.card import card
from bot.views.codec import Press, unseal
from bot.views.forms import full_view
from bot.views.page import page_card
from bot.views.verify import Proof, verify_view
from core.clarification import Clarification
from core.receipts import Checked, Problem, arguments_digest, claims_of
from core.transitions import abandoned, amended
from tests.unit.bot.judges import RENDERER, judge_view, labels, shown
from tests.unit.bot.strategies import NOW, record_of
from tests.unit.bot.views.kit import about, content, judged
from tests.unit.bot.views.test_decided import ANSWERED, APPROVED, AT_LENGTH, REJECTED, decide

KID = "_8sbXhZyN0k-1b2c3d4e5f6g7h8i9j0kAbCdEfGhIj_"  # ends in what Slack's formatting would eat
GOOD = "*Verified.* The signature is good"


def signed(record: Clarification) -> Clarification:
    return amended(record, receipt="e30.e30.e30")


def window(record: Clarification, problem: Problem | None = None, **news: Any) -> str:
    has_claims = problem in {None, "record", "another", "log", "removed", "entry"}
    claims = claims_of(record, "urn:clarify:x") | news.pop("claims", {}) if has_claims else {}
    kid = "" if problem in {"missing", "signature"} else KID
    locale = news.pop("locale", "")
    proof = Proof(Checked(problem, kid, claims), **news)
    view = RENDERER.view(verify_view(record, record.round, proof, locale))
    judge_view(view)
    assert labels(view) == []
    return shown(view["blocks"])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (APPROVED, "Approved by <@U0OTHER> and <@U0GOOD>, <!date^"),
        (REJECTED, "Rejected by user:os/root@&lt;!here&gt;, <!date^"),
        (ANSWERED, "Answered: “65” by <@U0GOOD>, <!date^"),
        (AT_LENGTH, "Answered: “It depends. word"),
        (decide(record_of(), True, "Yes", None), "Answered: “Yes” by"),
        (abandoned(record_of(), "expired", NOW), "Expired, <!date^"),
        (abandoned(record_of(), "withdrawn", NOW), "Withdrawn by the agent, <!date^"),
        (abandoned(record_of(), "by hand", NOW, "user:ade"), "Closed without an answer"),
    ],
)
def test_good_receipt_says_what_was_decided(record: Clarification, said: str) -> None:
    window_ = window(record, place=(17, 230))
    assert window_.startswith(f"{GOOD}, and the question's record says the same as its receipt.")
    for part in (said, f"`{KID}`", "`CLR-42-001/1`", "Entry 17 of 230", "who clicked"):
        assert part in window_
    assert "clarify log --jwt CLR-42-001 | clarify verify -" in window_
    is_consent = record is APPROVED
    assert ("*Approved arguments, SHA-256*" in window_) is is_consent
    if is_consent:
        assert f"`{arguments_digest(record.current.arguments)}`" in window_


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("missing", "The record has no receipt: the decision is from before"),
        ("signature", "The signature is bad"),
        ("key", f"a key that this bot doesn't know: `{KID}`"),
        ("another", "belongs to another question or round: `CLR-42-001/1`"),
        ("record", "the question's record says something else"),
        ("log", "The receipt in the record isn't the one in the log"),
        ("removed", "The log has a receipt for this decision, but the record has none"),
        ("entry", "The log's entry for this decision isn't genuine"),
    ],
)
def test_what_is_wrong_is_told_in_words_and_without_a_tick(problem: Problem, said: str) -> None:
    window_ = window(APPROVED, problem)
    assert window_.startswith("*Not verified.*\n")
    assert said in window_
    warning = "Don't rely on what the card says. Tell the people who run clarify-bot."
    assert (warning in window_) is (problem != "missing")
    assert "Verified" not in window_
    assert "*Verified" not in window_
    assert ("Approved by" in window_) is (problem in {"another", "record", "log", "removed", "entry"})
    assert ("clarify verify" in window_) is (problem != "missing")


def test_place_in_the_log_is_honest() -> None:
    assert "*Place in the log*\nNot in the log yet" in window(ANSWERED)
    assert "Unknown, as the database can't be read now" in window(ANSWERED, is_place_known=False)
    assert "Entry 1204 of 100000" in window(ANSWERED, place=(1204, 100_000))
    assert "Entry 1.204 of 100.000" in window(ANSWERED, place=(1204, 100_000), locale="de-DE")


def test_names_and_answers_in_a_receipt_are_inert() -> None:
    record = decide(record_of(), "<!channel> *now* `x`", "x", None)
    said = window(record, claims={"arguments_sha256": "`<!here>`"})
    for live in ("<!channel>", "<!here>", "*now*", "`x`"):
        assert live not in said


@pytest.mark.parametrize(
    ("record", "is_whole"), [(APPROVED, False), (REJECTED, False), (ANSWERED, False), (AT_LENGTH, True)]
)
def test_closed_card_with_a_receipt_has_verify(record: Clarification, is_whole: bool) -> None:
    record = signed(record)
    message, line = judged(card(record)), judged(card(record, shrinks=True))
    for each in (message, line):
        (menu,) = [block["accessory"] for block in each.blocks if "accessory" in block]
        assert (menu["type"], menu["action_id"]) == ("overflow", "clarify.more")
        presses = [Press.unpack(unseal(option["value"])[1]) for option in menu["options"]]
        assert presses[-1] == Press("verify", record.id, 1)
        assert "actions" not in [block["type"] for block in each.blocks]  # nothing to do any more
    assert labels(message.blocks) == (["Verify"] if is_whole else ["View full", "Verify"])
    assert labels(line.blocks) == ["View full", "Verify"]
    assert labels(RENDERER.view(full_view(record)))[-1] == "Verify"
    item = about(record, state="closed").with_question(record, "https://x.slack.com/p1")
    assert labels(judged(page_card(content(item))).blocks) == [*labels(message.blocks), "Go to the question"]
