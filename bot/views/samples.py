"""A sample of every kind of message and window, made by the views themselves, for Slack to judge (`clarify check`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.views import forms
from bot.views.blockkit import Draft, View
from bot.views.card import card
from bot.views.codec import PagePress
from bot.views.lists import (
    Chosen,
    DutyLine,
    Offer,
    QuestionRow,
    decision_row,
    home,
    listing,
    past_row,
    rollup,
    rollup_modal,
    row,
    search_modal,
    which_question,
)
from bot.views.notices import (
    Handoff,
    ToolLine,
    handoff_card,
    nudge,
    nudge_over,
    storage_began,
    taken_over,
    tools_notice,
)
from bot.views.page import PageContent, PageItem, ShiftBegins, ShiftEnds, page_card, shift_card
from bot.views.render import Renderer
from bot.views.verify import Proof, verify_view
from core.clarification import Answer, Clarification, Decider
from core.index import AgentNode, ReadyItem
from core.questions import NewQuestion, ask_of
from core.receipts import Checked, claims_of
from core.summary import Decided, DecidedBy, PastDecision, page_of
from core.transitions import amended, answered, opened

_AT = datetime(2026, 6, 16, 9, 30, tzinfo=UTC)
_LATER = _AT + timedelta(minutes=20)
_USER, _OTHER = "U0SAMPLE1", "U0SAMPLE2"
_LINK = "https://example.slack.com/archives/C0SAMPLE/p1781602200000000"
_MARKDOWN = """Tests of **4.1** passed, see `make test` and https://example.com/build/412:

1. unit
   - core
2. *browser*, ~~twice~~

> No other deployment is running.

| Service | Errors |
| --- | ---: |
| checkout | 12 |

```sql
select count(*) from orders;
```
"""
_ASKED: dict[str, dict[str, Any]] = {
    "question": {"question": "Start the release of `4.1`?", "context": _MARKDOWN, "default": "no"},
    "choices": {"question": "Where should it go first?", "choices": ["Staging", "Canary"], "other": True},
    "approval": {
        "action": "Email 12,040 customers",
        "consequence": "Mail cannot be called back.",
        "risk": "high",
        "irreversible": True,
        "editable": True,
        "approvals": 2,
        "arguments": {
            "list": "customers",
            "subject": "News in 4.1",
            "recipients": 12040,
            "body": "Hello. " * 900,
        },
    },
    "form": {
        "question": "How should it be rolled out?",
        "schema": {
            "type": "object",
            "properties": {
                "percent": {"type": "integer", "minimum": 1, "maximum": 100},
                "when": {"type": "string", "format": "date"},
                "region": {"type": "string", "enum": ["eu", "us"]},
                "notify": {"type": "boolean"},
            },
        },
    },
}


def samples(installation: str = "sample") -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns what each is called, and a message's `blocks` or a whole view, as they are sent to Slack."""
    renderer = Renderer(installation)
    for name, draft in _messages():
        yield name, {"blocks": renderer.message(draft).blocks}
    for name, view in _views():
        yield name, renderer.view(view)


def _record(name: str, seq: int = 1) -> Clarification:
    question = NewQuestion.model_validate(_ASKED[name])
    ask = ask_of(
        question, producer="sample", token=f"sample-{name}", at=_AT, expires_at=_AT + timedelta(hours=4)
    )
    return opened(1, seq, ask, _AT, timedelta(minutes=30))


def _answered() -> Clarification:
    decider = Decider(f"user:slack/T0SAMPLE/{_USER}", "slack", "T0SAMPLE", _USER)
    done = answered(_record("question"), Answer("yes", "Yes"), decider, _LATER)
    return amended(done, receipt="e30.e30.e30")


def _item(number: int = 1, record: Clarification | None = None) -> PageItem:
    item = PageItem(number, "escalated", "Deployer is waiting", "No answer in time", since=_AT)
    return item if record is None else item.with_question(record, _LINK)


def _messages() -> Iterator[tuple[str, Draft]]:
    records = [_record(name, seq) for seq, name in enumerate(_ASKED, 1)]
    for name, record in zip(_ASKED, records, strict=True):
        yield f"card ({name})", card(record)
    question, decided = records[0], _answered()
    yield "card (decided)", card(decided)
    yield "card (shared)", rollup(records, 9, _LATER, "Deployer")
    yield "page", page_card(PageContent(1, _LATER, (_item(1, question),), 1, 1, mentions=(_USER,)))
    yield "page (several)", page_card(PageContent(1, _LATER, (_item(1, question), _item(2)), 2, 2))
    yield "reminder", nudge(question, (_USER,))
    yield "reminder (over)", nudge_over(decided, None)
    yield "notice", storage_began("clarify.db", 2)
    yield "notice (claimed by another)", taken_over(question, _OTHER, _LINK)
    yield "handoff", handoff_card(Handoff("Deployer", "s1", "I have no access", "human"), _item(), (_USER,))
    yield "tools", tools_notice([ToolLine("deploy", "error", "no disk", 4200), ToolLine("build", "success")])
    turn = ShiftBegins("default", _LATER, (_OTHER,), (), None, (_item(1, question),), 1, ())
    yield "shift", shift_card([turn], [ShiftEnds("billing", (_OTHER,), ("CLR-1-001",))], _AT)
    rows = [row(each, Offer(answer=True, take=True, link=_LINK), n) for n, each in enumerate(records)]
    yield "list", listing("Open questions", page_of(rows, 1, 3), query="mine")
    yield "list (which question)", which_question(records, "1")
    yield "list (decisions)", _found()


def _found() -> Draft:
    by = (DecidedBy("Ade", _USER),)
    past = PastDecision("CLR-1-001", _AT, "deployer", "answered", "Start?", "Yes", None, by)
    return listing("Decisions", page_of([decision_row(past_row(past), _LINK)], 1, 5), query="find start")


def _views() -> Iterator[tuple[str, View]]:
    records = {name: _record(name, seq) for seq, name in enumerate(_ASKED, 1)}
    for name, record in records.items():
        yield f"window (answer, {name})", forms.answer_modal(record)
    question, approval, decided = records["question"], records["approval"], _answered()
    yield "window (accept)", forms.accept_modal(approval)
    yield "window (full text)", forms.full_view(decided)
    yield "window (full text of an approval)", forms.full_view(approval)
    checked = Checked(None, "sample", claims_of(decided, "urn:clarify:sample"))
    yield "window (verify)", verify_view(decided, 1, Proof(checked, (1, 2)))
    yield "window (hand over)", forms.hand_modal(PagePress("hand", 1, 1), "CLR-1-001")
    yield "window (message)", forms.message_modal("Not recorded", "Answer it on its card.")
    yield "window (open questions)", rollup_modal(page_of(list(records.values()), 1, 3))
    yield "window (decisions)", search_modal(_found())
    agent = AgentNode("deployer", "Deployer", "working", (), (), (1,), _AT)
    ready = ReadyItem("deployer", "Deployer", "sample", "s1", 1, (), None, _AT)
    past = QuestionRow(
        "CLR-1-001", "Deployer", "Start?", _AT, Decided("answered", (DecidedBy("Ade", _USER),), "Yes")
    )
    yield (
        "Home tab",
        home(
            Chosen(
                _USER,
                inbox=page_of([question, approval], 1, 5),
                taken=page_of([], 1, 5),
                agents=page_of([agent], 1, 5),
                ready=page_of([ready], 1, 5),
                duty=page_of([DutyLine("default", (_USER,), "calendar", _LATER)], 1, 5),
                answers=page_of([past], 1, 5),
            )
        ),
    )
