"""Writes texts as their readers are used to. Pure.

An event's `localization_hints` (AAEP chapter 11) say in which direction its text reads (`hinted`, `directed`).

Numbers in the bot's own words are written for the one person who reads them: `1,204.5`, `1.204,5` or `1 204,5` (`in_words`). What
several people read keeps plain digits (`1204.5`): a comma or a point that groups them would be a decimal sign to others. So does
all that agents send, and what people approve: those numbers are never touched.

The signs are CLDR's, for the languages in which Slack can be used and their neighbours. A library with all of CLDR (Babel) would
be 36 MB for these few lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bot.views.inert import isolate
from core.aaep import Event
from core.clarification import Clarification, Round, round_with

_LANGUAGES = frozenset(
    ["ar", "arc", "ckb", "dv", "fa", "he", "iw", "nqo", "prs", "ps", "sd", "syr", "ug", "ur", "yi"]
)
_SCRIPTS = frozenset(["adlm", "arab", "hebr", "mand", "nkoo", "rohg", "samr", "syrc", "thaa"])

# An agent's texts in a record, besides the question and the topic.
_KEPT = (
    "agent_name",
    "context",
    "default_response",
    "summary_terse",
    "summary_detailed",
)
_KEPT_OF_ACTION = ("action", "consequence", "extra_context")
_NUMBER = re.compile(r"(?<![\w.,-])(\d+)(?:\.(\d+))?(?![\w-])")
_POINT, _COMMA, _SPACE, _NARROW = ".,", ",.", "\u00a0,", "\u202f,"  # what groups digits, and the decimal sign
_SIGNS = {
    **dict.fromkeys(("en", "ja", "ko", "zh", "th", "he", "es-la", "es-419", "es-mx", "es-us"), _COMMA),
    **dict.fromkeys(("de", "es", "it", "nl", "pt", "da", "tr", "id", "vi", "ro", "el"), _POINT),
    **dict.fromkeys(("ru", "uk", "pl", "cs", "sk", "hu", "sv", "fi", "nb", "no", "pt-pt", "fr-ca"), _SPACE),
    **dict.fromkeys(("fr",), _NARROW),
    **dict.fromkeys(
        ("en-in", "en-za", "de-at", "de-ch", "fr-ch", "it-ch"), ""
    ),  # plain digits: they differ again
}
_FROM_FIVE_DIGITS = frozenset(["es", "it", "pl", "hu", "pt-pt"])  # 1204 stays as it is


def reads_rtl(hints: object) -> bool:
    """Returns whether an event's text reads from right to left: by `text_direction`, else by script or language.
    `ltr` is ignored: it is the schema's default, and is sent with text in any language.
    """
    if not isinstance(hints, Mapping):
        return False
    direction = hints.get("text_direction")
    if direction in ("rtl", "auto"):
        return bool(direction == "rtl")
    language, *subtags = str(hints.get("primary_language") or "").lower().split("-")
    scripts = [each for each in (str(hints.get("script") or "").lower(), *subtags) if len(each) == 4]
    return scripts[0] in _SCRIPTS if scripts else language in _LANGUAGES


def hinted(event: Event) -> Event:
    """Returns the event with its text isolated as its hints say, or unchanged without hints."""
    if not reads_rtl(event.raw.get("localization_hints")):
        return event
    raw = {key: _directed(value) for key, value in event.raw.items()}
    name = event.agent_name
    return replace(event, raw=raw, agent_name=isolate(name, rtl=True) if name else name)


def directed(record: Clarification) -> Clarification:
    """Returns the record with the agent's text isolated as its event said: for display, never stored."""
    if not record.asked.rtl:
        return record
    thread = tuple(
        each.model_copy(update={"body": isolate(each.body, rtl=True)}) if each.type == "question" else each
        for each in record.thread
    )
    topic = isolate(record.topic, rtl=True)
    rounds = tuple(map(_directed_round, record.rounds))
    return record.model_copy(update={"rounds": rounds, "thread": thread, "topic": topic})


def _directed_round(asked: Round) -> Round:
    question = asked.question
    choices = tuple(replace(each, label=isolate(each.label, rtl=True)) for each in question.choices)
    told = {key: _directed(getattr(question, key)) for key in _KEPT}
    if (wanted := question.wanted) is not None:
        told["wanted"] = wanted.copied(**{key: _directed(getattr(wanted, key)) for key in _KEPT_OF_ACTION})
    return round_with(asked, **told, choices=choices)


def _directed(value: object) -> object:
    if isinstance(value, str):
        return isolate(value, rtl=True)
    if isinstance(value, Mapping):
        return {_directed(key): _directed(each) for key, each in value.items()}
    return [_directed(each) for each in value] if isinstance(value, list) else value


def in_words(text: str, locale: str) -> str:
    """Returns the bot's own words with their numbers as in `locale` (`de-DE`). Unchanged if that is empty or unknown."""
    tag = locale.replace("_", "-").casefold()
    known = tag if tag in _SIGNS else tag.partition("-")[0]
    if not (signs := _SIGNS.get(known, "")):
        return text
    group, decimal = signs[0], signs[1]
    shortest = 5 if known in _FROM_FIVE_DIGITS else 4

    def written(found: re.Match[str]) -> str:
        whole = found[1] if len(found[1]) < shortest else f"{int(found[1]):,}".replace(",", group)
        return whole if found[2] is None else f"{whole}{decimal}{found[2]}"

    return _NUMBER.sub(written, text)
