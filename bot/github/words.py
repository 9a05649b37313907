"""A clarification's entry as a comment on a GitHub issue, and the hidden marker by which it is found again. Pure.

Agents' words are inert there: in a fenced code block, or in a code span, nothing is a mention, a link, a reference,
HTML or an image. Sources: GitHub Flavored Markdown Spec, 4.5 and 6.3; docs.github.com, "Basic writing and formatting
syntax". A comment has at most 65,536 characters (GitHub answers 422 to more).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator

from bot.inert import clip, line, plain, size
from core.clarification import Clarification, Entry
from core.clock import iso

LIMIT = 65_536
_NAME, _TOPIC = 80, 200
# So long a run would need a fence of its own length, twice: look-alikes instead.
_LONGEST_RUN = 64
_RUN = re.compile(f"`{{{_LONGEST_RUN},}}")
_MARKER = re.compile(r"<!-- clarify-bot: (CLR-\d{1,15}-\d{3,15} r-?\d+ [a-z]{1,20} [0-9a-f]{16}) -->")
_NOTE = "_Cut: the beginning is shown; the whole, {count:,} characters, is in the ledger._"
_NO_TEXT = "(no words)"


def keys(record: Clarification) -> Iterator[tuple[str, Entry]]:
    """Each entry of the thread, in its order, with the name by which its comment is known.

    By what it says, who says it and when, not by its place: others may write the file too. Entries that are
    alike in all that are told apart by counting them.
    """
    seen: dict[str, int] = {}
    for entry in record.thread:
        facts = [entry.round, entry.type, entry.from_, iso(entry.timestamp), entry.body]
        content = json.dumps(facts)
        count = seen[content] = seen.get(content, 0) + 1
        digest = hashlib.sha256(f"{count} {content}".encode()).hexdigest()[:16]
        yield f"{record.id} r{entry.round} {entry.type} {digest}", entry


def key_in(body: str) -> str | None:
    """The name of the entry that a comment shows. Only a marker in its first place counts: agents may write some."""
    found = _MARKER.match(body)
    return found.group(1) if found else None


def comment(record: Clarification, key: str, entry: Entry, mention: str | None = None) -> str:
    """The comment's body, of at most `LIMIT` characters. `mention` is told of an escalation."""
    lines = [f"<!-- clarify-bot: {key} -->", _heading(record, entry)]
    if entry.type == "question" and line(record.topic):
        lines.append(f"Topic: {_span(record.topic, _TOPIC)}")
    if entry.type == "escalation" and mention:
        lines.append(f"{mention}: this needs a person.")
    return _with_body("\n\n".join(lines), _text(entry.body))


def _text(body: str) -> str:
    text = plain(body)
    return text.strip("\n") if text.strip() else _NO_TEXT


def _heading(record: Clarification, entry: Entry) -> str:
    who = _span(entry.from_, _NAME * 4)
    place = f"`{record.id}`, round {entry.round} of {record.max_rounds}"
    if entry.type == "question":
        waits = "" if record.blocking else ", not blocking"
        return f"**Question** from {who} to {_span(record.to, _NAME)} · {place}{waits}"
    names = {"answer": "Answer", "resolution": "Resolution", "escalation": "Escalation"}
    return f"**{names[entry.type]}** by {who} · {place}"


def _span(text: str, limit: int) -> str:
    """Somebody else's words on one line, as they are: in a code span longer than any run of backticks in it."""
    text = clip(_RUN.sub(_stand_in, line(text)), limit) or "?"
    ticks = "`" * (_longest_run(text) + 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _with_body(head: str, body: str) -> str:
    body = _RUN.sub(_stand_in, body)
    whole = _fenced(head, body)
    if size(whole) <= LIMIT:
        return whole
    note = "\n\n" + _NOTE.format(count=size(body))
    room = LIMIT - (size(whole) - size(body)) - len(note)
    return _fenced(head, clip(body, room)) + note


def _fenced(head: str, body: str) -> str:
    fence = "`" * max(3, _longest_run(body) + 1)
    return f"{head}\n\n{fence}text\n{body}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _stand_in(match: re.Match[str]) -> str:
    return "ˋ" * len(match[0])
