from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bot.commands.grammar import (
    Board,
    Change,
    Command,
    Help,
    Hint,
    List,
    OnCallCommand,
    One,
    is_change,
    parse,
)
from core.clock import span_of, spoken

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EVE = datetime(2026, 12, 24, 18)  # noqa: DTZ001 - on the wall clock of the policy


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("", List("waiting")),
        ("/clarify", List("waiting")),
        ("#42", List("issue", 42)),
        ("<#C0123|42>", List("issue", 42)),
        ("CLR-42-001", One("CLR-42-001")),
        ("list 42", List("issue", 42)),
        ("show CLR-42-001", One("CLR-42-001")),
        ("show clr-42-1.", One("CLR-42-001")),
        ("clr-42-1", One("CLR-42-001")),
        ("CLR–42–001", One("CLR-42-001")),
        ("/clarify stale", List("stale")),
        ("mine", List("mine")),
        ("Answer clr-42-001: Yes, but Monday", Change("answer", "CLR-42-001", 0, "Yes, but Monday")),
        ("answer CLR-42-001 “ship it”", Change("answer", "CLR-42-001", 0, "ship it")),
        ('answer CLR-42-001 "a" or "b"', Change("answer", "CLR-42-001", 0, '"a" or "b"')),
        ("answer CLR-42-001 line one\nline two", Change("answer", "CLR-42-001", 0, "line one\nline two")),
        ("answer 42 yes", Change("answer", None, 42, "yes")),
        ("abandon 42 no longer needed", Change("abandon", None, 42, "no longer needed")),
        ("resolve CLR-42-001 done by hand", Change("resolve", "CLR-42-001", 0, "done by hand")),
        ("escalate CLR-42-001", Change("escalate", "CLR-42-001", 0)),
        ("escalate CLR-42-001 nobody answers", Change("escalate", "CLR-42-001", 0, "nobody answers")),
        ("oncall", OnCallCommand("who")),
        ("on-call", OnCallCommand("who")),
        ("on call take", OnCallCommand("take")),
        ("oncall platform", OnCallCommand("who", policy="platform")),
        ("oncall TAKE 2h", OnCallCommand("take", span=2 * HOUR)),
        ("oncall who 2nd-line", OnCallCommand("who", policy="2nd-line")),
        ("oncall hand <@U0ADE|ade> 2h", OnCallCommand("hand", "U0ADE", 2 * HOUR)),
        ("oncall hand 2h <@U0ADE> platform", OnCallCommand("hand", "U0ADE", 2 * HOUR, "platform")),
        ("oncall hand <@U0ADE> for 2h", OnCallCommand("hand", "U0ADE", 2 * HOUR)),
        (
            "oncall hand <@U0ADE|ade> platform from 2026-12-24T18:00 for 12h",
            OnCallCommand("hand", "U0ADE", 12 * HOUR, "platform", EVE),
        ),
        (
            "oncall hand <@U0ADE> from 2026-12-24 18:00 12h",
            OnCallCommand("hand", "U0ADE", 12 * HOUR, since=EVE),
        ),
        ("oncall take From 2026‑12‑24t18:00, for 12h.", OnCallCommand("take", None, 12 * HOUR, since=EVE)),
        (
            "oncall take from 2026-12-24 for 1d platform",
            OnCallCommand("take", None, 24 * HOUR, "platform", EVE.replace(hour=0)),
        ),
        ("oncall who from", OnCallCommand("who", policy="from")),
        ("oncall overrides", OnCallCommand("overrides")),
        ("oncall overrides platform", OnCallCommand("overrides", policy="platform")),
        ("oncall cancel 3", OnCallCommand("cancel", number=3)),
        ("oncall cancel #3.", OnCallCommand("cancel", number=3)),
        ("ready", Board("ready")),
        ("help", Help()),
        ("?", Help()),
        ("help Answer", Help("answer")),
        ("help show", Help("show")),
    ],
)
def test_parse_reads_every_form(text: str, command: Command) -> None:
    assert parse(text) == command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stail", "“/clarify stale”"),
        ("anwser CLR-42-001 yes", "“/clarify answer CLR-42-001 yes”"),
        ("xyzzy", "“/clarify help”"),
        ("42", "“/clarify #42”"),
        ("42-1", "“/clarify CLR-42-001”"),
        ("CLR-42-001 yes", "“/clarify answer CLR-42-001 yes”"),
        ("answer", "“/clarify answer CLR-42-001 yes”"),
        ("answer 42-1 yes", "“/clarify answer CLR-42-001 yes”"),
        ("answer CLR-42-001 “”", "“/clarify answer CLR-42-001 yes”"),
        ("escalate", "“/clarify escalate CLR-42-001”"),
        ("show", "“/clarify show CLR-42-001”"),
        ("show me the logs", "“/clarify show CLR-42-001”"),
        ("oncall hand @ade", "Pick the name"),
        ("oncall hand <@U0ADE> from 2026-12-24T18:00", "For how long?"),
        ("oncall hand <@U0ADE> from 2026-02-30T18:00 for 1h", "“2026-02-30T18:00” is not a date and time."),
        ("oncall hand <@U0ADE> from 2026-12-24 25:00 for 1h", "not a date and time"),
        ("oncall hand <@U0ADE> from tomorrow for 1h", "“tomorrow” is not a date and time."),
        (
            "oncall hand <@U0ADE> from",
            "From when? For example: “/clarify oncall hand @ade from 2026-12-24T18:00 for 12h”, in the policy's time zone.",
        ),
        ("oncall take from 2026-12-24T18:00 for 15d", "at most 14d"),
        ("oncall cancel", "“/clarify oncall overrides” shows their numbers"),
        ("oncall cancel that", "“/clarify oncall cancel 3”"),
        ("oncall override", "“/clarify oncall overrides”"),
        ("oncall tkae", "“/clarify oncall take”"),
        ("oncall take 15d", "at most 14d"),
        ("oncall take 3s", "“3s” is not a duration of up to 14d"),
        ("oncall take −2", "“−2” is not a duration of up to 14d"),
        ("oncall hand <@U0ADE> 1.5h", "“/clarify oncall hand @ade 2h”"),
        ("hello there", "Unknown command “hello”. Did you mean “/clarify help”?"),
        ("help xyzzy", "There is help on list, show, stale"),
    ],
)
def test_parse_suggests_what_could_be_meant(text: str, words: str) -> None:
    found = parse(text)

    assert isinstance(found, Hint)
    assert words in found.text


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("answer CLR-1-001 x", True),
        ("oncall take", True),
        ("oncall cancel 3", True),
        ("oncall overrides", False),
        ("oncall", False),
        ("stale", False),
        ("zzz", False),
    ],
)
def test_is_change_tells_what_must_be_durable_first(text: str, changes: bool) -> None:
    assert is_change(parse(text)) is changes


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("2h", 2 * HOUR), ("1h30m", 1.5 * HOUR), ("1W", 7 * DAY),         ("1day", DAY), ("0h", None), ("2", None), ("", None),
    ],
)  # fmt: skip
def test_span_of_reads_spans(text: str, span: timedelta | None) -> None:
    assert span_of(text) == span


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(seconds=1), "1 second"), (1.5 * HOUR, "1 hour 30 minutes"),
        (timedelta(days=1, seconds=5), "1 day"), (timedelta(seconds=-5), "0 seconds"),
    ],
)  # fmt: skip
def test_spoken_says_two_units(span: timedelta, words: str) -> None:
    assert spoken(span) == words
