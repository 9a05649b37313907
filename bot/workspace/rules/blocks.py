"""Rules of the blocks, by surface: which may be there, what they must hold. Source: Block Kit reference."""

from __future__ import annotations

from collections.abc import Callable

from .elements import check_element
from .text import Json, Report

MESSAGE, MODAL, HOME = "message", "modal", "home"
_EVERYWHERE = {"section", "divider", "image", "context", "actions", "header", "rich_text", "input", "video"}
ALLOWED = {
    MESSAGE: _EVERYWHERE | {"markdown", "table", "file", "context_actions"},
    MODAL: _EVERYWHERE,
    HOME: _EVERYWHERE,
}
_SELECTS = {
    f"{many}{kind}_select"
    for many in ("", "multi_")
    for kind in ("static", "external", "users", "conversations", "channels")
}
_CHOOSERS = {"radio_buttons", "checkboxes", "datepicker", "timepicker"}
_SECTION = _SELECTS | _CHOOSERS | {"button", "overflow", "image"}
_ACTIONS = (
    _SELECTS - {k for k in _SELECTS if k.startswith("multi_")}
    | _CHOOSERS
    | {"button", "overflow", "datetimepicker"}
)
_INPUT = (_SELECTS | _CHOOSERS | {"datetimepicker"}) | {
    "plain_text_input",
    "email_text_input",
    "url_text_input",
    "number_input",
    "file_input",
    "rich_text_input",
}
_ONLY_MODAL = {"file_input"}


def check_blocks(report: Report, payload: Json, pointer: str, surface: str, most: int) -> None:
    """All blocks of one payload: their number, their types, each one's own rules, unique ids."""
    for where, block in report.items(payload, "blocks", pointer, 0, most):
        kind = block.get("type")
        if kind not in ALLOWED[surface]:
            report.add(f"{where}/type", f"unsupported type: {kind}")
            continue
        checker, fields = _CHECKS[str(kind)]
        report.known(block, {"type", "block_id"} | fields, where)
        _block_id(report, block, where)
        checker(report, block, where, surface)


def _block_id(report: Report, block: Json, pointer: str) -> None:
    if not report.string(block, "block_id", pointer, 255) or "block_id" not in block:
        return
    if block["block_id"] in report.block_ids:
        report.add(f"{pointer}/block_id", "block_id must be unique")
    report.block_ids.add(block["block_id"])


def _section(report: Report, block: Json, pointer: str, surface: str) -> None:
    if "text" not in block and "fields" not in block:
        report.add(pointer, "missing required field: text")
    report.text(block, "text", pointer, 3000, plain=False)
    report.boolean(block, "expand", pointer)
    if "fields" in block:
        for where, item in report.items(block, "fields", pointer, 1, 10):
            report.text_object(item, where, 2000, plain=False)
    if "accessory" in block:
        _elements(report, [(f"{pointer}/accessory", block["accessory"])], _SECTION, surface)


def _elements(report: Report, found: list[tuple[str, Json]], allowed: set[str], surface: str) -> None:
    """Elements of one block: of the types that it takes, with action_ids that differ within it."""
    seen: set[str] = set()
    for pointer, element in found:
        if not isinstance(element, dict):
            report.add(pointer, "must be an object")
            continue
        kind = element.get("type")
        if kind not in allowed or (kind in _ONLY_MODAL and surface != MODAL):
            report.add(f"{pointer}/type", f"unsupported type: {kind}")
        elif kind == "image":
            _image_element(report, element, pointer)
        else:
            check_element(report, element, pointer)
        action_id = element.get("action_id")
        if isinstance(action_id, str):
            if action_id in seen:
                report.add(f"{pointer}/action_id", "action_id must be unique within its block")
            seen.add(action_id)


def _actions(report: Report, block: Json, pointer: str, surface: str) -> None:
    _elements(report, report.items(block, "elements", pointer, 1, 25), _ACTIONS, surface)


def _context(report: Report, block: Json, pointer: str, surface: str) -> None:  # noqa: ARG001 — every block check has this signature
    for where, item in report.items(block, "elements", pointer, 1, 10):
        if item.get("type") == "image":
            _image_element(report, item, where)
        else:
            report.text_object(item, where, 3000, plain=False)


def _image_element(report: Report, element: Json, pointer: str) -> None:
    report.known(element, {"type", "image_url", "slack_file", "alt_text"}, pointer)
    report.string(element, "alt_text", pointer, 2000, required=True, least=0)
    _image_source(report, element, pointer)


def _image_source(report: Report, owner: Json, pointer: str) -> None:
    if ("image_url" in owner) == ("slack_file" in owner):
        report.add(pointer, "exactly one of image_url and slack_file is required")
    report.url(owner, "image_url", pointer)


def _image(report: Report, block: Json, pointer: str, surface: str) -> None:  # noqa: ARG001 — every block check has this signature
    report.string(block, "alt_text", pointer, 2000, required=True, least=0)
    report.text(block, "title", pointer, 2000)
    _image_source(report, block, pointer)


def _header(report: Report, block: Json, pointer: str, surface: str) -> None:  # noqa: ARG001 — every block check has this signature
    report.text(block, "text", pointer, 150, required=True)
    report.integer(block, "level", pointer, 1, 4)


def _input(report: Report, block: Json, pointer: str, surface: str) -> None:
    report.text(block, "label", pointer, 2000, required=True)
    report.text(block, "hint", pointer, 2000)
    report.boolean(block, "optional", pointer)
    report.boolean(block, "dispatch_action", pointer)
    if "element" not in block:
        report.add(pointer, "missing required field: element")
    else:
        _elements(report, [(f"{pointer}/element", block["element"])], _INPUT, surface)


def _markdown(report: Report, block: Json, pointer: str, surface: str) -> None:  # noqa: ARG001 — every block check has this signature
    report.string(block, "text", pointer, 12_000, required=True)


def _rich_text(report: Report, block: Json, pointer: str, surface: str) -> None:  # noqa: ARG001 — every block check has this signature
    allowed = {"rich_text_section", "rich_text_list", "rich_text_preformatted", "rich_text_quote"}
    for where, item in report.items(block, "elements", pointer, 0, 1000):
        if item.get("type") not in allowed:
            report.add(f"{where}/type", f"unsupported type: {item.get('type')}")
        report.items(item, "elements", where, 0, 1000)


def _table(report: Report, block: Json, pointer: str, surface: str) -> None:  # noqa: ARG001 — every block check has this signature
    rows = block.get("rows")
    if not isinstance(rows, list) or not rows:
        report.add(pointer, "missing required field: rows")
        return
    if len(rows) > 100:
        report.add(f"{pointer}/rows", "no more than 100 items allowed")
    for index, row in enumerate(rows):
        if not isinstance(row, list) or not 1 <= len(row) <= 20:
            report.add(f"{pointer}/rows/{index}", "must be an array of 1 to 20 cells")


def _video(report: Report, block: Json, pointer: str, surface: str) -> None:  # noqa: ARG001 — every block check has this signature
    report.text(block, "title", pointer, 199, required=True)
    report.string(block, "alt_text", pointer, 2000, required=True)
    report.url(block, "video_url", pointer, required=True)
    report.url(block, "thumbnail_url", pointer, required=True)


def _nothing_more(report: Report, block: Json, pointer: str, surface: str) -> None:
    """Blocks that hold nothing, or whose content no text of ours goes into."""


_VIDEO_FIELDS = {"title", "alt_text", "video_url", "thumbnail_url", "title_url", "description", "author_name"}
_Check = Callable[[Report, Json, str, str], None]
_CHECKS: dict[str, tuple[_Check, set[str]]] = {
    "section": (_section, {"text", "fields", "accessory", "expand"}),
    "divider": (_nothing_more, set()),
    "image": (_image, {"image_url", "slack_file", "alt_text", "title"}),
    "context": (_context, {"elements"}),
    "actions": (_actions, {"elements"}),
    "header": (_header, {"text", "level"}),
    "input": (_input, {"label", "element", "hint", "optional", "dispatch_action"}),
    "rich_text": (_rich_text, {"elements"}),
    "markdown": (_markdown, {"text"}),
    "table": (_table, {"rows", "column_settings"}),
    "video": (_video, _VIDEO_FIELDS | {"provider_name", "provider_icon_url"}),
    "file": (_nothing_more, {"external_id", "source"}),
    "context_actions": (_nothing_more, {"elements"}),
}
