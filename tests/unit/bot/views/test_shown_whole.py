"""Whoever accepts an action saw it: each character of each value that its receipt calls asked, on the surface with the Accept.

The list of what a surface may leave out: blanks (long runs are counted in words); in prose, the characters that markup is made of,
and the marks of direction of right-to-left text. A hidden character is shown by its number.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from html import unescape
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bot.views.blockkit import classic
from bot.views.card import shows_whole
from bot.views.forms import DECISION_BLOCK, full_view
from bot.views.page import page_card
from bot.views.wording import Verbosity
from core.clarification import Clarification, Edit
from core.escalation import escalation_words
from core.questions import asked_in
from core.receipts import claims_of
from core.transitions import amended, escalated
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER, judge_view, labels, numbered
from tests.unit.bot.strategies import NOW, direct, record_of
from tests.unit.bot.views.kit import about, content

_MARKUP = "*_~`#>|:-.)[]•│·"
_DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_JOINERS = "\u200c\u200d\ufe0f"  # emoji and some scripts keep them
_JOINER = re.compile(r"<U\+(?:200C|200D|FE0F)>")
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_IN_WORDS = {"True": "yes", "False": "no", "None": "(none)"}
_FILLERS = "\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5"
_BLANKS = re.compile(r"⟨\d+\s+(?:spaces|tabs|blanks|line\s+breaks)⟩")
_COUNTED = re.compile(r"⟨\d+ × ([^⟩]+)⟩")
_PROSE = {"action", "consequence", "context", "question"}

PIECES = st.sampled_from(
    [
        "```reboot\nls\n```", "~~~sql\nDROP TABLE x;\n~~~", "```rm -rf /", "| a\\|b | c |\n|---|:-:|\n| `x` | **y** |", "|A|\n|-|\n",
        "[here](https://evil.example/?a=b)", "https://github.com/acme/x", "**bold**", "`co*de`", "*.log", "__init__", "~~/var~~",
        "- 5\n- 6", "1. one\n2. two", "3) x", "# rm", "> /etc/passwd", "---", "\\", "\\n", '"', "'", "&amp;", "<b>", "(none)", "…",
        "\n… 7 more characters …\n", "\n", "\n\n", "\r\n", "\r", "\t", " ", "  ", "\u00a0", " " * 50, "\n" * 9, "│ ", "› ", " → ",
        "\u200b", "\u00ad", "\u3164", "\u2800", "\u202e", "\u2066", "\u2069", "\U000e0041", "\ufe0f", "\x01", "\x1b[31m", "\u2028",
        "שלום", "مرحبا", "👩‍👩‍👧‍👦", "e\u0301", "日本語", "true", "12", "-", "+x", "yes", "Risk: low.", "word",
    ]
)  # fmt: skip
SHORT = st.lists(PIECES, min_size=1, max_size=6).map("".join)
TEXTS = SHORT | st.builds(lambda text, n: text * n, SHORT, st.sampled_from([5, 40, 300]))
SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
NAMES = SHORT | st.sampled_from(
    [
        "command",
        "patch",
        "query",
        "content",
        "plan",
        "edits",
        "Risk",
        "a › b",
        "x" * 160,
        "old",
        "new",
        "old_string",
        "new_string",
    ]
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def pairs(draw: st.DrawFn) -> dict[str, Any]:
    """A change of a file, whose halves share text."""
    old, new = draw(
        st.sampled_from(
            [("old", "new"), ("old_string", "new_string"), ("old_str", "new_str"), ("old_text", "new_text")]
        )
    )
    lines = draw(st.lists(SHORT, min_size=1, max_size=12))
    before = "\n".join(lines)
    after = draw(
        st.sampled_from(
            [before, before + "\nend", "\n".join(["top", *lines]), before.replace("word", "other"), ""]
        )
    )
    change = {old: before, new: after}
    return draw(
        st.sampled_from(
            [change, {"edits": [change, change | {"replace_all": True}]}, change | {"path": "/srv/x"}]
        )
    )


ARGUMENTS = st.builds(
    lambda change, rest: {**rest, **change}, st.just({}) | pairs(), st.dictionaries(NAMES, VALUES, max_size=4)
)


def asked(arguments: dict[str, Any], **more: Any) -> Clarification:
    return direct(**{"action": "Do it", "arguments": arguments or None, "editable": bool(arguments)} | more)


def edited(record: Clarification, *changes: dict[str, Any]) -> Clarification:
    by = {"user": "U0GOOD", "decided_by": "user:x", "at": NOW}
    edits = tuple(Edit.model_validate({"changed": each, **by}) for each in changes)
    return amended(record, edits=edits)


def is_hidden(char: str) -> bool:
    tags = 0xE0000 <= ord(char) <= 0xE0FFF
    return tags or char in _FILLERS or unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"}


def solid(text: str, *, prose: bool) -> str:
    """A text without what the list excepts."""
    text = _JOINER.sub("", _COUNTED.sub(r"\1", _BLANKS.sub("", text)))
    left_out = _DIRECTION + _JOINERS + (_MARKUP if prose else "│")
    return "".join(each for each in text if not each.isspace() and each not in left_out)


def written(text: str, kept: str) -> Iterator[str]:
    """Yields what must stand in a row: the text between hidden characters, and each of these by its number, but for the `kept`."""
    run: list[str] = []
    for char in text:
        if is_hidden(char) and char not in "\t\n\r\x1c\x1d\x1e\x1f\x85\u2028\u2029" + kept:
            yield "".join(run)
            run = []
            yield f"\\x{ord(char):02x}" if ord(char) < 0xA0 else f"<U+{ord(char):04X}>"
        else:
            run.append(char)
    yield "".join(run)


def is_shown(value: str, text: str, *, prose: bool = False) -> bool:
    """Whether a text stands in what is shown: as it is, or in quotation marks, or as JSON."""
    forms = [
        value,
        value.replace("\\", "\\\\").replace('"', '\\"'),
        json.dumps(value, ensure_ascii=False)[1:-1],
    ]
    if prose:
        forms = forms[:1]
    elif "\n" in value or "\t" in value or "\r" in value:
        forms += [each.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t") for each in forms[:2]]
        # Line by line, as long runs of line ends are counted.
        forms += [each.replace("\t", "\\t").replace("\r", "\\r") for each in forms[:2]]
    whole = solid(text, prose=prose)
    kept = _JOINERS + (_DIRECTION if prose and _RTL.search(value) else "")
    return any(
        all(solid(part, prose=prose) in whole for line in form.splitlines() for part in written(line, kept))
        for form in forms
    )


def left_out(value: Any, text: str, *, prose: bool = False) -> list[str]:
    """The names and values that are not shown."""
    if isinstance(value, dict):
        names = [name for name in value if not is_shown(name, text)]
        return [*names, *left_out([*value.values()], text, prose=prose)]
    if isinstance(value, list):
        return [missing for each in value for missing in left_out(each, text, prose=prose)]
    if isinstance(value, str):
        return [] if is_shown(value, text, prose=prose) else [value]
    ways = (json.dumps(value), _IN_WORDS.get(str(value), "-"))
    return [] if any(each in text for each in ways) else [str(value)]


def surfaces(record: Clarification) -> Iterator[tuple[str, str]]:
    """Every surface of a question on which an Accept counts, and all that it shows."""
    for verbosity in get_args(Verbosity):
        card = RENDERER.card(record, verbosity=verbosity)
        if "clarify.accept" in actions(card.blocks):
            yield f"{verbosity} card", numbered(card.blocks)
            yield f"{verbosity} card, classic", numbered(classic(card.blocks))
            yield f"{verbosity} card, aloud", unescape(card.text)
    paged = escalated(record, "stale", escalation_words(record, "stale"), NOW)
    page = RENDERER.message(page_card(content(about(paged), mentions=("U0GOOD",), note="Backup. " * 35)))
    if "clarify.accept" in actions(page.blocks):
        yield "page", numbered(page.blocks)
        yield "page, aloud", unescape(page.text)
    if shows_whole(paged):
        yield "typed after a page", numbered(page.blocks)
        yield "typed after a page, aloud", unescape(page.text)
    if shows_whole(record):
        card = RENDERER.card(record, posted_to_fallback="#elsewhere " * 20)
        yield "typed", unescape(card.text)
        yield "typed below the card", numbered(card.blocks)
    pages = []
    for number in range(1, 60):
        view = RENDERER.accept_modal(record, number)
        judge_view(view)
        pages.append(numbered(view["blocks"]))
        if "submit" in view:
            break
        assert "Next" in labels(view)
    else:
        pytest.fail("the window with Accept does not end")
    yield "window", "".join(pages)
    yield "window, classic", "".join(pages)
    form = RENDERER.answer_modal(record)
    offered = [each["value"] for each in walk(form["blocks"]) if "value" in each]
    if any(each.get("block_id") == DECISION_BLOCK for each in form["blocks"]) and "accept" in offered:
        filled = [str(each["initial_value"]) for each in walk(form["blocks"]) if "initial_value" in each]
        yield "form", "\n".join((numbered(form["blocks"]), *filled))
    yield "View full", whole_view(record)


def whole_view(record: Clarification) -> str:
    parts: list[str] = []
    for number in range(1, 60):
        view = RENDERER.view(full_view(record, page=number))
        parts.append(numbered(view["blocks"]))
        if "Next" not in labels(view):
            return "".join(parts)
    pytest.fail("View full does not end")


def actions(blocks: Any) -> set[str]:
    return {each["action_id"] for each in walk(blocks) if "action_id" in each}


def unseen(record: Clarification, **besides: Any) -> dict[str, list[str]]:
    """What the receipt calls asked, and what is there `besides`, that a surface does not show, by surface."""
    wanted = record.current.confirmation
    assert wanted is not None
    if record.asked.direct is not None:
        said = asked_in(record)
    else:  # the receipt has digests of what is long
        said = {"action": wanted.action, "consequence": wanted.consequence}
        assert said.keys() <= claims_of(record, "x")["asked"].keys()
    told = {
        name: said[name]
        for name in ("action", "consequence", "context", "question", "arguments")
        if name in said
    } | besides
    found: dict[str, list[str]] = {}
    for surface, text in surfaces(record):
        for name, value in told.items():
            if missing := left_out(value, text, prose=name in _PROSE):
                found.setdefault(surface, []).extend(missing)
    return found


# Shrinking a text of thousands of characters takes minutes.
many = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,  # the other surfaces' ways to write a value are many: a new example is looked at by hand
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@many
@given(
    arguments=ARGUMENTS,
    prose=st.fixed_dictionaries(
        {"action": TEXTS}, optional={"consequence": TEXTS, "context": TEXTS, "question": TEXTS}
    ),
)
def test_nothing_is_accepted_that_was_not_shown(arguments: dict[str, Any], prose: dict[str, str]) -> None:
    prose = {name: f"x{text}"[:16_000] for name, text in prose.items()}
    assert unseen(asked(arguments, **prose)) == {}


@many
@given(sent=ARGUMENTS.filter(bool), data=st.data())
def test_after_an_edit_what_the_agent_sent_is_shown_too(sent: dict[str, Any], data: st.DataObject) -> None:
    names = st.sampled_from(sorted(sent))
    changes = data.draw(
        st.lists(st.dictionaries(names, SIMPLE, min_size=1, max_size=2), min_size=1, max_size=2)
    )
    record = edited(asked(sent), *changes)
    assert unseen(record, edited=record.current.arguments) == {}


@many
@given(action=TEXTS, consequence=TEXTS)
def test_nothing_of_an_event_is_accepted_that_was_not_shown(action: str, consequence: str) -> None:
    record = record_of(
        type="aaep:agent.awaiting.confirmation",
        action=f"x{action}"[:16_000],
        consequence=f"x{consequence}"[:16_000],
        default_decision="reject",
        risk_level="low",
    )
    assert unseen(record) == {}


SAME = "\n".join(f"line {n}" for n in range(9))


@pytest.mark.parametrize(
    "arguments",
    [
        {"old": "DROP TABLE customers", "new": "DROP TABLE customers"},
        {"old_string": SAME, "new_string": SAME},
        {"old_str": f"{SAME}\nold", "new_str": f"{SAME}\nnew"},
        {"path": "/srv/x", "old_text": f"first\n{SAME}", "new_text": f"{SAME}"},
        {
            "edits": [
                {"old_string": f"{SAME}\na", "new_string": f"{SAME}\nb"},
                {"old": SAME, "new": SAME, "note": "x"},
            ]
        },
        {"edits": [{"oldText": SAME, "newText": SAME}]},
        {"plan": "# destroyed\n- resource\n```sh\nreboot\n```\n* keep\n~~gone~~"},
        {"content": "@echo off\r\nset A=1\r\n"},
        {"content": "mixed\r\nline\nends\r"},
        {"x" * 160: "long name", "deep": {"a › b": {"c": [{"d": "e"}]}}},
        {"old": "a", "new": None},
        {"command": "ls" + " " * 90 + "; rm -rf ~", "note": "\u3164\U000e0041\u202e"},
        {
            f"long {n}": "word " * 160 for n in range(6)
        },  # more than a text takes, though not more than blocks do
        {"ampersands": "&" * 900},  # a text takes fewer, as they are escaped
    ],
    ids=lambda arguments: next(iter(arguments))[:20],
)
def test_these_arguments_are_shown_whole(arguments: dict[str, Any]) -> None:
    assert unseen(asked(arguments)) == {}


@pytest.mark.parametrize("size", range(600, 760, 10))
def test_near_what_a_page_takes_an_accept_in_words_counts_only_if_all_of_it_was_shown(size: int) -> None:
    assert unseen(asked({f"a{n}": "x" * size for n in range(5)})) == {}


@pytest.mark.parametrize("field", ["action", "consequence", "context", "question"])
@pytest.mark.parametrize(
    "text",
    [
        "Run this\n```reboot\nls\n```",
        "~~~shutdown\nls\n~~~",
        "| a\\|b | c |\n|---|---|\n| x | y |",
        "Delete\n- 5\n- 6",
        "See [the docs](https://evil.example)",
        "מחק\u202eהכל",
    ],
)
def test_these_words_are_shown_whole(field: str, text: str) -> None:
    assert unseen(asked({}, **{field: text})) == {}
