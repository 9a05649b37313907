"""What a person is told of an error."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.errors import SlackUnreachableError
from bot.views import phrases
from bot.views.reaction import Tell, explained
from core.clarification import Answer, Clarification, Decider
from core.errors import AnswerRejected, LedgerUnwritable, LockTimeout, TooLong
from core.transitions import AlreadyAnswered, Closed, Superseded, abandoned, answered
from tests.unit.bot.strategies import record_of

NOW = datetime(2026, 5, 24, 14, 27, tzinfo=UTC)


def by_ade(record: Clarification) -> Clarification:
    return answered(record, Answer(response=True, label="Yes"), Decider("user:ade", "slack", "T1", "U1"), NOW)


@pytest.mark.parametrize(
    ("error", "words", "recorded"),
    [
        (AlreadyAnswered(by_ade(record_of())), ["<@U1>", "“Yes”", "<!date^"], True),
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
