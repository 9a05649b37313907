"""Rules of the interactive elements: buttons, selects, pickers, inputs. Source: Block Kit reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

from .text import Json, Report

ACTION_ID, MOST_OPTIONS = 255, 100
_DATE, _TIME = re.compile(r"\d{4}-\d{2}-\d{2}"), re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_COMMON = {"type", "action_id", "confirm", "focus_on_load"}
_MULTI = {"max_selected_items"}
_SELECT = {"placeholder"}


def check_element(report: Report, element: Json, pointer: str) -> None:
    """One element, whatever its place; which types a place takes is the block's matter."""
    kind = str(element["type"])
    checker, fields = _CHECKS[kind]
    report.known(element, _COMMON | fields, pointer)
    report.string(element, "action_id", pointer, ACTION_ID)
    report.boolean(element, "focus_on_load", pointer)
    if element.get("focus_on_load") is True:
        report.focused += 1
    if "confirm" in element:
        check_confirm(report, element["confirm"], f"{pointer}/confirm")
    if "placeholder" in element:
        report.text(element, "placeholder", pointer, 150)
    checker(report, element, pointer)


def check_confirm(report: Report, confirm: object, pointer: str) -> None:
    if not isinstance(confirm, Mapping):
        report.add(pointer, "must be a confirm object")
        return
    report.known(confirm, {"title", "text", "confirm", "deny", "style"}, pointer)
    report.text(confirm, "title", pointer, 100, required=True)
    report.text(confirm, "text", pointer, 300, plain=False, required=True)
    report.text(confirm, "confirm", pointer, 30, required=True)
    report.text(confirm, "deny", pointer, 30, required=True)
    report.choice(confirm, "style", pointer, {"primary", "danger"})


def check_option(report: Report, option: Json, pointer: str, *, plain: bool, overflow: bool = False) -> None:
    report.known(option, {"text", "value", "description"} | ({"url"} if overflow else set()), pointer)
    report.text(option, "text", pointer, 75, plain=plain, required=True)
    report.string(option, "value", pointer, 150, required=True)
    report.text(option, "description", pointer, 75, plain=plain)
    if overflow:
        report.url(option, "url", pointer)


def _options(
    report: Report, owner: Json, pointer: str, most: int, *, plain: bool, least: int = 1
) -> list[Json]:
    options = report.items(owner, "options", pointer, least, most)
    for where, option in options:
        check_option(report, option, where, plain=plain, overflow=owner.get("type") == "overflow")
    values = [option.get("value") for _, option in options]
    if len(set(map(str, values))) != len(values):
        report.add(f"{pointer}/options", "values must be unique")
    return [option for _, option in options]


def _static(report: Report, element: Json, pointer: str) -> list[Json]:
    """Options, or groups of options: exactly one of the two."""
    if ("options" in element) == ("option_groups" in element):
        report.add(pointer, "exactly one of options and option_groups is required")
        return []
    if "options" in element:
        return _options(report, element, pointer, MOST_OPTIONS, plain=True)
    found: list[Json] = []
    for where, group in report.items(element, "option_groups", pointer, 1, MOST_OPTIONS):
        report.known(group, {"label", "options"}, where)
        report.text(group, "label", where, 75, required=True)
        found += _options(report, group, where, MOST_OPTIONS, plain=True)
    return found


def _initial(report: Report, element: Json, pointer: str, options: list[Json]) -> None:
    if "initial_option" in element and element["initial_option"] not in options:
        report.add(f"{pointer}/initial_option", "must be one of the options")
    chosen = element.get("initial_options")
    if chosen is None:
        return
    if not isinstance(chosen, list) or not chosen or any(option not in options for option in chosen):
        report.add(f"{pointer}/initial_options", "must be a non-empty array of some of the options")


def _button(report: Report, element: Json, pointer: str) -> None:
    report.text(element, "text", pointer, 75, required=True)
    report.string(element, "value", pointer, 2000)
    report.string(element, "accessibility_label", pointer, 75)
    report.choice(element, "style", pointer, {"primary", "danger"})
    report.url(element, "url", pointer)


def _static_select(report: Report, element: Json, pointer: str) -> None:
    _initial(report, element, pointer, _static(report, element, pointer))
    report.integer(element, "max_selected_items", pointer, 1, MOST_OPTIONS)


def _external_select(report: Report, element: Json, pointer: str) -> None:
    report.integer(element, "min_query_length", pointer, 0, 1000)


def _plain_select(report: Report, element: Json, pointer: str) -> None:
    report.integer(element, "max_selected_items", pointer, 1, MOST_OPTIONS)


def _radio(report: Report, element: Json, pointer: str) -> None:
    _initial(report, element, pointer, _options(report, element, pointer, 10, plain=False))


def _overflow(report: Report, element: Json, pointer: str) -> None:
    _options(report, element, pointer, 5, plain=True)


def _date(report: Report, element: Json, pointer: str) -> None:
    if "initial_date" in element and not _DATE.fullmatch(str(element["initial_date"])):
        report.add(f"{pointer}/initial_date", "must be a date, YYYY-MM-DD")


def _time(report: Report, element: Json, pointer: str) -> None:
    if "initial_time" in element and not _TIME.fullmatch(str(element["initial_time"])):
        report.add(f"{pointer}/initial_time", "must be a time, HH:mm")
    report.string(element, "timezone", pointer, 255)


def _datetime(report: Report, element: Json, pointer: str) -> None:
    report.integer(element, "initial_date_time", pointer, 1_000_000_000, 9_999_999_999)


def _text_input(report: Report, element: Json, pointer: str) -> None:
    report.boolean(element, "multiline", pointer)
    least = report.integer(element, "min_length", pointer, 0, 3000)
    most = report.integer(element, "max_length", pointer, 1, 3000)
    if least is not None and most is not None and least > most:
        report.add(f"{pointer}/min_length", "must not be greater than max_length")
    report.string(element, "initial_value", pointer, most or 3000, least=0)
    _dispatch(report, element, pointer)


def _line_input(report: Report, element: Json, pointer: str) -> None:
    report.string(element, "initial_value", pointer, 3000, least=0)
    _dispatch(report, element, pointer)


def _dispatch(report: Report, element: Json, pointer: str) -> None:
    config = element.get("dispatch_action_config")
    if config is None:
        return
    triggers = config.get("trigger_actions_on") if isinstance(config, Mapping) else None
    allowed = {"on_enter_pressed", "on_character_entered"}
    if not isinstance(triggers, list) or not triggers or not set(map(str, triggers)) <= allowed:
        report.add(
            f"{pointer}/dispatch_action_config", f"trigger_actions_on must hold some of {sorted(allowed)}"
        )


def _number_input(report: Report, element: Json, pointer: str) -> None:
    decimal = element.get("is_decimal_allowed")
    if not isinstance(decimal, bool):
        report.add(pointer, "missing required field: is_decimal_allowed")
    bounds = {
        name: _number(report, element, name, pointer) for name in ("min_value", "max_value", "initial_value")
    }
    low, high, initial = bounds.values()
    if low is not None and high is not None and low > high:
        report.add(f"{pointer}/min_value", "must not be greater than max_value")
    if initial is not None and ((low is not None and initial < low) or (high is not None and initial > high)):
        report.add(f"{pointer}/initial_value", "must lie between min_value and max_value")
    _dispatch(report, element, pointer)


def _number(report: Report, element: Json, name: str, pointer: str) -> Decimal | None:
    """The bound as a number; Slack wants it as a string."""
    if name not in element or not report.string(element, name, pointer, 255):
        return None
    try:
        value = Decimal(element[name])
    except InvalidOperation:
        value = Decimal("NaN")
    whole_needed = element.get("is_decimal_allowed") is False
    if not value.is_finite() or (whole_needed and value != value.to_integral_value()):
        report.add(f"{pointer}/{name}", "must be a number" if not whole_needed else "must be a whole number")
        return None
    return value


def _nothing_more(report: Report, element: Json, pointer: str) -> None:
    """Elements whose fields the common checks cover."""


_STATIC_FIELDS = _SELECT | {"options", "option_groups"}
_TEXT_FIELDS = {"placeholder", "initial_value", "dispatch_action_config"}
_FILTER_FIELDS = {"default_to_current_conversation", "filter", "response_url_enabled"}
_Check = Callable[[Report, Json, str], None]
_CHECKS: dict[str, tuple[_Check, set[str]]] = {
    "button": (_button, {"text", "url", "value", "style", "accessibility_label"}),
    "static_select": (_static_select, _STATIC_FIELDS | {"initial_option"}),
    "multi_static_select": (_static_select, _STATIC_FIELDS | _MULTI | {"initial_options"}),
    "external_select": (_external_select, _SELECT | {"initial_option", "min_query_length"}),
    "multi_external_select": (_external_select, _SELECT | _MULTI | {"initial_options", "min_query_length"}),
    "users_select": (_plain_select, _SELECT | {"initial_user"}),
    "multi_users_select": (_plain_select, _SELECT | _MULTI | {"initial_users"}),
    "conversations_select": (_plain_select, _SELECT | _FILTER_FIELDS | {"initial_conversation"}),
    "multi_conversations_select": (
        _plain_select,
        _SELECT | _MULTI | _FILTER_FIELDS | {"initial_conversations"},
    ),
    "channels_select": (_plain_select, _SELECT | {"initial_channel", "response_url_enabled"}),
    "multi_channels_select": (_plain_select, _SELECT | _MULTI | {"initial_channels"}),
    "overflow": (_overflow, {"options"}),
    "radio_buttons": (_radio, {"options", "initial_option"}),
    "checkboxes": (_radio, {"options", "initial_options"}),
    "datepicker": (_date, {"initial_date", "placeholder"}),
    "timepicker": (_time, {"initial_time", "placeholder", "timezone"}),
    "datetimepicker": (_datetime, {"initial_date_time"}),
    "plain_text_input": (_text_input, _TEXT_FIELDS | {"multiline", "min_length", "max_length"}),
    "email_text_input": (_line_input, _TEXT_FIELDS),
    "url_text_input": (_line_input, _TEXT_FIELDS),
    "number_input": (_number_input, _TEXT_FIELDS | {"is_decimal_allowed", "min_value", "max_value"}),
    "file_input": (_nothing_more, {"filetypes", "max_files"}),
    "rich_text_input": (_nothing_more, _TEXT_FIELDS),
}
