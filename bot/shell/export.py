"""The audit trail: a line of JSON for each entry of each clarification. Who asked, who answered, when, through what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from pydantic import ValidationError

from bot.shell.shelf import ledgers
from core.clarification import US, Aaep, Clarification, Entry
from core.clock import iso
from core.ledger import FileLedger

Line = dict[str, object]
_UNKNOWN = Aaep(kinds=())


async def export_to(
    write: Callable[[Line], object], ledger: FileLedger, since: datetime | None, issue: int | None
) -> list[str]:
    """Write every line, ledger by ledger; returns in words what could not be read."""
    problems: list[str] = []
    async for each in ledgers(ledger, issue=issue):
        problems += each.problems
        for record in each.records:
            for line in trail(record, since):
                write(line)
    return problems


def trail(record: Clarification, since: datetime | None = None) -> Iterator[Line]:
    """The entries of a record, the earliest first, without those before `since`.

    `surface` of a question: "aaep" (a producer's event), "shell", "python", or "ledger" (another implementation); of
    an answer: where it was given. `reply`: where the answer's way to the producer stands. Never a reply token.
    """
    answers = _answers(record)
    questions = _questions(record)
    ordered = sorted(enumerate(record.thread), key=lambda numbered: numbered[1].timestamp)
    for place, entry in ordered:
        if since is not None and entry.timestamp < since:
            continue
        line = _line(record, entry)
        if entry.type == "question":
            line |= _asked(questions.get(place, _UNKNOWN))
        elif entry.type == "answer" or place in answers:
            line |= _answered(answers.get(place, _UNKNOWN), entry)
        yield line


def _line(record: Clarification, entry: Entry) -> Line:
    return {
        "clarification": record.id,
        "issue": record.issue_number,
        "round": entry.round,
        "from": record.from_,
        "to": record.to,
        "topic": record.topic,
        "blocking": record.blocking,
        "status": record.status,
        "type": entry.type,
        "by": entry.from_,
        "body": entry.body,
        "timestamp": iso(entry.timestamp),
    }


def _asked(asked: Aaep) -> Line:
    surface = asked.via or ("aaep" if asked.producer else "ledger")
    return {"surface": surface, "producer": asked.producer, "session": asked.session_id}


def _answered(asked: Aaep, entry: Entry) -> Line:
    by = asked.answered_by
    return {
        "decidedBy": asked.decided_by,
        "surface": by.surface if by else "ledger",
        "team": by.team if by else None,
        "user": by.user if by else None,
        "response": entry.body if asked.response is None else asked.response,
        "rationale": asked.rationale,
        "reply": asked.reply,
    }


def _rounds(record: Clarification) -> list[Aaep]:
    """What is known of each round that was asked through us, the first one first."""
    known = []
    for past in record.asked.earlier:
        try:
            known.append(Aaep.model_validate(past))
        except ValidationError:  # others may have touched it
            known.append(_UNKNOWN)
    return [*known, record.asked]


def _questions(record: Clarification) -> dict[int, Aaep]:
    """The facts of each question, by its place in the thread; only where their numbers fit."""
    places = [
        place for place, entry in enumerate(record.thread) if entry.type == "question" and entry.from_ != US
    ]
    return dict(zip(places, _rounds(record), strict=False))


def _answers(record: Clarification) -> dict[int, Aaep]:
    """The facts of each answer, by its place in the thread: they carry its time. A resolution may be the answer."""
    found: dict[int, Aaep] = {}
    for asked in _rounds(record):
        for kind in ("answer", "resolution"):
            places = [
                place
                for place, entry in enumerate(record.thread)
                if entry.type == kind and entry.timestamp == asked.answered_at and place not in found
            ]
            if places:
                found[places[0]] = asked
                break
    return found
