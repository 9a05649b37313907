"""The seal on every control that we post: which installation it is of, around what its codec packed. Pure.

Numbers of clarifications, pages and rounds begin alike in every installation, and Slack hands a click to any bot on the
app: without a seal, a press on somebody else's card would decide a question of ours. Controls of releases before the
seal carry none; what they count for is decided by the message that they stand on (`bot.slack.binding`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_SEALED = re.compile(r"2\|([0-9a-f]{16})\|(.*)", re.DOTALL)


def seal(installation: str, packed: str) -> str:
    """`packed` with the installation's id in front."""
    return f"2|{installation}|{packed}"


def unseal(text: str) -> tuple[str, str]:
    """The installation's id, empty where there is none, and what was packed."""
    found = _SEALED.fullmatch(text)
    return (found[1], found[2]) if found else ("", text)


def seal_controls(installation: str, blocks: Iterable[dict[str, Any]]) -> None:
    """Seal what buttons and menus carry; what people fill in is left as it is."""
    for carrier in _carriers(blocks):
        carrier["value"] = seal(installation, carrier["value"])


def carried(blocks: Iterable[dict[str, Any]]) -> set[str]:
    """What the buttons and menus of a message carry, unsealed."""
    return {unseal(carrier["value"])[1] for carrier in _carriers(blocks)}


def _carriers(blocks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The buttons and the options of menus. Inputs have an `element`, and are none of them."""
    for block in blocks:
        for control in (*block.get("elements", ()), block.get("accessory")):
            if isinstance(control, dict) and "action_id" in control:
                carriers = (control, *control.get("options", ()))
                yield from (each for each in carriers if each.get("value"))
