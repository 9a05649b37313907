"""Problems, and the checks that every part of Block Kit shares: strings, ids, text objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """One broken rule: Slack's error code, where (JSON pointer), what was expected."""

    code: str
    pointer: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} [json-pointer:{self.pointer}]"


@dataclass
class Report:
    """The problems found so far in one payload, and what has to be unique within it."""

    code: str = "invalid_blocks"
    problems: list[Problem] = field(default_factory=list)
    block_ids: set[str] = field(default_factory=set)
    focused: int = 0

    def add(self, pointer: str, text: str) -> None:
        self.problems.append(Problem(self.code, pointer, text))

    def known(self, value: Json, allowed: Iterable[str], pointer: str) -> None:
        """Only these keys may be there."""
        for name in value:
            if name not in allowed:
                self.add(pointer, f"no more than the known fields allowed: {name}")

    def string(
        self, owner: Json, name: str, pointer: str, most: int, *, required: bool = False, least: int = 1
    ) -> bool:
        """Whether `owner[name]` is a string of `least` to `most` characters; a missing one is right unless required."""
        value, where = owner.get(name), f"{pointer}/{name}"
        if value is None:
            if required:
                self.add(pointer, f"missing required field: {name}")
            return not required
        if not isinstance(value, str):
            self.add(where, "must be a string")
        elif len(value) < least:
            self.add(where, f"must be more than {least - 1} characters")
        elif len(value) > most:
            self.add(where, f"must be less than {most + 1} characters")
        else:
            return True
        return False

    def boolean(self, owner: Json, name: str, pointer: str) -> None:
        if name in owner and not isinstance(owner[name], bool):
            self.add(f"{pointer}/{name}", "must be a boolean")

    def integer(self, owner: Json, name: str, pointer: str, least: int, most: int) -> int | None:
        """The integer `owner[name]`, if it is there and within its bounds."""
        if name not in owner:
            return None
        value = owner[name]
        if not isinstance(value, int) or isinstance(value, bool):
            self.add(f"{pointer}/{name}", "must be an integer")
        elif not least <= value <= most:
            self.add(f"{pointer}/{name}", f"must be between {least} and {most}")
        else:
            return value
        return None

    def choice(self, owner: Json, name: str, pointer: str, allowed: Iterable[str]) -> None:
        options = sorted(allowed)
        if name in owner and owner[name] not in options:
            self.add(f"{pointer}/{name}", f"must be one of {', '.join(options)}")

    def text(
        self, owner: Json, name: str, pointer: str, most: int, *, plain: bool = True, required: bool = False
    ) -> None:
        """A text object: `plain` allows plain_text only, otherwise mrkdwn too."""
        value, where = owner.get(name), f"{pointer}/{name}"
        if value is None:
            if required:
                self.add(pointer, f"missing required field: {name}")
            return
        self.text_object(value, where, most, plain=plain)

    def text_object(self, value: object, pointer: str, most: int, *, plain: bool) -> None:
        if not isinstance(value, Mapping):
            self.add(pointer, "must be a text object")
            return
        kind = value.get("type")
        if kind not in ({"plain_text"} if plain else {"plain_text", "mrkdwn"}):
            self.add(f"{pointer}/type", "must be plain_text" if plain else "must be plain_text or mrkdwn")
            return
        fields = {"type", "text", "emoji"} if kind == "plain_text" else {"type", "text", "verbatim"}
        self.known(value, fields, pointer)
        self.boolean(value, "emoji", pointer)
        self.boolean(value, "verbatim", pointer)
        self.string(value, "text", pointer, most, required=True)

    def items(self, owner: Json, name: str, pointer: str, least: int, most: int) -> list[tuple[str, Json]]:
        """The objects of a list with their pointers; those that are no objects are reported."""
        value, where = owner.get(name), f"{pointer}/{name}"
        if value is None:
            self.add(pointer, f"missing required field: {name}")
            return []
        if not isinstance(value, list):
            self.add(where, "must be an array")
            return []
        if len(value) < least:
            self.add(where, f"no less than {least} items allowed")
        if len(value) > most:
            self.add(where, f"no more than {most} items allowed")
        found = []
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                found.append((f"{where}/{index}", item))
            else:
                self.add(f"{where}/{index}", "must be an object")
        return found

    def url(self, owner: Json, name: str, pointer: str, *, required: bool = False) -> None:
        """A link that Slack takes: http or https (buttons also mailto and slack)."""
        if not self.string(owner, name, pointer, 3000, required=required) or name not in owner:
            return
        scheme, separator, rest = str(owner[name]).partition(":")
        if scheme.lower() not in {"http", "https", "mailto", "slack"} or not separator or not rest.strip("/"):
            self.add(f"{pointer}/{name}", "must be a valid URL")
