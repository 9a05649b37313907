"""Texts that people and programs hand in: as an argument, or on standard input in place of `-`."""

from __future__ import annotations

import sys

from core.aaep import whole_characters
from core.errors import BadInput
from core.workflow import ROLE_LIMIT, is_role

_MOST = 1 << 20  # bytes; far more than any answer may have


def given(text: str) -> str:
    """The words meant by an argument; `-` stands for standard input, without the line end after its last line.

    Raises:
        BadInput: standard input is no text.
    """
    if text != "-":
        return whole_characters(text)
    if sys.stdin.isatty():
        sys.stderr.write("Type the text; Ctrl-D on a line of its own ends it.\n")
    try:
        # Its bytes: in some locales half a character would pass as text.
        text = sys.stdin.buffer.read(_MOST).decode("utf-8")
        return whole_characters(text).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BadInput("Standard input is not UTF-8 text.") from None


def role(name: str | None) -> str | None:
    """A role that decides, given with `--as`.

    Raises:
        BadInput: empty, longer than 80 characters, or with characters that cannot be seen.
    """
    if name is not None and not is_role(name):
        raise BadInput(
            f"--as: expected a role, one line of 1 to {ROLE_LIMIT} printable characters, such as architect."
        )
    return name
