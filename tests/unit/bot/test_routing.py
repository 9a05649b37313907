from __future__ import annotations

from typing import Any

import pytest

from bot.routing import Audience, Group, Thread, audience_of
from bot.settings.model import ResponderSettings, RouteSettings
from core.clarification import Clarification
from core.index import Index, session_of
from core.summary import summary_of
from core.transitions import opened
from tests.kit.builders import NOW, SLA, ask, changed, record
from tests.unit.bot.audiences import audiences

OWN: dict[str, Any] = {"producer": None, "session_id": None, "reply_token": None, "agent_id": "engineer"}
OURS = OWN | {"via": "shell"}
PEOPLE = audiences(
    route=RouteSettings(channel="C0HOME"),
    people={"architect": ("C0THEIRS", "U1"), "lead": ("C0HOME", "U2")},
    responders={
        "security": ResponderSettings(command=("true",)),
        "legal": ResponderSettings(http="http://127.0.0.1:9"),
    },
)


def asked(to: str = "human", issue: int = 42, **more: Any) -> Clarification:
    return opened(issue, 1, ask(to=to, **more), NOW, SLA)


@pytest.mark.parametrize(
    ("made", "status", "shown"),
    [
        ({"to": "human"}, "pending", True),
        ({"to": "security"}, "answered", True),
        (OURS | {"to": "human"}, "pending", True),
        (OURS | {"to": "architect"}, "pending", True),
        (OURS | {"to": "ARCHITECT"}, "stale", True),
        (OURS | {"to": "architect"}, "answered", False),
        (OURS | {"to": "security"}, "pending", False),
        (OURS | {"to": "legal"}, "escalated", True),
        (OURS | {"to": "legal", "held_back": "it may not"}, "pending", True),
        (OURS | {"to": "nobody"}, "pending", True),
        (OWN | {"to": "nobody"}, "pending", False),
        (OWN | {"to": "nobody"}, "escalated", True),
        (OWN | {"to": "human"}, "pending", True),
        (OWN | {"to": "architect"}, "pending", True),
    ],
)
def test_shows_table(made: dict[str, Any], status: Any, shown: bool) -> None:
    assert PEOPLE.shows(changed(asked(**made), status=status)) is shown


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({}, Audience("retirement-planner", "human")),
        ({"to": "architect"}, Audience("retirement-planner", "architect")),
        ({"to": "architect", "held_back": "it may not"}, Audience("retirement-planner", "human")),
        (OURS | {"to": "architect"}, Audience("engineer", "architect")),
    ],
)
def test_audience_table(made: dict[str, Any], expected: Audience) -> None:
    assert audience_of(asked(**made)) == expected


def test_audience_of_a_record_without_our_fields_is_the_requesters() -> None:
    found = asked("architect").model_copy(update={"rounds": (), "from_": "engineer"})
    assert audience_of(found) == Audience("engineer", "architect")


@pytest.mark.parametrize(
    ("made", "thread", "group"),
    [
        ({}, ("planner", "sess_1"), Group("retirement-planner", "C0HOME")),
        ({"to": "lead"}, ("planner", "sess_1"), Group("retirement-planner", "C0HOME")),
        ({"to": "architect"}, ("", "CLR-42-001"), Group("retirement-planner", "C0THEIRS")),
        (
            {"to": "architect", "held_back": "no"},
            ("planner", "sess_1"),
            Group("retirement-planner", "C0HOME"),
        ),
        (OURS | {"to": "architect"}, ("", "CLR-42-001"), Group("engineer", "C0THEIRS")),
    ],
)
def test_thread_is_of_its_own_without_a_session_and_in_another_channel(
    made: dict[str, Any], thread: tuple[str, str], group: Group
) -> None:
    assert PEOPLE.thread(asked(**made)) == thread
    assert PEOPLE.group(asked(**made)) == group
    assert PEOPLE.is_asked_in(Thread(*thread, 42, "x", "C1", "1.1"), asked(**made))
    assert not PEOPLE.is_asked_in(Thread("", "CLR-42-002", 42, "x", "C1", "1.1"), asked(**made))
    others = ("planner", "sess_1") if thread[0] == "" else ("planner", "sess_2")
    assert not PEOPLE.is_asked_in(Thread(*others, 42, "x", "C1", "1.1"), asked(**made))


@pytest.mark.parametrize(
    ("made", "status", "asks"),
    [
        ({"to": "security"}, "pending", True),
        ({"to": "security"}, "escalated", False),
        ({"to": "security"}, "answered", False),
        ({"to": "security", "held_back": "no"}, "pending", False),
        ({"to": "architect"}, "pending", False),
    ],
)
def test_an_agent_is_asked_too(made: dict[str, Any], status: str, asks: bool) -> None:
    assert PEOPLE.asks_an_agent(asked(**made).model_copy(update={"status": status})) is asks


def test_index_finds_a_question_between_agents_as_a_session_of_its_own() -> None:
    index, mine, others = Index(), asked(**OURS), record(seq=2)
    index.put(mine)
    index.put(others)
    assert session_of(mine) == ("", "CLR-42-001")
    assert index.of_session("", "CLR-42-001") == [summary_of(mine)]
    assert index.of_session("planner", "sess_1") == [summary_of(others)]
    index.put(changed(mine, status="resolved"))
    assert index.of_session("", "CLR-42-001") == []
