"""Cards, pages and modals of confirmations, in fair words and in hostile ones, up to the schema's limits."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.home import Admitted, Snapshot, chosen
from bot.routing import audience_of
from bot.views import inert
from bot.views import wording as consent
from bot.views.card import shows_whole
from bot.views.forms import full_view
from bot.views.lists import choice_of, home, rollup, which_question
from bot.views.markdown import plain
from bot.views.notices import nudge
from bot.views.page import outside_words, page_card
from bot.views.render import RenderedMessage
from bot.views.wording import Verbosity
from core import answers
from core.clarification import Answer, Approval, Clarification, Confirmation, Decider, Direct
from core.errors import AnswerRejected
from core.escalation import escalation_words
from core.ledgerfiles import as_item, read_item
from core.records import dump
from core.transitions import abandoned, amended, answered, escalated, nudged
from tests.kit.times import walk
from tests.unit.bot.judges import (
    RENDERER,
    full_text,
    judge_message,
    judge_view,
    labels,
    numbered,
    shown,
    solid,
)
from tests.unit.bot.strategies import NOW, SLA, record_of, words
from tests.unit.bot.views.kit import Said, about, content, row, told_why

TEXT = 16_384
VERBOSITY = st.sampled_from(["terse", "normal", "detailed"])
many = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXTRA = st.dictionaries(
    words(60), st.recursive(words(300), lambda inner: st.lists(inner, max_size=3)), max_size=4
)


def consent_of(**fields: Any) -> Clarification:
    given_: dict[str, Any] = {
        "type": "aaep:agent.awaiting.confirmation",
        "action": "Transfer $500.",
        "consequence": "Funds move at once.",
        "default_decision": "reject",
        "risk_level": "high",
        "irreversible": True,
    }
    return record_of(**(given_ | fields))


@st.composite
def consents(draw: st.DrawFn) -> Clarification:
    """Any confirmation that the schema allows, and some that it does not."""
    said = words(TEXT).filter(lambda text: any(char.isprintable() and char != " " for char in text))
    fields: dict[str, Any] = {
        "action": draw(said),
        "consequence": draw(said),
        "default_decision": draw(st.sampled_from(["accept", "reject", "<!here>"])),
        "risk_level": draw(st.sampled_from(["low", "medium", "high", None]) | words(200)),
        "irreversible": draw(st.sampled_from([True, False, None])),
        "reversibility": draw(
            st.sampled_from(["reversible", "reversible_with_effort", "irreversible", None])
        ),
        "extra_context": draw(EXTRA),
        "producer": {"agent_id": "p", "agent_name": draw(words(300))},
    }
    if draw(st.booleans()):
        fields |= {"summary_detailed": draw(words(TEXT)), "summary_terse": draw(words(4096))}
    if draw(st.booleans()):
        fields["allowed_replies"] = draw(
            st.sampled_from([["accept"], ["reject"], ["later", "reject", "accept"]])
        )
    record = consent_of(**fields)
    if draw(st.booleans()):
        return record
    return escalated(record, "stale", escalation_words(record, "stale"), NOW)


def wanted_of(record: Clarification) -> Confirmation:
    wanted = record.current.confirmation
    assert wanted is not None
    return wanted


def unmistakable(record: Clarification) -> list[str]:
    """What must be read whole, wherever it is decided."""
    wanted = wanted_of(record)
    said = [consent.risk_words(wanted), consent.warning_words(wanted), consent.silence_words(wanted)]
    return [part for part in said if part]


def judged(record: Clarification, message: RenderedMessage) -> None:
    judge_message(message)
    blocks = shown(message.blocks)
    for part in unmistakable(record):
        assert part in blocks
        assert inert.fallback(part) in message.text
    offered = [label for label in labels(message.blocks) if label in ("Accept", "Reject")]
    assert offered == [consent.LABELS[each] for each in wanted_of(record).allowed]
    cut = "View full" in labels(message.blocks)
    for item in walk(message.blocks):
        fits = not wanted_of(record).asks_twice or fits_dialog(wanted_of(record))
        assert item.get("action_id") != ("clarify.accept" if cut or not fits else "clarify.review")
        if item.get("action_id") == "clarify.accept":
            assert ("confirm" in item) is wanted_of(record).asks_twice
        elif item.get("type") == "button":
            assert "confirm" not in item


def fits_dialog(wanted: Confirmation) -> bool:
    said = f"Action: {inert.line(plain(inert.visible(wanted.action, prose=True), exact=True))}"
    return "\n" not in wanted.action.strip() and inert.size(f"{consent.risk_words(wanted)}\n{said}") <= 300


def squeezed(text: str) -> str:
    return "".join(text.split())


@many
@given(consents(), VERBOSITY)
def test_card_page_and_pager_say_the_stakes_whole_whatever_is_cut(
    record: Clarification, verbosity: Verbosity
) -> None:
    judged(record, RENDERER.card(record, verbosity=verbosity, posted_to_fallback="C0GOOD"))
    judged(record, RENDERER.message(page_card(content(about(record)))))
    title, text = outside_words(content(about(record)))
    assert inert.size(title) <= 120
    assert inert.size(text) <= 3100
    for part in unmistakable(record):
        assert part in text


@many
@given(consents(), st.integers(1, 12))
def test_reply_that_may_decide_one_of_several_is_asked_back_with_the_stakes(
    record: Clarification, count: int
) -> None:
    records = [record.model_copy(update={"id": f"CLR-42-{n:03}"}) for n in range(count)]
    message = RENDERER.message(which_question(records, "0123456789abcdef"))
    judge_message(message)
    wanted = wanted_of(record)
    controls = [item for item in walk(message.blocks) if "action_id" in item]
    assert all(("confirm" in item) is wanted.asks_twice for item in controls)
    if count <= 10 and wanted.asks_twice:
        for item in controls:
            assert consent.risk_words(wanted) in item["confirm"]["text"]["text"]


@many
@given(consents())
def test_everything_can_be_read_in_full(record: Clarification) -> None:
    wanted = wanted_of(record)
    everything = solid(full_text(record))
    message = RENDERER.card(record)
    on_card = solid(numbered([each for each in message.blocks if each["type"] in ("section", "rich_text")]))
    for part in consent.whole_words(wanted, record.current.arguments):
        assert solid(part) in everything
    for part in (consent.action_of(wanted).whole, consent.consequence_of(wanted).whole):
        if solid(part) not in on_card:
            assert "View full" in labels(message.blocks)
        if solid(part) not in solid(html.unescape(message.text)):
            assert "Click View full to see all of it" in message.text
            assert "View full" in labels(message.blocks)
    assert message.more == ()


def test_details_are_data_on_the_card_and_in_the_shell() -> None:
    record = consent_of(extra_context={"keep": "**not** `this`, ~~that~~"})
    for said in (RENDERER.card(record).text, *consent.whole_words(wanted_of(record), {})[-1:]):
        assert "keep: **not** `this`, ~~that~~" in said


@pytest.mark.parametrize("verbosity", ["terse", "normal", "detailed"])
def test_largest_confirmation_shows_a_part_of_each_part(verbosity: Verbosity) -> None:
    record = consent_of(
        action="𝔄" * TEXT, consequence="ℭ" * TEXT, summary_detailed="𝔖" * TEXT, extra_context={"k": "𝔈" * TEXT},
        default_decision="accept",
    )  # fmt: skip
    message = RENDERER.card(record, verbosity=verbosity)
    judged(record, message)
    for words_ in (message.text, shown(message.blocks)):
        assert words_.count("𝔄") > 300
        assert words_.count("ℭ") > 300
    assert "View full" in labels(message.blocks)
    assert full_text(record).count("𝔈") >= TEXT
    judged(record, RENDERER.message(page_card(content(about(record)))))


def stakes(words: str, **fields: Any) -> Any:
    return row(consent_of(**fields), words)


LAST = Decider("u", "slack", "T1", "U0GOOD")
DONE = answered(consent_of(), Answer("reject", "Reject", "Too *early*"), LAST, NOW)
STAKES = "Risk: high. Irreversible: it cannot be undone."


def needing_three() -> Clarification:
    """One that two of three people have approved."""
    record = consent_of()
    first = Approval(user="U0ONE", decided_by="user:one", at=NOW, digest="", rationale="fine")
    before = {
        "approvals_needed": 3,
        "approvals": (first, Approval(decided_by="<!here>", at=NOW, digest="")),
    }
    return amended(record, **before)


APPROVED = answered(needing_three(), Answer("accept", "Accept", "Go"), LAST, NOW)
OVERRULED = answered(needing_three(), Answer("reject", "Reject"), LAST, NOW)


@pytest.mark.parametrize("each", [
    stakes("Risk: high. Irreversible: it cannot be undone."),
    stakes("Risk: the agent did not say. Irreversible: it cannot be undone.", risk_level=None),
    stakes("Risk: high. Reversible.", irreversible=False),
    stakes("Irreversible: it cannot be undone.", irreversible=False, reversibility="irreversible"),
    stakes("Irreversible: it cannot be undone (the agent also calls it reversible with effort).",
           reversibility="reversible_with_effort"),
    stakes("Consequence: (the agent did not say)", consequence=None),
    stakes("If no one answers, the agent has not said what it will do", default_decision=None),
    stakes("Warning: if no one answers, the agent does this", default_decision="accept"),
    *(
        row(abandoned(consent_of(default_decision=default), "expired", NOW), f"Expired. The agent {words}",
            "Risk: high. Irreversible", buttons=[])
        for default, words in (
            ("reject", "used its default: do not go ahead"), ("accept", "used its default: go ahead"), (None, "had no default")
        )
    ),
    row(DONE, "asked for approval", "Transfer $500.", "Reason: Too *early*", "Rejected by <@U0GOOD>", STAKES,
        hidden=["Answer"], buttons=[]),
    row(APPROVED, "Approved by <@U0ONE>, &lt;!here&gt; and <@U0GOOD>", "Comments: <@U0ONE> (“fine”)", STAKES, "Reason: Go",
        hidden=["Answer"], buttons=["View full"]),
    row(OVERRULED, "Rejected by <@U0GOOD>", "Earlier approvals: <@U0ONE> (“fine”), &lt;!here&gt;", buttons=["View full"]),
])  # fmt: skip
def test_card_says_in_words_what_is_at_stake_and_what_came_of_it(each: Said) -> None:
    each.judge(RENDERER.card(each.record))


GRAVE = "Risk: high. Irreversible: it cannot be undone."
UNDOABLE: dict[str, Any] = {"irreversible": False}
AT_A_GLANCE: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "error", "⚠ ", GRAVE),
    (
        {"risk_level": "critical"} | UNDOABLE,
        "error",
        "⚠ ",
        "Risk: unknown (the agent wrote “critical”). Reversible.",
    ),
    ({"risk_level": "low"}, "error", "⚠ ", "Risk: low. Irreversible: it cannot be undone."),
    ({"risk_level": "medium"} | UNDOABLE, "warning", "", "Risk: medium. Reversible."),
    ({"risk_level": None} | UNDOABLE, "warning", "", "Risk: the agent did not say. Reversible."),
    ({"risk_level": "low"} | UNDOABLE, "info", "plain", "Risk: low. Reversible."),
]


@pytest.mark.parametrize(("fields", "level", "sign", "said"), AT_A_GLANCE)
def test_stakes_are_at_the_top_in_a_form_that_differs_at_a_glance(
    fields: dict[str, Any], level: str, sign: str, said: str
) -> None:
    record = consent_of(**fields)
    bold = {"type": "text", "text": f"{sign}{said}", "style": {"bold": True}}
    plain = {
        "type": "section",
        "text": {"type": "plain_text", "text": said, "emoji": False},
        "expand": True,
    }
    for message in (RENDERER.card(record), RENDERER.message(page_card(content(about(record))))):
        at = [block["type"] for block in message.blocks].index("header") + 1
        stands = {key: each for key, each in message.blocks[at].items() if key != "block_id"}
        assert stands == plain if sign == "plain" else stands["elements"][0]["elements"] == [bold]
        assert message.text.index(said) < message.text.index("Transfer $500.")
    alert = {"type": "alert", "level": level, "text": plain["text"]}
    for view in (
        RENDERER.view(full_view(record)),
        RENDERER.accept_modal(record, 1),
        RENDERER.answer_modal(record),
    ):
        judge_view(view)
        assert view["blocks"][0] == alert


def test_stakes_are_at_the_top_of_the_page_that_accepts_too() -> None:
    last = RENDERER.accept_modal(consent_of(action="x" * 150_000, default_decision="accept"), 99)
    assert last["submit"]["text"] == "Accept"
    assert [block["type"] for block in last["blocks"]].count("alert") == 2
    assert GRAVE in last["blocks"][0]["text"]["text"]
    assert last["blocks"][1]["text"]["text"].startswith("Warning: if no one answers")


def test_agents_words_about_the_stakes_are_whole_and_verbatim_at_the_top() -> None:
    """An alert takes 200 characters, more goes into the next."""
    said = {
        "risk_level": f"*{'risk ' * 11}",
        "reversibility": f"<!here> {'back ' * 10}",
        "irreversible": True,
    }
    record = consent_of(**said)
    record = amended(record, wanted=wanted_of(record).copied(claimed_risk="y" * 60))
    view = RENDERER.accept_modal(record, 1)
    judge_view(view)
    found = [block["text"]["text"] for block in view["blocks"] if block["type"] == "alert"]
    assert len(found) == 2
    assert squeezed("".join(found)) == squeezed(consent.risk_words(wanted_of(record)))


STAKES_IN_DIALOG = "Risk: high. Irreversible: it cannot be undone.\nAction: "


@pytest.mark.parametrize("size", [1, 300 - len(STAKES_IN_DIALOG), 301 - len(STAKES_IN_DIALOG)])
def test_dialog_names_the_whole_action_and_the_stakes_or_a_window_does(size: int) -> None:
    message = RENDERER.card(consent_of(action="W" * size, consequence="w" * 300))
    assert "View full" not in labels(message.blocks), "the card shows all of it"
    (accept,) = (each for each in walk(message.blocks) if each.get("style") == "danger" and "value" in each)
    if size + len(STAKES_IN_DIALOG) > 300:
        assert (accept["action_id"], "confirm" in accept) == ("clarify.review", False)
    else:
        again = accept["confirm"]
        assert again["text"]["text"] == STAKES_IN_DIALOG + "W" * size
        assert (again["confirm"]["text"], again["deny"]["text"]) == ("Accept", "Cancel")
        assert accept["action_id"] == "clarify.accept"


@pytest.mark.parametrize(
    ("risk", "colours"),
    [
        ("high", {"Accept": "danger", "Reject": ""}),
        ("critical", {"Accept": "danger", "Reject": ""}),
        ("medium", {"Accept": "primary", "Reject": "danger"}),
        (None, {"Accept": "primary", "Reject": "danger"}),
    ],
)
def test_warning_colour_is_on_the_button_that_does_harm(risk: str | None, colours: dict[str, str]) -> None:
    record = consent_of(risk_level=risk, irreversible=False, reversibility="reversible")
    buttons = [each for each in walk(RENDERER.card(record).blocks) if each.get("type") == "button"]
    shown_ = {each["text"]["text"]: each.get("style", "") for each in buttons}
    assert {label: shown_[label] for label in colours} == colours


def test_nudge_says_what_waits_and_how_to_decide() -> None:
    message = RENDERER.message(nudge(nudged(consent_of(), NOW, SLA), []))
    parts = ("Action: Transfer $500.", "Risk: high. Irreversible", "does not go ahead", "accept or reject")
    for part in parts:
        assert part in message.text
        assert part in shown(message.blocks)
    warned = RENDERER.message(nudge(consent_of(action="Wipe " * 200, default_decision="accept"), []))
    for words_ in (warned.text, shown(warned.blocks)):
        assert "Warning: if no one answers, the agent does this" in words_
    long = RENDERER.message(nudge(consent_of(action="Wipe " * 400), []))
    assert "Answer on its card: this message does not show all of it." in long.text
    assert "accept or reject" not in long.text


def test_modal_offers_both_decisions_and_chooses_none() -> None:
    view = RENDERER.answer_modal(consent_of())
    judge_view(view)
    decision, why = (block for block in view["blocks"] if block["type"] == "input")
    assert [option["value"] for option in decision["element"]["options"]] == ["accept", "reject"]
    assert "initial_option" not in decision["element"]
    assert (decision["optional"], why["optional"], why["element"]["max_length"]) == (False, True, 3000)
    assert "Risk: high." in json.dumps(view)


@pytest.mark.parametrize("lost", [["action"], ["action", "allowedReplies", "consequence"]])
def test_action_that_is_lost_can_only_be_rejected(lost: list[str]) -> None:
    """Another program may write the ledger anew and leave out fields that it does not know."""
    item = as_item(dump(consent_of()))
    for name in lost:
        item["aaep"][name] = None
    record = read_item(item)
    assert record is not None
    message = RENDERER.card(record)
    judged(record, message)
    assert "Action: (the agent did not say)" in shown(message.blocks)
    assert labels(message.blocks) == ["Reject", "Answer…", "Take"]
    judge_view(RENDERER.answer_modal(record))
    assert answers.from_text(record.asked, "reject").response == "reject"
    with pytest.raises(AnswerRejected, match="Reply with reject;"):
        answers.from_text(record.asked, "accept")


@pytest.mark.parametrize("verbosity", ["terse", "normal"])
def test_card_that_leaves_something_out_points_to_accept_only_where_it_can_be_accepted(
    verbosity: Verbosity,
) -> None:
    record = consent_of(action="word " * 2000)
    rejected = amended(record, wanted=wanted_of(record).copied(allowed_replies=("reject",)))
    for each, points in ((record, True), (rejected, False)):
        message = RENDERER.card(each, verbosity=verbosity)
        assert "View full" in labels(message.blocks)
        assert ("Click Accept to see all of it" in shown(message.blocks)) is points


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize(("size", "whole"), [(100, True), (500, True), (9000, False)])
def test_typed_accept_needs_a_card_and_a_page_that_show_everything(
    size: int, whole: bool, paged: bool
) -> None:
    record = consent_of(action=f"Run it. {'x' * size}")
    seen = [RENDERER.card(record)]
    if paged:
        record = told_why(record, f"No answer, even after a reminder. {'y' * 400}")
        seen = [RENDERER.card(record), RENDERER.message(page_card(content(about(record))))]
    assert shows_whole(record, "normal") is whole
    if whole:
        assert all("x" * size in "".join(shown(each.blocks).split()) for each in seen)
        assert not any("View full" in labels(each.blocks) for each in seen)


@pytest.mark.parametrize(
    ("fields", "words_"),
    [
        ({}, "⚠ Risk: high. Irreversible: it cannot be undone. “Transfer $500."),
        (
            {"risk_level": "low", "irreversible": False, "reversibility": "reversible"},
            "Risk: low. Reversible. “Transfer",
        ),
    ],
)
def test_open_approval_in_lists_and_on_the_home_tab_begins_with_its_stakes(
    fields: dict[str, Any], words_: str
) -> None:
    record = consent_of(**fields)
    tab = home(chosen(Snapshot(1, [record]), "U0GOOD", Admitted(frozenset({audience_of(record)})), {}))
    listed = RENDERER.message(choice_of("Open", [record], ""))
    many_ = RENDERER.message(rollup([record], 1, None, "p"))
    for shown_ in (
        shown(RENDERER.view(tab)),
        shown(listed.blocks),
        listed.text,
        shown(many_.blocks),
        many_.text,
    ):
        assert words_ in shown_
        assert "Approve:" not in shown_


@pytest.mark.parametrize(
    ("consequence", "arguments", "lines"),
    [
        (
            "The shop is down for a minute.",
            {"command": "alembic upgrade head", "cwd": "/srv"},
            [
                "Risk: high.",
                "Action: Run it",
                "command: alembic upgrade head",
                "Consequence: The shop is down for a minute.",
            ],
        ),
        ("w" * 300, {"to": "all"}, ["Risk: high.", "Action: Run it"]),
        (
            "It is **down**.",
            {"command": "x" * 300},
            ["Risk: high.", "Action: Run it", "Consequence: It is down."],
        ),
        ("It is down.\nRisk: low.", {"to": "all"}, ["Risk: high.", "Action: Run it"]),
    ],
)
def test_dialog_has_the_command_and_the_consequence_where_there_is_room(
    consequence: str, arguments: dict[str, Any], lines: list[str]
) -> None:
    record = consent_of(action="Run it", consequence=consequence, irreversible=False)
    wanted = wanted_of(record).copied(sent=arguments, editable=False)
    record = amended(record, direct=Direct(kind="approval"), wanted=wanted)
    dialog = next(each["confirm"] for each in walk(RENDERER.card(record).blocks) if "confirm" in each)
    assert dialog["text"]["text"].split("\n") == lines


def test_what_cannot_be_laid_out_was_not_seen_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    record = consent_of(action="Restart the shop")
    assert RENDERER.shows_whole(record)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("cannot lay this out")

    monkeypatch.setattr("bot.views.card.open_card", fails)
    assert not RENDERER.shows_whole(record)
