"""Turns what a person typed into a response that fits the question, or into a hint. It never guesses.

The rules, as the hints and the documentation state them:

* choices: the choice's number, value or label, in any case; several, separated by commas, if the question takes several
* yes/no: yes, y, yep, ok, true … or no, n, nope, false …
* numbers: a point before decimals; commas, spaces or apostrophes between thousands: 1200, 1,200.50, 12.5.
  If a number is ambiguous (1,200 and 1.200: thousands or decimals? 1,5), the bot asks.
* free text: as typed, 1 to 16384 characters
* approvals: accept, accept. or accept: and a reason in words, in any case, and nothing else; reject takes any words after it
* forms: a JSON object of their fields; a form with a single field also takes that field's value, by the rules above
* lists: an entry on each line, or a JSON list; if a single line has commas, the bot asks
* questions of several kinds: choice, then yes/no, then number, then free text
* what is sent along (a pasted table, a forwarded message) is part of the answer, after its text; it is never a decision about
  an action, and an accept counts only without it
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import regex

from core.aaep import RATIONALE_LIMIT
from core.clarification import Answer, Choice, Decision, Question, Response
from core.errors import AnswerRejected
from core.forms import Form, FormField
from core.names import whole_characters

TEXT_LIMIT = 16_384
_LIST = '["one", "two"]'
FILL_IN_SOME = "Fill in at least one field to answer."
_YES = frozenset(["yes", "y", "yep", "yeah", "ok", "okay", "sure", "true", "👍", ":+1:", ":thumbsup:"])
_NO = frozenset(["no", "n", "nope", "nah", "false", "👎", ":-1:", ":thumbsdown:"])
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?|[+-]?\.\d+")
_GROUPED_NUMBER = re.compile(r"[+-]?[1-9]\d{0,2}(?:([, '_\u00a0\u2009\u202f])\d{3})(?:\1\d{3})*(?:\.\d+)?")
_TWO_READINGS = re.compile(r"[+-]?(?!0[.,])\d{1,3}[.,]\d{3}")
_NUMBERISH = re.compile(r"[+-]?[.,' _\u00a0\u2009\u202f]*\d[\d.,' _\u00a0\u2009\u202f]*")
_CONSENT = re.compile(r"accept(?:\.|:\s+(?P<why>\S.*))?", re.IGNORECASE | re.DOTALL)
_REJECTION = re.compile(r"[*_]*reject[*_]*(?!['’-]?\w)(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_BEFORE_REASON = re.compile(r"^[.,;:：!]*\s*(?:[–—-]+\s+)?")
_IN_DOUBT = re.compile(
    r"\W*(?:or|if|unless|only|clr-\d+-\d+)\b|.*\baccept\b|.*\?$", re.IGNORECASE | re.DOTALL
)
_DECIDING = re.compile(r"[\W_]*(?:(?P<accept>accept|approv)|reject|declin|deny|denied)", re.IGNORECASE)
_EMOJI_CODE = re.compile(r":[^\s:]+:")
# Emoji, other symbols, and what nobody sees: it says nothing in words.
_UNSPOKEN = regex.compile(
    r"(?V1)[[\p{C}\p{So}\p{Sk}\p{Default_Ignorable_Code_Point}\p{Extended_Pictographic}\u20E3]--\s]+"
)
_MENTION = re.compile(r"(?<!\w)@\w")
_REFERENCE = re.compile(r"(?<!\w)[@#]\w\S*")
_PUNCTUATION = regex.compile(r"([^\p{L}\p{M}\p{N}\s])[^\p{L}\p{M}\p{N}\s]+")
_LABELS: dict[Decision, str] = {"accept": "Accept", "reject": "Reject"}
_WORD_END = re.compile(r"[\s,.!?;:]+")
_ISOLATES = re.compile("[\u2066-\u2069]")  # cards put them around right-to-left words
_TALK = re.compile(r"note\s*:|//", re.IGNORECASE)
_INDEX = re.compile(r"[#(]?(\d{1,6})[.)]?")


class Written(NamedTuple):
    """What a person wrote. `attached`: text that was sent along, such as a pasted table; `files`: whether anything was sent
    along that is no text.
    """

    text: str
    attached: str = ""
    files: bool = False

    @property
    def is_blank(self) -> bool:
        return not (self.text.strip() or self.attached)

    @property
    def is_bare(self) -> bool:
        """Whether nothing was sent along."""
        return not (self.attached or self.files)


def from_written(asked: Question, written: Written) -> Answer:
    """Returns the answer that a person gave, with the text that was sent along.

    An accept must stand alone: what is sent along may be its condition.

    Raises:
        AnswerRejected: as `from_text`.
    """
    text, attached = written.text, written.attached
    if asked.is_confirmation:
        answer = from_text(asked, text)
        if answer.response == "accept" and not written.is_bare:
            raise AnswerRejected(f"An accept doesn't count if something is attached to it. {hint(asked)}")
        return (
            from_decision(asked, "reject", _joined(answer.rationale or "", attached)) if attached else answer
        )
    if not attached:
        return from_text(asked, text)
    try:
        return from_text(asked, _joined(text, attached))
    except AnswerRejected as error:
        raise AnswerRejected(f"What you attached can't be part of this answer. {error}") from error


def _joined(text: str, attached: str) -> str:
    return f"{text.rstrip()}\n\n{attached}" if text.strip() else attached


def from_text(asked: Question, text: str) -> Answer:
    """Returns the answer that `text` gives to the question.

    Raises:
        AnswerRejected: with a hint for the person, which repeats only numbers from the text.
    """
    words = text.strip()
    if not words:
        raise AnswerRejected(hint(asked))
    if asked.direct is None or asked.direct.form is None:  # the fields of a form have limits of their own
        _check_length(text)
    if "confirmation" in asked.kinds:
        return _decision(asked, words)
    if (form := asked.form) is not None:
        return _form_answer(form, asked, text)
    for kind, read in (("multiple_choice", _choice), ("yes_no", _yes_no), ("numeric", _numeric)):
        if kind in asked.kinds and (answer := read(asked, words)) is not None:
            return answer
    if "freetext" in asked.kinds:
        return from_free_text(text)
    raise AnswerRejected(_hint_with_word(asked, words))


def from_free_text(text: str) -> Answer:
    """Returns free text as typed.

    Raises:
        AnswerRejected: it is empty, or too long for a reply.
    """
    if not text.strip():
        raise AnswerRejected("The answer is empty.")
    text = whole_characters(text)
    _check_length(text)
    return Answer(text, text)


def from_choices(asked: Question, indexes: list[int]) -> Answer:
    """Returns the choices at `indexes` (from 0), in the order of the question.

    AAEP takes several choices as one text, joined by ", "; a direct question takes a list.

    Raises:
        AnswerRejected: no such choice, none, or several if the question takes one.
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
    is_shared = [each.label for each in asked.choices].count(option.label) > 1
    return Answer(option.value, f"{option.label} ({option.value})" if is_shared else option.label)


def from_choice_text(asked: Question, text: str) -> Answer:
    """Returns the choice that `text` names by number, value or label, or several, separated by commas.

    Raises:
        AnswerRejected: it names none, or is ambiguous.
    """
    only_choices = asked.model_copy(update={"kinds": ("multiple_choice",)})  # so a number means a choice
    answer = _choice(only_choices, text.strip())
    if answer is None:
        raise AnswerRejected(f"No such choice. {hint_to_choose(asked)}")
    return answer


def from_yes_no(asked: Question, yes: bool) -> Answer:  # noqa: FBT001 - the answer itself is a boolean
    """Returns yes or no as an answer.

    Raises:
        AnswerRejected: the question takes no yes or no.
    """
    if "yes_no" not in asked.kinds:
        raise AnswerRejected(hint(asked))
    return Answer(yes, "Yes" if yes else "No")


def from_decision(asked: Question, decision: Decision, rationale: str = "") -> Answer:
    """Returns accept or reject as an answer, with the reason (at most 4096 characters) unless it is blank.

    Raises:
        AnswerRejected: the question is no confirmation, the agent does not take this decision, or the reason is too long.
    """
    if decision not in asked.allowed:
        raise AnswerRejected(hint(asked))
    why = whole_characters(rationale.strip())
    if len(why) > RATIONALE_LIMIT:
        raise AnswerRejected(
            f"The reason has {len(why)} characters; an agent takes at most {RATIONALE_LIMIT}."
        )
    return Answer(decision, _LABELS[decision], why or None)


def from_form(asked: Question, values: Mapping[str, Any]) -> Answer:
    """Returns the answer of a form. `values`: by the names of its fields.

    Raises:
        AnswerRejected: the question is no form, or nothing was filled in. Misfits: some values do not fit.
    """
    form = asked.form
    if form is None:
        raise AnswerRejected(hint(asked))
    checked = form.checked(values)
    if not checked:
        raise AnswerRejected(FILL_IN_SOME)
    return Answer(form.response(checked), form.lines(checked))


def from_field_text(field: FormField, text: str) -> Any:
    """Returns the value that `text` gives to one field of a form.

    Raises:
        AnswerRejected: the text is no valid value of the field.
    """
    value: Any = None
    if len(text) > TEXT_LIMIT:
        raise AnswerRejected(f"Expected at most {TEXT_LIMIT} characters.")
    words = text.strip()
    match field.type:
        case "text":
            value = text
        case "boolean":
            answer = _yes_no(Question(kinds=("yes_no",)), words)
            value = None if answer is None else answer.response
        case "number" | "integer":
            value = number(words)
        case "choice" | "choices":
            picked = _picked(_as_question(field), words)
            values = [field.options[index].value for index in picked or ()]
            value = values if field.type == "choices" else values[0] if values else None
        case "list" if field.entry is not None:
            return field.checked(_entries(field.entry, text))
        case _:
            value = words
    if value is None or not words:
        raise AnswerRejected(f"Expected {field.expected}.")
    return field.checked(value)


def _entries(entry: FormField, text: str) -> list[Any]:
    """Returns the entries of a list: one per line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found += [from_field_text(entry, line.strip())] if line.strip() else []
        except AnswerRejected as error:
            raise AnswerRejected(f"Line {number}: {error}") from error
    return found


def _check_length(text: str) -> None:
    if len(text) > TEXT_LIMIT:
        raise AnswerRejected(f"The answer has {len(text)} characters; an agent takes at most {TEXT_LIMIT}.")


def default_label(asked: Question) -> str:
    """Returns what the agent assumes if no one answers, as people read it: a choice by its label. Empty: no default."""
    default = asked.default_response or ""
    labels = {_fold(option.value): option.label for option in asked.choices}
    if _fold(default) in labels:
        return labels[_fold(default)]
    parts = [_fold(part) for part in default.split(",")] if asked.multi_select else []
    return ", ".join(labels[part] for part in parts) if parts and labels.keys() >= set(parts) else default


def hint(asked: Question) -> str:
    """Says how to answer this question in its thread, with an example."""
    if (form := asked.form) is not None:
        return _hint_for_form(form)
    if decisions := asked.allowed:
        either = " or ".join(decisions)
        if asked.reason_wanted and "accept" in decisions:
            reject = "Reply with reject, or with" if "reject" in decisions else "Reply with"
            return f"{reject} accept: and your reason, in at least 10 characters (accept: as we agreed)."
        return f"Reply with {either}; a reason may follow a colon ({decisions[-1]}: as we agreed)."
    ways: list[str] = []
    if "multiple_choice" in asked.kinds and asked.choices:
        ways.append(_way_to_choose(asked))
    if "yes_no" in asked.kinds:
        ways.append("yes or no")
    if "numeric" in asked.kinds:
        ways.append("a number, like 1200 or 12.5")
    if "freetext" in asked.kinds:
        ways.append("your answer in your own words")
    return "Reply with " + ", or ".join(ways or ["your answer in your own words"]) + "."


def _hint_with_word(asked: Question, words: str) -> str:
    """Returns `hint`; if the text starts with a valid answer, such as "yes, but", also says to send just that word."""
    meant: str | None
    if asked.is_confirmation:
        meant = decision_in(words)
        if meant == "accept" and _MENTION.search(words):  # it may be meant for them
            return f"An accept that mentions someone doesn't count. {hint(asked)}"
        if meant not in asked.allowed or (meant == "accept" and asked.reason_wanted):
            meant = None
    else:
        first = _WORD_END.split(words.casefold(), maxsplit=1)[0]
        meant = "yes" if first in _YES else "no" if first in _NO else None
        meant = meant if "yes_no" in asked.kinds else None
    return f"{hint(asked)} If you mean {meant}, reply with just {meant}." if meant else hint(asked)


def takes_words(asked: Question) -> bool:
    """Whether typed text can be an answer: True unless the question is a form with several fields."""
    return asked.form is None or len(asked.form.fields) == 1


def _hint_for_form(form: Form) -> str:
    if len(form.fields) > 1:
        return 'Click Answer… on its card to fill in the form, or give its fields as JSON: {"name": "value"}.'
    (field,) = form.fields
    if field.options:
        return f"Reply with {_way_to_choose(_as_question(field))}."
    if field.type == "list":
        return f"Reply with {field.expected}, or with a JSON list: {_LIST}."
    return f"Reply with {field.expected}."


def hint_to_choose(asked: Question) -> str:
    """Says how to name a choice in a field for choices only."""
    return f"Type {_way_to_choose(asked)}."


def _way_to_choose(asked: Question) -> str:
    if asked.multi_select:
        return "the numbers of the choices, separated by commas (1, 2), or their labels"
    return "the number of a choice, like 1, or its label"


def number(text: str) -> int | float | None:
    """Returns the number in `text` by the module's rules, or None if it is not a number.

    Raises:
        AnswerRejected: it is ambiguous.
    """
    if _TWO_READINGS.fullmatch(text):
        digits = re.sub(r"[.,]", "", text)
        decimal = text.replace(",", ".")
        raise AnswerRejected(f"“{text}” is ambiguous: reply {digits} or {decimal}0.")
    if _PLAIN_NUMBER.fullmatch(text):
        return _value(text)
    if _GROUPED_NUMBER.fullmatch(text):
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


def _decision(asked: Question, words: str) -> Answer:
    """Reads a decision. Consent has one form: in doubt, the person is asked. A rejection only has to be plain."""
    if consent := _CONSENT.fullmatch(words):
        why = consent["why"] or ""
        takes_back = any(decision_in(line) == "reject" for line in why.splitlines())
        if (words_in(why) or not why) and not takes_back and not _MENTION.search(why):
            return from_decision(asked, "accept", why)
    elif rejection := _REJECTION.fullmatch(words):
        rest = rejection["rest"].strip()
        has_emoji = _EMOJI_CODE.match(rest) is not None
        if (rest.startswith((":", "：")) and not has_emoji) or not _IN_DOUBT.match(rest):
            why = rest if has_emoji else _BEFORE_REASON.sub("", rest, count=1)
            return from_decision(asked, "reject", why if _without_emoji(why).strip() else "")
    raise AnswerRejected(_hint_with_word(asked, words))


def decision_in(text: str) -> Decision | None:
    """Returns the decision that a text begins with, in whatever form. Its author may believe that they decided."""
    found = _DECIDING.match(_without_emoji(text))
    return None if found is None else "accept" if found["accept"] else "reject"


def words_in(reason: str) -> str:
    """Returns what a reason says in words: without emoji, mentions and what nobody sees, and of several punctuation
    characters in a row only the first. Empty: it has no letter.
    """
    said = " ".join(_REFERENCE.sub("", _without_emoji(reason)).split())
    return _PUNCTUATION.sub(r"\1", said) if any(map(str.isalpha, said)) else ""


def _without_emoji(text: str) -> str:
    return _UNSPOKEN.sub("", _EMOJI_CODE.sub("", text))


def _numeric(asked: Question, words: str) -> Answer | None:
    try:
        value = number(words)
    except AnswerRejected:
        if "freetext" in asked.kinds:
            return None
        raise
    return None if value is None else Answer(value, str(value))


def _yes_no(asked: Question, words: str) -> Answer | None:  # noqa: ARG001 - the readers share a signature
    word = words.casefold().rstrip(".!")
    return (
        Answer(response=True, label="Yes")
        if word in _YES
        else Answer(response=False, label="No")
        if word in _NO
        else None
    )


def _form_answer(form: Form, asked: Question, text: str) -> Answer:
    """Reads a JSON object of the fields, or the value of the only field."""
    values, only = _json_of(text, dict), form.fields[0] if len(form.fields) == 1 else None
    if only is not None and (
        form.is_single or values is None or (only.type == "text" and only.name not in values)
    ):
        values = {only.name: _typed(only, text)}
    if values is None:
        raise AnswerRejected(hint(asked))
    return from_form(asked, values)


def _typed(field: FormField, text: str) -> Any:
    """Returns the value of the only field in a reply."""
    if field.type != "list":
        return from_field_text(field, text)
    if (listed := _json_of(text, list)) is not None:
        return field.checked(listed)
    if len(text.strip().splitlines()) == 1 and re.search(r"[,;]", text):
        raise AnswerRejected(
            f"This could be one entry or several. Write one per line, or reply with a JSON list: {_LIST}."
        )
    return from_field_text(field, text)


def _json_of(text: str, kind: type) -> Any:
    """Returns a text as JSON of this kind, or None."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, kind) else None


def _as_question(field: FormField) -> Question:
    """Returns a field with choices as a question."""
    choices = tuple(Choice(str(each.value), each.label) for each in field.options)
    return Question(kinds=("multiple_choice",), choices=choices, multi_select=field.type == "choices")


def _choice(asked: Question, words: str) -> Answer | None:
    picked = _picked(asked, words)
    return None if picked is None else from_choices(asked, picked)


def _picked(asked: Question, words: str) -> list[int] | None:
    """Returns the indexes (from 0) of the choices that `words` name, or None if a part of them names none."""
    names = _names(asked)
    if (index := _pick(asked, names, words)) is not None:
        return [index]
    if not asked.multi_select:
        return None
    parts = [part.strip() for part in re.split(r"[,;\n]", words) if part.strip()]
    picked = [index for part in parts if (index := _pick(asked, names, part)) is not None]
    return picked if parts and len(picked) == len(parts) else None


def _names(asked: Question) -> dict[str, set[int]]:
    """Returns the indexes of the choices with each folded value or label."""
    names: dict[str, set[int]] = {}
    for index, option in enumerate(asked.choices):
        for name in (option.value, option.label):
            names.setdefault(_fold(name), set()).add(index)
    return names


def _pick(asked: Question, names: dict[str, set[int]], words: str) -> int | None:
    """Returns the index of the choice that `words` name, or None.

    Raises:
        AnswerRejected: they are ambiguous.
    """
    spellings = (_fold(words), _fold(words.strip("*_~`")))  # Slack sends bold and the like as typed
    named = {index for spelling in spellings for index in names.get(spelling, ())}
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
    """Returns a response as people read it."""
    if isinstance(response, bool):
        return "Yes" if response else "No"
    if isinstance(response, list):
        return ", ".join(map(describe, response))
    if isinstance(response, dict):
        return json.dumps(response, ensure_ascii=False)
    return str(response)


def is_talk(text: str) -> bool:
    """Returns whether a text is a comment, not an answer: `note: …` in any case, all in parentheses, or `// …`.

    Slack takes a leading slash for a command, but may let `//` through.
    """
    said = text.strip()
    return _TALK.match(said) is not None or _is_in_parentheses(said)


def without_mark(text: str) -> str:
    """Returns a comment without its mark; any other text as it is."""
    said = text.strip()
    if marked := _TALK.match(said):
        return said[marked.end() :].strip()
    return said[1:-1].strip() if _is_in_parentheses(said) else text


def _is_in_parentheses(text: str) -> bool:
    """Returns whether one pair of parentheses encloses the whole text; false for `(a) or (b)`."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for at, character in enumerate(text, 1):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at == len(text)
    return False
