from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bot import phrases
from bot.codec import Press
from bot.desk import Desk
from bot.errors import SlackUnreachableError, StorageUnavailable
from bot.people import PEOPLE_UNKNOWN, Person, Reaction, explained
from bot.ports import Place
from core.clarification import (
    AlreadyAnswered,
    Answer,
    Clarification,
    Closed,
    Decider,
    Superseded,
    abandoned,
    answered,
)
from core.errors import AnswerRejected, BadInput, LedgerUnwritable, LockTimeout, NotFound, TooLong
from core.index import Index
from tests.clocks import ManualClock
from tests.unit.bot.audiences import audiences
from tests.unit.bot.strategies import record_of

NOW = datetime(2026, 5, 24, 14, 27, tzinfo=UTC)


def by_ade(record: Clarification) -> Clarification:
    return answered(record, Answer(response=True, label="Yes"), Decider("user:ade", "slack", "T1", "U1"), NOW)


@pytest.mark.parametrize(
    ("error", "words", "recorded"),
    [
        (AlreadyAnswered(by_ade(record_of())), ["<@U1>", "“Yes”", "<!date^"], True),
        (Closed(abandoned(record_of(), "cancelled", NOW)), ["cancelled"], True),
        (Closed(abandoned(record_of(), "expired", NOW)), ["expired"], True),
        (Superseded(record_of()), [phrases.STALE_CARD], True),
        (AnswerRejected("Reply with <yes> or no."), ["Reply with &lt;yes&gt; or no."], True),
        (NotFound("CLR-42-001"), ["no clarification CLR-42-001"], True),
        (BadInput("At most <2000> characters."), ["At most &lt;2000&gt; characters."], True),
        (LockTimeout(42, 2.0, "somebody"), ["try again", "Nothing was changed"], False),
        (LedgerUnwritable(42, "the disk is full"), ["could not be stored"], False),
        (StorageUnavailable(), ["could not be stored"], False),
        (TooLong("answer", 2001, 2000), ["2001 characters", "at most 2000"], True),
        (SlackUnreachableError("users.info: TimeoutError"), [PEOPLE_UNKNOWN], False),
    ],
)
def test_explained_tells_what_happened_and_whether_anything_was_recorded(
    error: Exception, words: list[str], recorded: bool
) -> None:
    reaction = explained(error, "CLR-42-001")

    assert reaction.text is not None
    assert all(word in reaction.text for word in words)
    assert reaction.recorded is recorded


class Modals:
    def message_modal(self, title: str, text: str) -> dict[str, Any]:
        return {"title": title, "text": text}


@pytest.mark.parametrize("values", [{"freetext": {"value": "x" * 2001}}, {}])
async def test_words_that_are_too_long_are_told_beside_the_field_or_in_place_of_the_modal(
    values: dict[str, Any],
) -> None:
    """The modal takes no more than the router, but an older one may still be open."""
    desk = Desk(
        router=None,  # type: ignore[arg-type]
        records=None,  # type: ignore[arg-type]
        memory=None,  # type: ignore[arg-type]
        gate=None,  # type: ignore[arg-type]
        modals=Modals(),  # type: ignore[arg-type]
        index=Index(),
        audiences=audiences(),
        clock=ManualClock(),
        to_plain=str,
        refresh=lambda _: None,
    )

    async def answer(*_: object, **__: object) -> Reaction:
        raise TooLong("answer", 2001, 2000)

    desk.answer = answer  # type: ignore[method-assign]
    reaction = await desk.submit(Press("answer", "CLR-42-001", 1), values, Person("T1", "U1"), Place("C1"))
    words = "The answer has 2001 characters; at most 2000 are allowed."
    if values:
        assert reaction.errors == {"freetext": words}
    else:
        assert reaction.view is not None
        assert reaction.view["text"] == words
