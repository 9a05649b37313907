"""Parses Server-Sent Events (WHATWG HTML, section 9.2), with at most one frame of 1 MiB in memory.

It splits whole chunks, not lines, which would be slow while an agent streams its output. Events that are never shown,
most of what agents emit, are dropped here, so that they take no room from others while the storage is away.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from core.aaep import CRITICAL_TYPES, IGNORED_TYPES, core_type

MAX_EVENT = 1 << 20
MAX_FRAME = MAX_EVENT + 1024  # an event of 1 MiB and its field names and id
_HEAD = 4096
_BOM = b"\xef\xbb\xbf"
_MAX_RETRY = 3600.0
_URGENT = re.compile(r'"urgency"\s*:\s*"critical"')


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. `skimmed`: how many were dropped before it; `replaced`: it was not UTF-8; `torn`: it was cut off."""

    data: str = field(repr=False)
    id: str | None
    size: int
    skimmed: int
    replaced: bool = False
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Oversize:
    """A skipped frame that was larger than MAX_FRAME. `head`: its beginning, to find the envelope."""

    head: str = field(repr=False)
    skimmed: int


class FrameReader:
    """Turns one connection's bytes into frames. `retry`: the requested reconnection time in seconds.

    `skimmed` is the count to continue from.
    """

    def __init__(self, skimmed: int = 0) -> None:
        self.retry: float | None = None
        self.skimmed = skimmed
        self._last_id: str | None = None
        self._buffer = bytearray()
        self._after_cr = False
        self._skipping = False
        self._started = False

    def feed(self, chunk: bytes) -> list[Frame | Oversize]:
        """Returns the frames that `chunk` completes, and those it makes too large."""
        chunk = self._normalised(chunk)
        buffer = self._buffer
        searched = max(0, len(buffer) - 1)
        buffer += chunk
        if not self._started and len(buffer) >= len(_BOM):
            self._started, searched = True, 0
            if buffer.startswith(_BOM):
                del buffer[: len(_BOM)]
        if buffer.find(b"\n\n", searched) < 0:
            return self._unfinished()
        *frames, rest = bytes(buffer).split(b"\n\n")
        self._buffer = bytearray(rest)
        if self._skipping:
            self._skipping = False
            frames = frames[1:]
        found: list[Frame | Oversize] = []
        for raw in frames:
            frame = self._frame(raw)
            if frame is not None:
                found.append(frame)
        return found + self._unfinished()

    def close(self) -> Frame | None:
        """Returns the unfinished frame at the connection's end: `torn`, and without an id, which may be cut, too."""
        raw, self._buffer = bytes(self._buffer), bytearray()
        frame = None if self._skipping else self._frame(raw)
        if not isinstance(frame, Frame):
            return None
        return Frame(frame.data, None, frame.size, frame.skimmed, frame.replaced, torn=True)

    def _normalised(self, chunk: bytes) -> bytes:
        """Returns `chunk` with line feeds only. A trailing carriage return counts at once, to hold no event back."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if chunk:
            self._after_cr = False
        return chunk

    def _unfinished(self) -> list[Frame | Oversize]:
        while self._buffer[:1] == b":" and (end := self._buffer.find(b"\n")) >= 0:
            del self._buffer[: end + 1]  # heartbeats without blank lines must not pile up
        if self._skipping:
            del self._buffer[:-1]
            return []
        if len(self._buffer) <= MAX_FRAME:
            return []
        oversize = self._oversize(self._buffer)
        self._skipping = True
        del self._buffer[:-1]
        return [oversize]

    def _oversize(self, raw: bytes | bytearray) -> Oversize:
        return Oversize(bytes(raw[:_HEAD]).decode("utf-8", "replace"), self.skimmed)

    def _frame(self, raw: bytes) -> Frame | Oversize | None:
        if len(raw) > MAX_FRAME:
            return self._oversize(raw)
        try:
            text, replaced = raw.decode(), False
        except UnicodeDecodeError:
            text, replaced = raw.decode("utf-8", "replace"), True
        data = self._data(text)
        if not replaced and droppable(data):
            self.skimmed += 1
            return None
        return Frame(data, self._last_id, len(raw), self.skimmed, replaced) if data else None

    def _data(self, text: str) -> str:
        """Returns a frame's data; notes its retry time and its id, which later frames without one inherit."""
        data: list[str] = []
        for line in text.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            elif name == "id" and "\0" not in value:
                self._last_id = value or None
            elif name == "retry" and value.isascii() and value.isdigit():
                self.retry = min(float(value) / 1000, _MAX_RETRY)
        return "\n".join(data)


def head_field(head: str, name: str) -> str | None:
    """Returns a plain identifier from the beginning of an unparsed event, or None."""
    match = re.search(rf'"{re.escape(name)}"\s*:\s*"([\w.:/#-]{{1,128}})"', head)
    return match.group(1) if match else None


def droppable(data: str) -> bool:
    """Whether an event's JSON is an `output.streaming` or `progress.updated` that is not critical."""
    if not any(kind in data for kind in IGNORED_TYPES):
        return False
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):  # reported by whoever reads the frame
        return False
    kind = event.get("type") if isinstance(event, dict) else None
    return isinstance(kind, str) and core_type(kind) in IGNORED_TYPES and event.get("urgency") != "critical"


def may_be_critical(text: str) -> bool:
    """Whether unreadable text names something critical, so that a human must check it."""
    return any(name in text for name in CRITICAL_TYPES) or _URGENT.search(text) is not None
