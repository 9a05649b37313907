from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from bot.errors import SlackUnreachableError
from bot.views import phrases
from bot.views.inert import date
from bot.views.phrases import Tell, explained
from core.clarification import Answer, Clarification, CloseReason, Decider
from core.errors import AnswerRejected, LedgerUnwritable, LockTimeout, TooLong
from core.transitions import AlreadyAnswered, Closed, Superseded, abandoned, answered
from tests.unit.bot.judges import judge_live
from tests.unit.bot.strategies import NOW, record_of, settled_records

BY_FOLAKE = Decider("user:folake", "slack", "T1", "U0GOOD")
IN_A_SHELL = Decider("user:os/<!here>@host", "shell")


def done(label: str = "Production", decider: Decider = BY_FOLAKE) -> Clarification:
    return answered(record_of(), Answer(label, label), decider, NOW)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (done(), f"CLR-42-001 was already answered: “Production” by <@U0GOOD> ({date(NOW)})."),
        (done("*<!channel>*"), f"CLR-42-001 was already answered: “∗&lt;!channel&gt;∗” by <@U0GOOD> ({date(NOW)})."),
        (
            done(decider=IN_A_SHELL),
            f"CLR-42-001 was already answered: “Production” by user:os/&lt;!here&gt;@host ({date(NOW)}).",
        ),
    ],
)  # fmt: skip
def test_already_answered_says_who_what_and_when(record: Clarification, words: str) -> None:
    assert phrases.already_answered(record) == words
    assert phrases.closed(record) == words


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("expired", "; the agent used its default: “65”."),
        ("cancelled", "CLR-42-001 no longer takes answers: the agent's session was cancelled."),
        ("session ended", "CLR-42-001 no longer takes answers: the agent's session has ended."),
        (
            "requester moved on",
            "CLR-42-001 no longer takes answers: the agent has moved on without an answer.",
        ),
    ],
)
def test_closed_says_why(reason: CloseReason, words: str) -> None:
    assert phrases.closed(abandoned(record_of(default_response="65"), reason, NOW)).endswith(words)


def test_closed_by_another_implementation_says_its_status() -> None:
    record = record_of().model_copy(update={"status": "resolved"})
    assert phrases.closed(record) == "CLR-42-001 no longer takes answers: it is resolved."


@pytest.mark.parametrize(
    ("answerers", "words"),
    [
        ([], "You cannot answer this: you are a guest. No answerers are configured here."),
        (
            ["members"],
            "You cannot answer this: you are a guest. These people can: full members of this workspace who are in the channel.",
        ),
        (
            ["U0GOOD", "S0GROUP", "<!here>"],
            "You cannot answer this: you are a guest. These people can: <@U0GOOD>, <!subteam^S0GROUP> and &lt;!here&gt;.",
        ),
    ],
)
def test_not_allowed_says_why_and_who_may(answerers: list[str], words: str) -> None:
    assert phrases.not_allowed("you are a guest", answerers) == words


def test_unreadable_reply_shows_how() -> None:
    record = record_of(accepted_response_kinds=["yes_no"])
    assert phrases.unreadable_reply(record.asked) == (
        "I couldn't read that as an answer. Reply with yes or no. Start with note: to comment without answering."
    )
    assert "two ways" in phrases.unreadable_reply(record.asked, "“1,200” can be read in two ways.")
    assert "&lt;!here&gt;" in phrases.unreadable_reply(record.asked, "“<!here>”")


def test_edit_ignored_says_what_stands() -> None:
    assert phrases.edit_ignored(done()).endswith("CLR-42-001 stays answered with “Production”.")
    assert phrases.edit_ignored(record_of()) == phrases.EDITED


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(settled_records())
def test_phrases_are_inert_and_short(record: Clarification) -> None:
    for phrase in (phrases.closed(record), phrases.edit_ignored(record), phrases.accepted(record)):
        judge_live(phrase)
        assert len(phrase) < 2000


@pytest.mark.parametrize(
    ("on", "state"),
    [
        (("human",), "waiting for a person"),
        (("architect", "writer"), "blocked on architect, writer"),
        (("Human", "architect"), "blocked on architect and a person"),
    ],
)
def test_waiting_says_for_whom(on: tuple[str, ...], state: str) -> None:
    assert phrases.waiting("blocked", on, ", ".join) == state


@pytest.mark.parametrize(
    ("error", "words", "recorded"),
    [
        (AlreadyAnswered(done("Yes")), ["<@U0GOOD>", "“Yes”", "<!date^"], True),
        (Closed(abandoned(record_of(), "expired", NOW)), ["expired"], True),
        (Superseded(record_of()), [phrases.STALE_CARD], True),
        (AnswerRejected("Reply with <yes> or no."), ["Reply with &lt;yes&gt; or no."], True),
        (LockTimeout(42, 2.0, "somebody"), ["try again", "Nothing was changed"], False),
        (LedgerUnwritable(42, "the disk is full"), ["could not be saved"], False),
        (TooLong("answer", 2001, 2000), ["2001 characters", "at most 2000"], True),
        (SlackUnreachableError("users.info: TimeoutError"), [phrases.PEOPLE_UNKNOWN], False),
    ],
)
def test_explained_tells_what_happened_and_whether_anything_was_recorded(
    error: Exception, words: list[str], recorded: bool
) -> None:
    reaction = explained(error, "CLR-42-001")

    assert all(word in reaction.text for word in words)
    assert isinstance(reaction, Tell) is recorded
