"""The fields of a form (`core.forms`): in words, as the inputs of a modal, and how they are read when it is submitted.

A choice goes by its place, never by the agent's value. What Slack cannot hold back itself (an exclusive bound, a URI) is
checked when it is read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from bot.views import inert
from bot.views.blockkit import FILL_IN, NO_VALUE, OPTION, YES_OR_NO, YES_VALUE, Input, chosen
from core import answers
from core.errors import AnswerRejected
from core.forms import TYPED_LIMIT, Form, FormField

_BLOCK = "answer.field."
_LABEL, _HINT = 150, 300
_ROOM = 190_000  # bytes of all inputs as JSON, of a view's 250 KB
_FEW = 10  # radio buttons and checkboxes
_ONE_LINE = 200  # a text of more characters gets several lines
_DIGITS = 60  # of a bound that is told to Slack
_FIRST_MOMENT, _LAST_MOMENT = 1_000_000_000, 9_999_999_999  # of Slack's datetimepicker: ten digits
_PLAIN = {"text", "a number", "an e-mail address"}  # goes without saying
_TYPED_CHOICE = "Type the number of a choice, or its label; all are listed under View full."
_TYPED_CHOICES = "Type the numbers of your choices, with commas (1, 2); all are listed under View full."


def form_words(form: Form, *, brief: bool = False) -> str:
    """All that is asked, a line for each field; choices that fill more than that line below it, numbered.

    `brief`: those are only counted, but for a form of one field, which is answered in the thread by these numbers.
    """
    alone = len(form.fields) == 1
    return "\n".join(line for field in form.fields for line in _told(field, alone=alone, brief=brief))


def form_inputs(form: Form) -> tuple[Input, ...]:
    """The inputs of a modal, in the order of the form. Where the choices of all fields are more than a view holds, those
    of the longest lists are typed.
    """
    made = [_input(n, field) for n, field in enumerate(form.fields)]
    costs = [each.cost for each in made]
    longest_first = sorted((n for n, each in enumerate(made) if each.options), key=lambda n: -costs[n])
    for n in longest_first:
        if sum(costs) <= _ROOM:
            break
        made[n] = _typed(n, form.fields[n])
        costs[n] = made[n].cost
    return tuple(made)


def hides(form: Form, inputs: tuple[Input, ...]) -> bool:
    """Whether the inputs leave out, or cut, words that `form_words` has."""
    for field, shown in zip(form.fields, inputs, strict=True):
        labels = [inert.named(each.label) for each in field.options]
        if (
            shown.label != inert.named(field.title)
            or inert.size(_hint(field)) > _HINT
            or any(each.description for each in field.options)
            or any(inert.size(label) > OPTION for label in labels)
            or (labels and not shown.options)
        ):
            return True
    return False


def read_fields(values: Mapping[str, Any], form: Form) -> tuple[dict[str, Any], dict[str, str]]:
    """What a submitted modal fills into a form, and what is wrong with it, by the inputs' block ids.

    Args:
        values: the view's state values. An optional field that is empty is left out.
        form: what was asked.
    """
    given: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for n, field in enumerate(form.fields):
        block = f"{_BLOCK}{n}"
        state = next(iter((values.get(block) or {}).values()), None) or {}
        try:
            value = _entered(field, state)
            if value is not None:
                given[field.name] = field.checked(value)
            elif not field.may_be_empty:
                errors[block] = FILL_IN
            elif field.required:
                given[field.name] = None if field.nullable else []
        except AnswerRejected as error:
            errors[block] = inert.plain(str(error))
    return given, errors


def _told(field: FormField, *, alone: bool, brief: bool) -> Iterator[str]:
    has_more = any(each.description for each in field.options) or not field.names_options
    listed = alone or (has_more and not brief)
    facts = [field.expected]
    facts += ["optional"] if field.may_be_empty else []
    facts += [] if field.default is None else [f"default: {field.shown(field.default)}"]
    about = f": {field.description}" if field.description else ""
    yield inert.plain(f"• {inert.named(field.title)} ({inert.cleaned_line('; '.join(facts))}){about}")
    if listed:
        for number, option in enumerate(field.options, 1):
            more = f": {option.description}" if option.description else ""
            yield inert.plain(f"  {number}. {inert.named(option.label)}{more}")


def _hint(field: FormField) -> str:
    """What the input does not say by itself."""
    expected = ""
    if field.how_many:
        expected = f"Choose {field.how_many}."
    elif field.type in {"text", "number", "integer", "uri", "email"} and field.expected not in _PLAIN:
        expected = f"{field.expected[:1].upper()}{field.expected[1:]}."
    parts = (field.description or "", expected)
    return inert.plain("\n".join(filter(None, parts))).strip()


def _input(n: int, field: FormField) -> Input:
    label, hint = inert.named(field.title, _LABEL), inert.clip(_hint(field), _HINT)
    made, default = Input(f"{_BLOCK}{n}", label, "plain_text_input", field.may_be_empty, hint), field.default
    match field.type:
        case "number" | "integer":
            return replace(
                made,
                element="number_input",
                whole=field.type == "integer",
                lowest=_digits(field.above if field.least is None else field.least),
                highest=_digits(field.below if field.most is None else field.most),
                initial=_digits(default),
            )
        case "boolean":
            held = "" if default is None else YES_VALUE if default else NO_VALUE
            return replace(made, element="radio_buttons", options=YES_OR_NO, initial=held)
        case "choice" | "choices":
            return _choosing(made, field)
        case "date-time":
            at = int(datetime.fromisoformat(default).timestamp()) if default else 0
            shown = at if _FIRST_MOMENT <= at <= _LAST_MOMENT else ""
            return replace(made, element="datetimepicker", initial=shown)
        case "date" | "email":
            element = "datepicker" if field.type == "date" else "email_text_input"
            return replace(made, element=element, initial=default or "")
        case _:
            return _typing(made, field)


def _typing(made: Input, field: FormField) -> Input:
    initial = inert.cleaned(field.default or "")
    most = int(TYPED_LIMIT if field.most is None else min(TYPED_LIMIT, field.most))
    lines = field.type == "text" and (most > _ONE_LINE or "\n" in initial)
    # Slack may count letters outside the basic plane twice, so what stands there at first could be too long for it. An
    # empty text may be sent where nothing is required, whatever its least length.
    least = 0 if field.may_be_empty else int(field.least or 0)
    return replace(made, multiline=lines, least=least, most=max(most, inert.size(initial)), initial=initial)


def _choosing(made: Input, field: FormField) -> Input:
    several, few = field.type == "choices", len(field.options) <= _FEW
    labels = [inert.named(each.label) for each in field.options]
    distinct = len({label.casefold() for label in labels}) == len(labels)
    if not distinct or any(inert.size(label) > OPTION for label in labels):
        labels = [inert.clip(f"{n}. {label}", OPTION) for n, label in enumerate(labels, 1)]
    held = () if field.default is None else field.default if several else (field.default,)
    initial = tuple(str(n) for n, each in enumerate(field.options) if each.value in held)
    element = "checkboxes" if several and few else "multi_static_select" if several else ""
    return replace(
        made,
        element=element or ("radio_buttons" if few else "static_select"),
        options=tuple((label, str(n)) for n, label in enumerate(labels)),
        chosen_most=int(field.most or 0) if element == "multi_static_select" else 0,
        initial=initial,
    )


def _typed(n: int, field: FormField) -> Input:
    """Where a list of choices is too long for a view: they are typed."""
    hint = _TYPED_CHOICES if field.type == "choices" else _TYPED_CHOICE
    held = [] if field.default is None else field.default if field.type == "choices" else [field.default]
    numbers = (f"#{number}" for number, each in enumerate(field.options, 1) if each.value in held)
    made = replace(_input(n, field), element="plain_text_input", options=(), hint=hint, chosen_most=0)
    return replace(made, multiline=False, initial=", ".join(numbers))


def _digits(number: float | None) -> str:
    """A number as Slack's number_input takes it; empty where there is none, or none that can be written so."""
    if number is None:
        return ""
    said = format(Decimal(repr(number)), "f")
    said = said.rstrip("0").rstrip(".") if "." in said else said
    return said if len(said) <= _DIGITS else ""


def _entered(field: FormField, state: Mapping[str, Any]) -> Any:
    """What stands in an input; None: nothing.

    Raises:
        AnswerRejected: nothing that the field could be.
    """
    if (picked := chosen(state)) is not None:
        found = [_value_at(field, place) for place in picked]
        return (found if field.type == "choices" else found[0]) if found else None
    if "selected_date" in state:
        return state["selected_date"]
    if "selected_date_time" in state:
        at = state["selected_date_time"]
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
    text = state.get("value") or ""
    if not text.strip():
        return None
    return answers.from_field_text(field, text)


def _value_at(field: FormField, place: str) -> Any:
    """The value of the choice that an option stands for."""
    if field.type == "boolean":
        return place == YES_VALUE
    if not place.isdecimal() or int(place) >= len(field.options):
        raise AnswerRejected("That choice is not part of the form.")
    return field.options[int(place)].value
