"""What an issue on GitHub should show: which entries, which labels, and an entry as a comment."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.integrations.github.github import ACTIVE, LIMIT, STALE, comment_of, entries_of, key_in, planned
from bot.views.inert import size
from core.clarification import Clarification

AT = "2026-11-21T09:00:00.000Z"
HOSTILE = "@acme/all #1 GH-1 acme/app#2 <b>x</b> <!-- y --> ![i](http://x/i.png) https://x.example fixes #3"


def record(
    body: str = "Which?", *, topic: str = "", who: str = "engineer", kind: str = "question"
) -> Clarification:
    return Clarification.model_validate(
        {
            "id": "CLR-42-001",
            "issueNumber": 42,
            "from": who,
            "to": who,
            "topic": topic,
            "status": "pending",
            "created": AT,
            "thread": [{"round": 1, "from": who, "type": kind, "body": body, "timestamp": AT}],
        }
    )


def shown(made: Clarification, mention: str | None = None) -> str:
    (due,) = entries_of(made)
    return comment_of(due, mention)


def outside(body: str) -> str:
    """What is left of a comment without its marker, fenced blocks and code spans, read as GitHub's spec says."""
    lines, fence, kept = body.split("\n"), "", []
    assert key_in(body)
    for text in lines[1:]:
        opening = re.match(r"(`{3,})[^`]*$", text)
        if fence:
            fence = "" if re.fullmatch(rf" {{0,3}}`{{{len(fence)},}}\s*", text) else fence
        elif opening:
            fence = opening.group(1)
        else:
            kept.append(text)
    assert not fence
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", "\n".join(kept))


def test_comment_of_a_question_reads_well() -> None:
    assert shown(record("Which\r\none?", topic="The db")).split("\n")[1:] == [
        "",
        "**Question** from `engineer` to `engineer` · `CLR-42-001`, round 1 of 5",
        "",
        "Topic: `The db`",
        "",
        "```text",
        "Which",
        "one?",
        "```",
    ]


@pytest.mark.parametrize("kind", ["question", "answer", "resolution", "escalation"])
@pytest.mark.parametrize(
    "extra", ["", "`", "\n```\n", "\n~~~\n", "\n`````\n@you", "``` ", "\r```\r", "\u2028````\u2028"]
)
def test_comment_leaves_nothing_of_agents_live(kind: str, extra: str) -> None:
    text = f"{HOSTILE}{extra}{HOSTILE}"
    left = outside(shown(record(text, topic=text, who=text, kind=kind)))

    assert not re.search(r"[@#<>!\[\]`]|://", left)


@given(st.text(alphabet=st.sampled_from("`~ \n\r\ta@<>#\\\u2028\x00\u202e"), max_size=60))
def test_comment_is_inert_whatever_is_in_it(text: str) -> None:
    left = outside(shown(record(text, topic=text, who=text)))

    assert not re.search(r"[@<>#`\\\x00\u202e\r]", left)


@pytest.mark.parametrize(
    "text", ["x" * 70_000, "`" * 70_000, "`" * 60_000, "𝔘" * 40_000, "```\n" * 20_000, "a`" * 40_000], ids=len
)
def test_comment_is_cut_where_it_must_be_and_says_so(text: str) -> None:
    body = shown(record(text, topic=text, who=text))

    assert size(body) <= LIMIT
    assert ("_Cut: the beginning is shown" in body) == (size(text) > LIMIT)
    assert not re.search("[`@]", outside(body))


def test_comment_that_fits_is_whole() -> None:
    text = "x" * 65_000
    assert text in shown(record(text))


def test_comment_of_an_escalation_alone_mentions_somebody() -> None:
    mention = "@acme/on-call: this needs a person."
    assert [
        mention in shown(record("Ask", kind=kind), "@acme/on-call") for kind in ("escalation", "question")
    ] == [
        True,
        False,
    ]


def test_comment_without_words_says_so() -> None:
    assert "(no words)" in shown(record(" \n"))


@pytest.mark.parametrize(
    "change",
    [
        {"body": "Which one?"},
        {"from": "x"},
        {"round": 2},
        {"type": "answer"},
        {"timestamp": "2026-11-21T09:00:01Z"},
    ],
    ids=str,
)
def test_keys_differ_where_entries_do(change: dict[str, Any]) -> None:
    made = record()
    raw = made.model_dump(mode="json", by_alias=True)
    raw["thread"].append(raw["thread"][0] | change)
    first, second = (due.key for due in entries_of(Clarification.model_validate(raw)))

    assert first != second


def test_keys_stay_when_entries_come_or_the_time_is_written_otherwise() -> None:
    made = record()
    raw = made.model_dump(mode="json", by_alias=True)
    raw["thread"][0]["timestamp"] = "2026-11-21T10:00:00.000400+01:00"
    raw["thread"].append(raw["thread"][0] | {"type": "answer"})
    again = Clarification.model_validate(raw)

    assert entries_of(again)[0].key == entries_of(made)[0].key
    assert again.thread[0].timestamp == datetime(2026, 11, 21, 9, 0, 0, 400, tzinfo=UTC)


EARLY, SINCE, LATE = (datetime(2026, 11, day, tzinfo=UTC) for day in (1, 10, 20))


def about(status: str = "pending", at: datetime = EARLY, **more: Any) -> Clarification:
    when = at.isoformat()
    entry = {"round": 1, "from": "a", "type": "question", "body": "?", "timestamp": when}
    facts = {"id": "CLR-42-001", "issueNumber": 42, "from": "a", "to": "b", "created": when}
    return Clarification.model_validate(facts | {"status": status, "thread": [entry]} | more)


NUDGED = {"nudges": 1, "nudgedAt": LATE.isoformat()}


@pytest.mark.parametrize(
    ("records", "labels"),
    [
        ([], set()),
        ([about()], {ACTIVE}),
        ([about(rounds=[{"attention": NUDGED}])], {ACTIVE, STALE}),
        ([about("stale")], {ACTIVE, STALE}),
        ([about("escalated")], {ACTIVE, STALE}),
        ([about("answered")], set()),
        ([about("answered", rounds=[{"attention": NUDGED}])], set()),
        ([about("resolved"), about("abandoned")], set()),
        ([about("resolved"), about()], {ACTIVE}),
    ],
)
def test_labels_are_those_of_open_questions(records: list[Clarification], labels: set[str]) -> None:
    assert planned(records, (), SINCE).labels == labels


def test_marker_of_a_comment_of_an_earlier_release_is_found_again() -> None:
    asked = {
        "id": "CLR-42-001", "issueNumber": 42, "from": "engineer", "to": "architect", "topic": "", "status": "pending",
        "created": "2026-11-21T09:00:00.000Z",
        "thread": [{"round": 1, "from": "engineer", "type": "question", "body": "Which?",
                    "timestamp": "2026-11-21T09:00:00.000Z"}],
    }  # fmt: skip
    (due,) = entries_of(Clarification.model_validate(asked))
    marker = "<!-- clarify-bot: CLR-42-001 r1 question 60cff53559121557 -->"
    assert comment_of(due).splitlines()[0] == marker
    assert key_in(f"{marker}\n\nwords") == "CLR-42-001 r1 question 60cff53559121557"
