"""Turns what a person typed into a response that fits the question, or into a hint. It never guesses.

The rules, as the hints and the documentation state them:

* choices: the choice's number, value or label, in any case; several, with commas, where several may be chosen
* yes/no: yes, y, yep, ok, true … or no, n, nope, false …
* numbers: a point before decimals; commas, spaces or apostrophes between thousands: 1200, 1,200.50, 12.5.
  What can be read in two ways (1,200 and 1.200: thousands or decimals? 1,5) is asked back.
* free text: as typed, 1 to 16384 characters
* confirmations: exactly accept or reject, in any case; a reason may follow a colon
* forms: a JSON object of their fields; of a form with a single field, what that field takes by the rules above
* where several kinds are accepted: choice, then yes/no, then number, then free text
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from core.aaep import RATIONALE_LIMIT, Decision, Response, whole_characters
from core.clarification import Aaep, Answer, Option
from core.errors import AnswerRejected
from core.forms import Form, FormField

TEXT_LIMIT = 16_384
_YES = frozenset(["yes", "y", "yep", "yeah", "ok", "okay", "sure", "true", "👍", ":+1:", ":thumbsup:"])
_NO = frozenset(["no", "n", "nope", "nah", "false", "👎", ":-1:", ":thumbsdown:"])
_PLAIN = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?|[+-]?\.\d+")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:([, '_\u00a0\u2009\u202f])\d{3})(?:\1\d{3})*(?:\.\d+)?")
_TWO_READINGS = re.compile(r"[+-]?(?!0[.,])\d{1,3}[.,]\d{3}")
_NUMBERISH = re.compile(r"[+-]?[\d.,' _\u00a0\u2009\u202f]*\d[\d.,' _\u00a0\u2009\u202f]*")
_DECISION = re.compile(r"[*_~`]*(accept|reject)[.!]?[*_~`]*(?:\s*:(?P<why>.*))?", re.IGNORECASE | re.DOTALL)
_LABELS: dict[Decision, str] = {"accept": "Accept", "reject": "Reject"}
_FIRST = re.compile(r"[\s,.!?;:]+")
_ISOLATES = re.compile("[\u2066-\u2069]")  # around right-to-left words, where they are shown
_INDEX = re.compile(r"[#(]?(\d{1,6})[.)]?")


def from_text(asked: Aaep, text: str) -> Answer:
    """The answer that `text` gives to the question.

    Raises:
        AnswerRejected: with a hint for the person, which never repeats what was typed beyond numbers.
    """
    words = text.strip()
    if not words:
        raise AnswerRejected(hint(asked))
    if "confirmation" in asked.kinds:
        return _decided(asked, words)
    if (form := asked.form) is not None:
        return _filled_in(form, asked, text)
    for kind, read in (("multiple_choice", _choice), ("yes_no", _yes_no), ("numeric", _numeric)):
        if kind in asked.kinds and (answer := read(asked, words)) is not None:
            return answer
    if "freetext" in asked.kinds:
        return from_free_text(text)
    raise AnswerRejected(_hint_for(asked, words))


def from_free_text(text: str) -> Answer:
    """Free text as typed.

    Raises:
        AnswerRejected: empty, or longer than a reply may be.
    """
    if not text.strip():
        raise AnswerRejected("The answer is empty.")
    text = whole_characters(text)
    if len(text) > TEXT_LIMIT:
        raise AnswerRejected(f"The answer has {len(text)} characters; an agent takes at most {TEXT_LIMIT}.")
    return Answer(text, text)


def from_choices(asked: Aaep, indexes: list[int]) -> Answer:
    """The choices at `indexes` (from 0). Several are joined by ", " in the order of the question.

    Raises:
        AnswerRejected: no such choice, none, or several where one is asked.
    """
    picked = sorted(set(indexes))
    if not picked or picked[0] < 0 or picked[-1] >= len(asked.choices):
        raise AnswerRejected("That choice is not part of the question.")
    if asked.multi_select:
        joined = ", ".join(asked.choices[index].label for index in picked)
        if len(joined) > TEXT_LIMIT:
            raise AnswerRejected(
                f"These choices together have {len(joined)} characters; an agent takes at most {TEXT_LIMIT}."
            )
        values = [asked.choices[index].value for index in picked]
        return Answer(joined if asked.direct is None else values, joined)
    if len(picked) > 1:
        raise AnswerRejected("Pick only one choice.")
    option = asked.choices[picked[0]]
    return Answer(option.value, option.label)


def from_choice_text(asked: Aaep, text: str) -> Answer:
    """The choice that `text` names by number, value or label, or several with commas.

    Raises:
        AnswerRejected: it names none, or more than one.
    """
    alone = asked.model_copy(update={"kinds": ("multiple_choice",)})  # a number can only be a choice's here
    answer = _choice(alone, text.strip())
    if answer is None:
        raise AnswerRejected(f"No such choice. {hint_to_choose(asked)}")
    return answer


def from_yes_no(asked: Aaep, yes: bool) -> Answer:  # noqa: FBT001 - the answer itself is a boolean
    """Yes or no.

    Raises:
        AnswerRejected: the question takes no yes or no.
    """
    if "yes_no" not in asked.kinds:
        raise AnswerRejected(hint(asked))
    return Answer(yes, "Yes" if yes else "No")


def from_decision(asked: Aaep, decision: Decision, rationale: str = "") -> Answer:
    """Accept or reject, and why, at most 4096 characters; blank: no reason was given.

    Raises:
        AnswerRejected: no confirmation is asked, the agent does not take this decision, or the reason is too long.
    """
    if decision not in _decisions(asked):
        raise AnswerRejected(hint(asked))
    why = whole_characters(rationale.strip())
    if len(why) > RATIONALE_LIMIT:
        raise AnswerRejected(
            f"The reason has {len(why)} characters; an agent takes at most {RATIONALE_LIMIT}."
        )
    return Answer(decision, _LABELS[decision], why or None)


def from_form(asked: Aaep, values: Mapping[str, Any]) -> Answer:
    """What was filled into a form, by its fields' names.

    Raises:
        AnswerRejected: no form is asked. Misfits: some of it does not fit.
    """
    form = asked.form
    if form is None:
        raise AnswerRejected(hint(asked))
    given = form.checked(values)
    return Answer(given, form.lines(given))


def from_field_text(field: FormField, text: str) -> Any:
    """The value that `text` gives to one field of a form.

    Raises:
        AnswerRejected: it gives none that fits.
    """
    value: Any = None
    words = text.strip()
    match field.type:
        case "text":
            value = text
        case "boolean":
            said = _yes_no(Aaep(kinds=("yes_no",)), words)
            value = None if said is None else said.response
        case "number" | "integer":
            value = number(words)
        case "choice" | "choices":
            picked = _picked(_as_question(field), words)
            values = [field.options[index].value for index in picked or ()]
            value = values if field.type == "choices" else values[0] if values else None
        case _:
            value = words
    if value is None or not words:
        raise AnswerRejected(f"Expected {field.expected}.")
    return field.checked(value)


def default_label(asked: Aaep) -> str:
    """What the agent assumes if no one answers, as people read it: a choice by its label. Empty: it has no default."""
    default = asked.default_response or ""
    labels = {_fold(option.value): option.label for option in asked.choices}
    if _fold(default) in labels:
        return labels[_fold(default)]
    parts = [_fold(part) for part in default.split(",")] if asked.multi_select else []
    return ", ".join(labels[part] for part in parts) if parts and labels.keys() >= set(parts) else default


def hint(asked: Aaep) -> str:
    """How this question can be answered in the thread, with an example."""
    if (form := asked.form) is not None:
        return _way_to_fill_in(form)
    if decisions := _decisions(asked):
        said = " or ".join(decisions)
        return f"Reply with {said}; a reason may follow a colon ({decisions[-1]}: as we agreed)."
    ways: list[str] = []
    if "multiple_choice" in asked.kinds and asked.choices:
        ways.append(_way_to_choose(asked))
    if "yes_no" in asked.kinds:
        ways.append("yes or no")
    if "numeric" in asked.kinds:
        ways.append("a number (1200 or 12.5)")
    if "freetext" in asked.kinds:
        ways.append("your answer in your own words")
    return "Reply with " + ", or ".join(ways or ["your answer in your own words"]) + "."


def _hint_for(asked: Aaep, words: str) -> str:
    """`hint`, and for somebody who said more than the one word that counts, and may believe to have answered, that word."""
    first = _FIRST.split(words.casefold(), maxsplit=1)[0]
    if asked.is_confirmation:
        meant = first if first in _decisions(asked) else ""
    else:
        meant = "yes" if first in _YES else "no" if first in _NO else ""
        meant = meant if "yes_no" in asked.kinds else ""
    return f"{hint(asked)} If you mean {meant}, reply with just {meant}." if meant else hint(asked)


def takes_words(asked: Aaep) -> bool:
    """Whether a person's own words can be an answer: to a form with several fields they cannot."""
    return asked.form is None or len(asked.form.fields) == 1


def _way_to_fill_in(form: Form) -> str:
    if len(form.fields) > 1:
        return 'Click Answer… on its card to fill in the form, or give its fields as JSON: {"name": "value"}.'
    (alone,) = form.fields
    if alone.options:
        return f"Reply with {_way_to_choose(_as_question(alone))}."
    return f"Reply with {alone.expected}."


def hint_to_choose(asked: Aaep) -> str:
    """How to name a choice where nothing else is asked."""
    return f"Type {_way_to_choose(asked)}."


def _way_to_choose(asked: Aaep) -> str:
    if asked.multi_select:
        return "the numbers of the choices, separated by commas (1, 2), or their labels"
    return "the number of a choice (1), or its label"


def number(text: str) -> int | float | None:
    """A number by the stated rule, or None if `text` is not a number.

    Raises:
        AnswerRejected: it can be read in two ways.
    """
    if _TWO_READINGS.fullmatch(text):
        digits = re.sub(r"[.,]", "", text)
        decimal = text.replace(",", ".")
        raise AnswerRejected(f"“{text}” is ambiguous: reply {digits} or {decimal}0.")
    if _PLAIN.fullmatch(text):
        return _value(text)
    if _GROUPED.fullmatch(text):
        return _value(re.sub(r"[^\d.+-]", "", text))
    if _NUMBERISH.fullmatch(text):
        raise AnswerRejected(
            f"“{text[:40]}” is not a clear number. Use a point for decimals and no other separators, such as 1200 or 12.5."
        )
    return None


def _value(digits: str) -> int | float:
    if len(digits) > 60:
        raise AnswerRejected(
            "The number has too many digits: use at most 60, or scientific notation such as 1.5e30."
        )
    if re.fullmatch(r"[+-]?\d+", digits):
        return int(digits)
    return float(digits)


def _decisions(asked: Aaep) -> tuple[Decision, ...]:
    """The decisions that may be made, where a confirmation is asked."""
    return asked.confirmation.allowed if asked.confirmation else ()


def _decided(asked: Aaep, words: str) -> Answer:
    """Consent is said in its own word: "yes" and "ok" may be talk, so they are asked back."""
    match = _DECISION.fullmatch(words)
    if match is None:
        raise AnswerRejected(_hint_for(asked, words))
    decision: Decision = "accept" if match[1].casefold() == "accept" else "reject"
    return from_decision(asked, decision, match["why"] or "")


def _numeric(asked: Aaep, words: str) -> Answer | None:
    try:
        value = number(words)
    except AnswerRejected:
        if "freetext" in asked.kinds:
            return None
        raise
    return None if value is None else Answer(value, str(value))


def _yes_no(asked: Aaep, words: str) -> Answer | None:  # noqa: ARG001 - the readers share a signature
    word = words.casefold().rstrip(".!")
    return (
        Answer(response=True, label="Yes")
        if word in _YES
        else Answer(response=False, label="No")
        if word in _NO
        else None
    )


def _filled_in(form: Form, asked: Aaep, text: str) -> Answer:
    """A JSON object; where there is one field only, what is no object of that field is its value."""
    values, alone = _object(text), form.fields[0] if len(form.fields) == 1 else None
    if alone is not None and (values is None or (alone.type == "text" and alone.name not in values)):
        values = {alone.name: from_field_text(alone, text)}
    if values is None:
        raise AnswerRejected(hint(asked))
    return from_form(asked, values)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None: it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _as_question(field: FormField) -> Aaep:
    """A field with choices as a question that takes nothing else."""
    offered = tuple(Option(value=str(each.value), label=each.label) for each in field.options)
    return Aaep(kinds=("multiple_choice",), choices=offered, multi_select=field.type == "choices")


def _choice(asked: Aaep, words: str) -> Answer | None:
    picked = _picked(asked, words)
    return None if picked is None else from_choices(asked, picked)


def _picked(asked: Aaep, words: str) -> list[int] | None:
    """The places of the choices that `words` name, from 0; None: something in them names none."""
    names = _names(asked)
    whole = _pick(asked, names, words)
    if whole is not None:
        return [whole]
    if not asked.multi_select:
        return None
    parts = [part.strip() for part in re.split(r"[,;\n]", words) if part.strip()]
    picked = [index for part in parts if (index := _pick(asked, names, part)) is not None]
    return picked if parts and len(picked) == len(parts) else None


def _names(asked: Aaep) -> dict[str, set[int]]:
    """Which choices go by a value or label, folded."""
    names: dict[str, set[int]] = {}
    for index, option in enumerate(asked.choices):
        for name in (option.value, option.label):
            names.setdefault(_fold(name), set()).add(index)
    return names


def _pick(asked: Aaep, names: dict[str, set[int]], words: str) -> int | None:
    """The one choice that `words` name. Two readings are asked back."""
    said = (_fold(words), _fold(words.strip("*_~`")))  # bold and the like, which Slack sends as typed
    named = {index for name in said for index in names.get(name, ())}
    match = _INDEX.fullmatch(words)
    index = int(match.group(1)) - 1 if match else -1
    numbered = {index} if 0 <= index < len(asked.choices) else set()
    bare = words.isdecimal()
    if numbered and not named and bare and "numeric" in asked.kinds:
        label = asked.choices[index].label
        raise AnswerRejected(
            f"“{words}” could mean choice {words} or the number {words}: reply #{words} for “{label[:60]}”, or {words}.0."
        )
    found = named | (numbered if bare or not named else set())
    if len(found) > 1:
        ways = " or ".join(f"#{i + 1} for “{asked.choices[i].label[:60]}”" for i in sorted(found)[:5])
        raise AnswerRejected(f"“{words[:40]}” matches more than one choice: reply {ways}.")
    return found.pop() if found else None


def _fold(text: str) -> str:
    return " ".join(_ISOLATES.sub("", text).casefold().split())


def describe(response: Response) -> str:
    """A response as people read it."""
    if isinstance(response, bool):
        return "Yes" if response else "No"
    if isinstance(response, list):
        return ", ".join(response)
    if isinstance(response, dict):
        return json.dumps(response, ensure_ascii=False)
    return str(response)
