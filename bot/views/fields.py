"""The fields of a form (`core.forms`): as text, as the inputs of a modal, and how a submitted form is read.

A choice is identified by its position, never by the agent's value. What Slack cannot check (an exclusive bound, a
URI) is checked on submission. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_FEW = 10  # options that radio buttons and checkboxes take
_ONE_LINE = 200  # characters; a longer text gets several lines
_DIGITS = 60  # of a bound that Slack checks
_FIRST_MOMENT, _LAST_MOMENT = 1_000_000_000, 9_999_999_999  # of Slack's datetimepicker: ten digits
_PLAIN = {"text", "a number", "an e-mail address"}  # need no hint
_ELEMENTS = {"date": "datepicker", "time": "timepicker", "email": "email_text_input"}
_PICKED_IN = "In your time zone, as set in Slack."
_IN_UTC = "In UTC."
_TYPED_CHOICE = "Type the number of a choice, or its label; all are listed under View full."
_TYPED_CHOICES = "Type the numbers of your choices, with commas (1, 2); all are listed under View full."


def form_words(form: Form, *, brief: bool = False) -> str:
    """Returns the whole form, one line per field; choices that do not fit the line follow it, numbered. `brief`: only
    counts such choices, unless the form has one field: then people answer in the thread by number.
    """
    alone = len(form.fields) == 1
    return "\n".join(line for field in form.fields for line in _field_lines(field, alone=alone, brief=brief))


def form_inputs(form: Form) -> tuple[Input, ...]:
    """Returns the inputs of a modal, in the form's order. If the choices do not all fit a view, the longest lists are
    typed.
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
    """Returns whether the inputs omit or cut text that `form_words` contains."""
    for field, shown in zip(form.fields, inputs, strict=True):
        labels = [inert.named(each.label) for each in field.options]
        if (
            shown.label != inert.named(field.title)
            or inert.size(_hint(field)) > _HINT
            or any(each.description for each in field.options)
            or not all(map(fits_option, labels))
            or (labels and not shown.options)
        ):
            return True
    return False


def read_fields(values: Mapping[str, Any], form: Form) -> tuple[dict[str, Any], dict[str, str]]:
    """Reads a submitted modal. Returns the fields' values, and errors by the inputs' block ids; one if all is empty.

    Args:
        values: the view's state values. An optional field that is empty is omitted.
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
    if not given and not errors:
        errors[f"{_BLOCK}0"] = answers.FILL_IN_SOME
    return given, errors


def _field_lines(field: FormField, *, alone: bool, brief: bool) -> Iterator[str]:
    has_more = any(each.description for each in field.options) or not field.names_options
    listed = alone or (has_more and not brief)
    facts = [field.expected]
    facts += ["optional"] if field.may_be_empty else []
    facts += [] if field.default is None else [f"default: {field.shown(field.default)}"]
    about = f": {inert.line(field.description)}" if field.description else ""
    yield inert.plain(f"• {inert.named(field.title)} ({inert.cleaned_line('; '.join(facts))}){about}")
    if listed:
        for number, option in enumerate(field.options, 1):
            more = f": {inert.line(option.description)}" if option.description else ""
            yield inert.plain(f"  {number}. {inert.named(option.label)}{more}")


def _hint(field: FormField) -> str:
    """Returns what the input itself does not tell."""
    expected = ""
    if field.how_many:
        expected = f"Choose {field.how_many}."
    elif field.type == "date-time":
        expected = _PICKED_IN
    elif field.type == "time" and not field.zoneless:
        expected = _IN_UTC
    elif field.type not in {"boolean", "choice", "choices", "date", "time"} and field.expected not in _PLAIN:
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
            return choosing(made, field)
        case "date-time":
            at = int(datetime.fromisoformat(default).timestamp()) if default else 0
            shown = at if _FIRST_MOMENT <= at <= _LAST_MOMENT else ""
            return replace(made, element="datetimepicker", initial=shown)
        case "date" | "time" | "email":
            initial = (default or "")[: len("14:00")] if field.type == "time" else default or ""
            return replace(made, element=_ELEMENTS[field.type], initial=initial)
        case _:
            return _typing(made, field)


def _typing(made: Input, field: FormField) -> Input:
    is_list = field.type == "list"
    default = "\n".join(map(str, field.default or ())) if is_list else field.default
    initial = inert.cleaned(default or "")
    most = int(TYPED_LIMIT if field.most is None or is_list else min(TYPED_LIMIT, field.most))
    lines = is_list or (field.type == "text" and (most > _ONE_LINE or "\n" in initial))
    # Slack may count letters outside the basic plane twice, so an initial text could be too long for it. An optional
    # text may be empty, whatever its minimum length.
    least = 0 if field.may_be_empty or is_list else int(field.least or 0)
    return replace(made, multiline=lines, least=least, most=max(most, inert.size(initial)), initial=initial)


def choosing(made: Input, field: FormField) -> Input:
    """Returns `made` with a field's choices, its default chosen."""
    several, few = field.type == "choices", len(field.options) <= _FEW
    held = () if field.default is None else field.default if several else (field.default,)
    initial = positions(field, held)
    element = "checkboxes" if several and few else "multi_static_select" if several else ""
    return replace(
        made,
        element=element or ("radio_buttons" if few else "static_select"),
        options=options_of([inert.named(each.label) for each in field.options]),
        chosen_most=int(field.most or 0) if element == "multi_static_select" else 0,
        initial=initial,
    )


def options_of(labels: Sequence[str], *others: str) -> tuple[tuple[str, str], ...]:
    """Returns the labels as options, whose values are their positions: as they are if all fit and differ, also from the `others`
    in the list; else numbered.
    """
    every = [*labels, *others]
    are_clear = len({label.casefold() for label in every}) == len(every) and all(map(fits_option, labels))
    return tuple((text, str(n)) for n, text in enumerate(labels if are_clear else numbered_options(labels)))


def numbered_options(labels: Sequence[str], width: int = OPTION) -> list[str]:
    """Returns the labels as options, numbered and clipped."""
    return [inert.clip(f"{n}. {label}", width) for n, label in enumerate(labels, 1)]


def fits_option(label: str) -> bool:
    return inert.size(label) <= OPTION


def positions(field: FormField, values: Iterable[Any]) -> tuple[str, ...]:
    """Returns the options of the choices with these values, in the order of the field."""
    held = [field.option(each) for each in values]
    return tuple(str(n) for n, each in enumerate(field.options) if each in held)


def _typed(n: int, field: FormField) -> Input:
    """An input for typing a choice, because the list is too long for a view."""
    hint = _TYPED_CHOICES if field.type == "choices" else _TYPED_CHOICE
    held = [] if field.default is None else field.default if field.type == "choices" else [field.default]
    numbers = (f"#{number}" for number, each in enumerate(field.options, 1) if each.value in held)
    made = replace(_input(n, field), element="plain_text_input", options=(), hint=hint, chosen_most=0)
    return replace(made, multiline=False, initial=", ".join(numbers))


def _digits(number: float | None) -> str:
    """Returns a number for Slack's number_input; empty if there is none, or if it cannot be written that way."""
    if number is None:
        return ""
    said = format(Decimal(repr(number)), "f")
    said = said.rstrip("0").rstrip(".") if "." in said else said
    return said if len(said) <= _DIGITS else ""


def _entered(field: FormField, state: Mapping[str, Any]) -> Any:
    """Returns an input's content, or None if it is empty.

    Raises:
        AnswerRejected: the field cannot have this value.
    """
    if (picked := chosen(state)) is not None:
        found = [_value_at(field, place) for place in picked]
        return (found if field.type == "choices" else found[0]) if found else None
    if "selected_date" in state:
        return state["selected_date"]
    if "selected_time" in state:
        return state["selected_time"]
    if "selected_date_time" in state:
        at = state["selected_date_time"]
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
    text = state.get("value") or ""
    if not text.strip():
        return None
    return answers.from_field_text(field, text)


def _value_at(field: FormField, place: str) -> Any:
    """Returns the choice's value by its option."""
    if field.type == "boolean":
        return place == YES_VALUE
    if not place.isdecimal() or int(place) >= len(field.options):
        raise AnswerRejected("That choice is not part of the form.")
    return field.options[int(place)].value
