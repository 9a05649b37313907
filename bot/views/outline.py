"""Structured content that an agent sends along, as lines that people (and screen readers) can read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.views import inert

_DEEPEST = 8


def outline(value: object, limit: int) -> str:
    """`key: value` lines, nested ones indented; clipped to `limit`; empty where there is nothing."""
    return inert.clip("\n".join(_lines(value, 0)), limit)


def _lines(value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if depth > _DEEPEST:
        yield f"{indent}…"
    elif isinstance(value, Mapping):
        for key, each in value.items():
            name = inert.line(str(key))
            if _is_simple(each):
                yield f"{indent}{name}: {_simple(each)}"
            else:
                yield f"{indent}{name}:"
                yield from _lines(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, Mapping) and all(map(_is_simple, each.values())):
                yield (
                    indent + "- " + ", ".join(f"{inert.line(str(k))}: {_simple(v)}" for k, v in each.items())
                )
            elif _is_simple(each):
                yield f"{indent}- {_simple(each)}"
            else:
                yield from _lines(each, depth + 1)
    elif value is not None:
        yield indent + _simple(value)


def _is_simple(value: object) -> bool:
    if isinstance(value, list):
        return all(not isinstance(each, (Mapping, list)) for each in value)
    return not isinstance(value, Mapping)


def _simple(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_simple, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "(none)" if value is None else inert.plain(str(value))
