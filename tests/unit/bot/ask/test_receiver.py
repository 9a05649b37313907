"""How a stream is parsed, and what the times of events tell: clock offset, backlog bursts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.ask.receiver import (
    MAX_EVENT,
    MAX_FRAME,
    Burst,
    ClockOffset,
    Frame,
    FrameReader,
    Oversize,
    droppable,
    head_field,
    may_be_critical,
)
from tests.unit.bot.ask.parties import NOW, event, frame, question

STREAMING = json.dumps(event("agent.output.streaming", chunk="Hello", position=0, complete=False))


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def seen(offset: ClockOffset, late_by: float, *, live: bool = True) -> datetime:
    """One event, received − sent = `late_by`; returns when it was sent, as far as we know."""
    offset.observe(NOW - seconds(late_by), NOW, live=live)
    return offset.sent_at(NOW - seconds(late_by), NOW, live=live)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0),
        ([(5, False)], 0),  # a replay says nothing
        ([(-5, False)], -5),  # but nothing comes from the future
        ([(300.25, True), (300, True), (301, True)], 300),
        ([(300, True), (100, False)], 100),  # nor in less time than a live one
        ([(-90000 * 2, True)], 0),  # a broken timestamp
        ([(0, True), (600, True), (1, True)], 0),  # one that was late on its way
        ([(0, True)] + [(7200, True)] * 8, 7200),  # its clock was set back
        ([(0, True)] + [(7200, False)] * 8, 0),  # a replay proves nothing
        ([(7200, True), (0, True)], 0),  # its clock was set forward
    ],
)
def test_offset_is_the_least_of_what_tells(samples: list[tuple[float, bool]], expected: float) -> None:
    offset = ClockOffset()
    for difference, live in samples:
        seen(offset, difference, live=live)
    assert offset.offset == seconds(expected)


@pytest.mark.parametrize("step", [7200, -7200, 90, -90])
def test_event_that_was_just_emitted_was_sent_when_it_came_also_after_a_clock_was_set(step: float) -> None:
    offset = ClockOffset()
    seen(offset, 0.1)
    for _ in range(9):
        assert seconds(0) <= NOW - seen(offset, step + 0.2) <= seconds(5)
    assert seen(offset, step + 30, live=False) == NOW - seconds(29.8), "what is 30 s old is 30 s old"


def test_offset_survives_the_end_of_time() -> None:
    offset = ClockOffset()
    offset.observe(NOW - seconds(60), NOW, live=True)
    assert offset.sent_at(datetime.max.replace(tzinfo=UTC), NOW, live=False).year == 9999


@pytest.mark.parametrize(
    ("arrivals", "live"),
    [
        ([0.01, 0.02, 0.1], [False, False, False]),
        ([0.01, 0.5], [False, False]),  # a pause, but too early
        ([0.01, 0.5, 1.1], [False, False, True]),
        ([0.01, 1.5], [False, True]),
        ([5.0], [True]),
        ([i / 10 for i in range(1, 30)], [False] * 29),  # a long replay
        ([0.1, 0.3, 1.2, 1.21, 1.22], [False, False, True, True, True]),
        ([0.3, 0.31, 0.4], [True, True, True]),  # nothing came at once: nothing is replayed
    ],
)
def test_burst_ends_with_the_first_pause(arrivals: list[float], live: list[bool]) -> None:
    burst = Burst(0.0)
    assert [burst.live(at) for at in arrivals] == live


def read(*chunks: bytes) -> list[Frame | Oversize]:
    reader = FrameReader()
    return [one for chunk in chunks for one in reader.feed(chunk)]


def data(found: list[Frame | Oversize]) -> list[str]:
    return [one.data for one in found if isinstance(one, Frame)]


LINE = st.sampled_from(
    [
        "data: a",
        "data:b",
        "data",
        "data:  c",
        "id: 1",
        "id: é",
        "id",
        "id: a\0b",
        "retry: +5",
        ":",
        " data: x",
        "event: x",
        ": comment",
        "retry: 5",
        "x: y",
        "é",
        "",
    ]
)


@settings(deadline=None)
@given(
    st.lists(LINE, max_size=12),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(1, 40), max_size=6),
)
def test_stream_reads_as_the_library_does(lines: list[str], end: str, cuts: list[int]) -> None:
    body = (end.join([*lines, "", ""])).encode()
    chunks, rest = [], body
    for cut in cuts:
        chunks.append(rest[:cut])
        rest = rest[cut:]
    response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=body)
    expected = [(one.data, one.id or None) for one in EventSource(response).iter_sse() if one.data]
    found = read(*chunks, rest)
    assert [(one.data, one.id) for one in found if isinstance(one, Frame)] == expected


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["question", "skimmed", "oversize", "comment", "garbage", "latin-1"]), max_size=20
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.integers(1, 3000),
)
def test_stream_loses_no_question_whatever_surrounds_it(kinds: list[str], end: bytes, size: int) -> None:
    others = {
        "skimmed": frame(STREAMING),
        "oversize": frame("x" * 2000),
        "comment": b": heartbeat\n\n",
        "garbage": b"data: {\nnonsense\n\n",
        "latin-1": b"data: caf\xe9\n\n",
    }
    parts = [others.get(kind) or frame(question(n)) for n, kind in enumerate(kinds)]
    body = b"".join(parts).replace(b"\n", end)
    reader = FrameReader()
    with pytest.MonkeyPatch.context() as small:  # Hypothesis wants no fixture for each example
        small.setattr("bot.ask.receiver.MAX_FRAME", 1000)
        found = [one for i in range(0, len(body), size) for one in reader.feed(body[i : i + size])]
    expected = [f"evt_{n:016x}" for n, kind in enumerate(kinds) if kind == "question"]
    questions = [text for text in data(found) if text.startswith('{"@context')]
    assert [json.loads(text)["event_id"] for text in questions] == expected
    assert sum(isinstance(one, Oversize) for one in found) == kinds.count("oversize")
    assert reader.skimmed == kinds.count("skimmed")
    assert sum(isinstance(one, Frame) and one.replaced for one in found) == kinds.count("latin-1")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_stream_holds_nothing_back(end: bytes) -> None:
    reader = FrameReader()
    assert data(reader.feed(b"data: 1" + end + end)) == ["1"]
    assert data(reader.feed(b"data: 2" + end + end)) == ["2"]


def test_stream_split_anywhere_gives_the_same() -> None:
    body = "\ufeffdata: é€😀\r\ndata: a\r\n\r\ndata: b\r\n\r\n".encode()
    for cut in range(len(body) + 1):
        assert data(read(body[:cut], body[cut:])) == ["é€😀\na", "b"], cut
    assert data(read(*(bytes([byte]) for byte in body))) == ["é€😀\na", "b"]


def test_stream_keeps_an_id_until_the_next_and_all_spaces_but_one() -> None:
    found = read(b"id: 1\ndata:  a \n\ndata: b\n\nid: 2\n\ndata: c\n\nid\ndata: d\n\ndata: e\n\n")
    assert [(one.data, one.id) for one in found if isinstance(one, Frame)] == [
        (" a ", "1"), ("b", "1"), ("c", "2"), ("d", None), ("e", None),
    ]  # fmt: skip


def test_stream_has_a_byte_order_mark_at_its_start_alone() -> None:
    assert data(read("\ufeffdata: 1\n\n\ufeffdata: 2\n\ndata: 3\n\n".encode())) == ["1", "3"]
    assert data(read(b": heartbeat\n", "\ufeffdata: 1\n\ndata: 2\n\n".encode())) == ["2"]
    assert data(read("\ufeff: heartbeat\n".encode(), b"data: 1\n\n")) == ["1"]


def test_stream_skims_and_counts() -> None:
    reader = FrameReader()
    body = frame(STREAMING) + frame(question()) + frame(STREAMING, sse_id="evt_2") + frame(event(n=3))
    found = reader.feed(body)
    assert [one.skimmed for one in found] == [1, 2]
    assert reader.skimmed == 2


@pytest.mark.parametrize("size", [1, 100, 65536, 3_000_000])
def test_stream_oversize_is_reported_once_and_skipped(size: int) -> None:
    big = frame(question(question="x" * 1_500_000))
    body = big + frame(event(n=2))
    if size == 1:
        body = big[: MAX_FRAME + 2] + b"\n\n" + frame(event(n=2))
    found = read(*(body[i : i + size] for i in range(0, len(body), size)))
    oversize = [one for one in found if isinstance(one, Oversize)]
    assert len(oversize) == 1
    assert head_field(oversize[0].head, "type") == "aaep:agent.awaiting.clarification"
    assert head_field(oversize[0].head, "session_id") == "sess_2c91a7b4d23f1e88"
    assert [json.loads(one)["event_id"] for one in data(found)] == ["evt_0000000000000002"]


def test_stream_takes_an_event_of_the_largest_size() -> None:
    envelope = len(json.dumps(question(question="")))
    whole = json.dumps(question(question="x" * (MAX_EVENT - envelope)))
    assert len(whole) == MAX_EVENT
    assert data(read(frame(whole, sse_id="evt_1"))) == [whole]


def test_stream_end_gives_what_was_torn_without_an_id() -> None:
    reader = FrameReader()
    assert reader.feed(b'id: evt_12\ndata: {"a": 1}\n') == []
    torn = reader.close()
    assert torn is not None
    assert (torn.data, torn.id, torn.torn) == ('{"a": 1}', None, True)
    assert FrameReader().close() is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1500", 1.5),
        ("-1", None),
        ("+1", None),
        ("1_0", None),
        ("²", None),
        ("x", None),
        ("9" * 5000, 3600.0),
    ],
)
def test_stream_retry_is_bounded(value: str, seconds: float | None) -> None:
    reader = FrameReader()
    reader.feed(f"retry: {value}\n\n".encode())
    assert reader.retry == seconds


@pytest.mark.parametrize(
    "head", ['{"session_id": "a b"', '{"session_id": 5', "", '{"session_id": "' + "x" * 200]
)
def test_head_field_takes_identifiers_only(head: str) -> None:
    assert head_field(head, "session_id") is None


SKIMMED = json.dumps(event("agent.output.streaming"))


@pytest.mark.parametrize(
    ("data", "is_dropped"),
    [
        (SKIMMED, True),
        (
            json.dumps(
                event("agent.progress.updated", chunk='He said "type" and {"critical": [1]} é'), indent=2
            ),
            True,
        ),
        (json.dumps({"type": "https://aaep-protocol.org/vocabulary/v1#agent.output.streaming"}), True),
        (json.dumps(event("agent.output.streaming", urgency="critical")), False),
        (json.dumps(event("agent.tool.completed", result={"type": "aaep:agent.output.streaming"})), False),
        (SKIMMED[:-1] + ', "type": "aaep:agent.awaiting.clarification"}', False),
        (SKIMMED + json.dumps(question()), False),
        ('["type", "aaep:agent.output.streaming"]', False),
        ('{"type": ["aaep:agent.output.streaming"]}', False),
        ("ping", False),
    ],
)
def test_only_what_nobody_is_shown_is_dropped(data: str, is_dropped: bool) -> None:
    assert droppable(data) is is_dropped


@pytest.mark.parametrize(
    ("text", "critical"),
    [
        ('{"type": "aaep:agent.awaiting.clarification", broken', True),
        ('{"urgency" : "critical", ', True),
        ("agent.handoff.requested", True),
        ("ping", False),
        ('{"type": "aaep:agent.output.streaming", broken', False),
    ],
)
def test_skim_sees_that_broken_text_may_be_critical(text: str, critical: bool) -> None:
    assert may_be_critical(text) is critical
