"""Several tool results folded into one message: what went wrong line by line, what went well in one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.views import inert
from bot.views.rounds import sentence

_NAME, _SUMMARY = 80, 400
_ROOM = 3600  # of the text, so that it stays in one piece everywhere


@dataclass(frozen=True, slots=True)
class ToolLine:
    """One `agent.tool.completed`: `status` is success, error, timeout, or whatever was sent."""

    tool: str
    status: str
    summary: str = ""
    duration_ms: int | None = None


def told(lines: Sequence[ToolLine]) -> str:
    """The lines as people read them, oldest first. Where they are too many, the oldest failures are counted."""
    done = [line for line in lines if line.status == "success"]
    failures = [_line(line) for line in lines if line.status != "success"]
    tail = [_folded(done)] if done else []
    room = _ROOM - sum(map(inert.size, tail))
    kept: list[str] = []
    for text in reversed(failures):
        room -= inert.size(text) + 1
        if room < 0:
            break
        kept.insert(0, text)
    dropped = len(failures) - len(kept)
    head = [f"{dropped} earlier failures are not listed."] if dropped else []
    return "\n".join([*head, *kept, *tail]) or "No tool has finished yet."


def _line(line: ToolLine) -> str:
    verb = {"error": "failed", "timeout": "timed out"}.get(line.status) or inert.clip(
        inert.line(line.status), 40
    )
    return _said(f"Tool {_name(line)} {verb or 'finished'}{_took(line)}", line)


def _folded(done: Sequence[ToolLine]) -> str:
    last = done[-1]
    if len(done) == 1:
        return _said(f"Tool {_name(last)} done{_took(last)}", last)
    return _said(f"{len(done)} tools done, the latest {_name(last)}{_took(last)}", last)


def _said(head: str, line: ToolLine) -> str:
    summary = inert.clip(inert.line(line.summary), _SUMMARY)
    return f"{head}: {summary}" if summary else sentence(head)


def _name(line: ToolLine) -> str:
    return inert.clip(inert.line(line.tool) or "(unnamed)", _NAME)


def _took(line: ToolLine) -> str:
    if line.duration_ms is None:
        return ""
    if line.duration_ms < 1000:
        return f" ({line.duration_ms} ms)"
    seconds = line.duration_ms / 1000
    return f" ({seconds:.1f} s)" if seconds < 60 else f" ({seconds / 60:.0f} min)"
