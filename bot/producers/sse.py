"""Parses Server-Sent Events (WHATWG HTML, section 9.2), with at most one frame of 1 MiB in memory.

It splits whole chunks, not lines, which would be slow while an agent streams its output. Events that are never shown,
most of what agents emit, are dropped without parsing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from core.aaep import CRITICAL_TYPES

MAX_EVENT = 1 << 20
MAX_FRAME = MAX_EVENT + 1024  # an event of 1 MiB and its field names and id
_HEAD = 4096
_BOM = b"\xef\xbb\xbf"
_MAX_RETRY = 3600.0
# Matches flat top-level members up to `type`, so the `type` found is the event's own.
_FLAT = r'(?:"[^"\\]*"|[-+.\w]+|\[[^\[\]{}"\\]*(?:"[^"\\]*"[^\[\]{}"\\]*)*\])'
_TYPE_FIRST = re.compile(
    rf'\s*\{{(?:\s*"[^"\\]*"\s*:\s*{_FLAT}\s*,)*?\s*"type"\s*:\s*'
    r'"(?:aaep:|https?://(?:www\.)?aaep-protocol\.org/[^ "\\]*)agent\.(?:output\.streaming|progress\.updated)"'
)
_ESCAPED_ASCII = re.compile(r"\\u00[2-7]")
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

    `skimmed` is the count to continue from; `max_frame` is in bytes.
    """

    def __init__(self, skimmed: int = 0, max_frame: int = MAX_FRAME) -> None:
        self.retry: float | None = None
        self.skimmed = skimmed
        self._max_frame = max_frame
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
        if len(self._buffer) <= self._max_frame:
            return []
        oversize = self._oversize(self._buffer)
        self._skipping = True
        del self._buffer[:-1]
        return [oversize]

    def _oversize(self, raw: bytes | bytearray) -> Oversize:
        return Oversize(bytes(raw[:_HEAD]).decode("utf-8", "replace"), self.skimmed)

    def _frame(self, raw: bytes) -> Frame | Oversize | None:
        if len(raw) > self._max_frame:
            return self._oversize(raw)
        try:
            text, replaced = raw.decode(), False
        except UnicodeDecodeError:
            text, replaced = raw.decode("utf-8", "replace"), True
        if not replaced and self._skim(text):
            return None
        data = self._data(text)
        return Frame(data, self._last_id, len(raw), self.skimmed, replaced) if data else None

    def _skim(self, text: str) -> bool:
        """Whether the frame has a single, droppable data line.

        Its id is ignored: resuming earlier only costs duplicates.
        """
        start = 0 if text.startswith("data:") else text.find("\ndata:") + 1
        if start == 0 and not text.startswith("data:"):
            return False
        end = text.find("\n", start)
        if end >= 0 and "\ndata" in text[end:]:
            return False
        if not droppable(text[start + 5 : end if end >= 0 else None]):
            return False
        if "\nretry:" in text or text.startswith("retry:"):
            return False
        self.skimmed += 1
        return True

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
    """Whether an event's JSON is certainly an `output.streaming` or `progress.updated` that is not critical.

    False means "parse it". It is certain because
    - the `type` found is at the top level and not escaped,
    - no later member is called `type` (the last of two would count), not even escaped,
    - the word `critical` occurs nowhere, not even escaped.
    No other AAEP type may follow: in broken data, that may be the start of a lost event.
    """
    found = _TYPE_FIRST.match(data)
    if found is None or "critical" in data:
        return False
    end = found.end()
    if data.find('"type"', end) >= 0 or data.find("agent.", end) >= 0:
        return False
    return not ("\\u00" in data and _ESCAPED_ASCII.search(data))


def may_be_critical(text: str) -> bool:
    """Whether unreadable text names something critical, so that a human must check it."""
    return any(name in text for name in CRITICAL_TYPES) or _URGENT.search(text) is not None
