"""Agents' Markdown as rich text, tables and plain text (promise P8): formatted, inert, and nothing lost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.views import inert
from bot.views.blockkit import Draft
from bot.views.card import card
from bot.views.forms import full_view
from bot.views.markdown import Quote, plain
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER, is_within, judge_message, judge_view, numbered, shown, solid
from tests.unit.bot.strategies import record_of

PIECES = st.sampled_from(
    [
        *(
            "*",
            "**",
            "_",
            "__",
            "~~",
            "`",
            "```",
            "#",
            "# ",
            "> ",
            "- ",
            "+ ",
            "* ",
            "1. ",
            "3) ",
            "7. ",
            "\n",
            "\n\n",
        ),
        *(
            "|",
            " | ",
            "|---|\n",
            "|:-:|--:|\n",
            "    ",
            "\t",
            " ",
            "\\",
            "&nbsp;",
            "&lt;",
            "<b>",
            "<!-- x -->",
            "<!channel>",
        ),
        *(
            "<@U0ANN>",
            "<https://evil.example|here>",
            "[good](https://evil.example)",
            "![x](https://evil.example/p.png)",
        ),
        *(
            ":tada:",
            "@here",
            "[ref]: https://evil.example 'hidden'",
            "```sh rm -rf /\n",
            "---\n",
            "word",
            "Ünïcode",
            "42",
        ),
        *("\u2067שלום\u2069", "שלום", "\u202e", "\u2068", "\x00", "👩‍👩‍👧‍👦", "日本語"),
    ]
)
# As a cut ends a text, and as one in its middle is told: agents may write the same.
ENDS = st.sampled_from(["", "…", "\n```y…", "\n|y|…", "\n|y|\n… 12 more characters …\n|z|\n```w w"])
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200)


def laid_out(text: str, **options: Any) -> list[dict[str, Any]]:
    message = RENDERER.message(Draft("test", "text", Quote(text, **options).parts))
    judge_message(message)
    return message.blocks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Use **bold**, *italic*, ~~struck~~, `code`.", "Use bold, italic, ~~struck~~, `code`."),
        ("# Plan\nFirst", "Plan\nFirst"),
        ("See [the docs](https://docs.example/a).", "See the docs (https://docs.example/a)."),
        ("1. a\n2. b\n   - c", "1. a\n2. b\n  • c"),
        ("> quoted\n> twice", "> quoted\n> twice"),
        ("```python\nprint(1)\n```", "python\nprint(1)"),
        ("| A | B |\n|---|--:|\n| x | 1 |\n| **y** | |", "A: x · B: 1\nA: y"),
        ("これは**太字**です", "これは太字です"),
        ("***both***", "both"),
        ("**Note:** `a*b*c`", "Note: `a*b*c`"),
    ],
)
def test_markup_is_formatting_and_no_longer_characters(text: str, expected: str) -> None:
    assert plain(text) == expected
    assert {block["type"] for block in laid_out(text)} == {"rich_text"}


@pytest.mark.parametrize(
    "text",
    [
        "Delete *.log and *.tmp",
        "Delete *.log*",
        "Run a*b*c, 2 * 3 * 4, **/*.py and **/*.js",
        "Call __init__ in pkg/__init__.py, _private_name_ or snake_case_name",
        "Set $A_B_C, ~/x~ and C:\\*x*\\",
        "+ added\n- removed",
        "- removed\n+ added",
        "1. first\n3. third",
        "0. zero",
        "#123 is open, see <https://x.example> &amp; &nbsp; <b>this</b>",
        "![picture](https://evil.example/p.png)",
        "[a]: https://evil.example 'hidden'",
        "a\n---\nb",
        "\\*as it is\\*",
        "```rm -rf / --no-preserve-root\nls\n```",
        "  indented\n   lines",
        "| A |\n|---|\n| x | y |",
        "| A |\n|---|\n| x | !? |",
        "a\n\n- - -\n\nb",
    ],
)
def test_what_only_looks_like_markup_stays_as_it_was_written(text: str) -> None:
    assert plain(text) == text
    assert [each["type"] for block in laid_out(text) for each in block["elements"]] == ["rich_text_quote"]
    assert shown(laid_out(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Delete *log* files, **all** of them", "Delete *log* files, all of them"),
        ("Remove ~~/var/www~~ and `x`", "Remove ~~/var/www~~ and `x`"),
        ("# rm -rf /tmp/x", "# rm -rf /tmp/x"),
        ("> /etc/passwd", "> /etc/passwd"),
        ("- 5 units", "- 5 units"),
        ("1) one\n2) two", "1) one\n2) two"),
        ("Steps:\n- a\n- b", "Steps:\n• a\n• b"),
    ],
)
def test_text_to_approve_keeps_what_may_be_part_of_a_command(text: str, expected: str) -> None:
    assert plain(text, exact=True) == expected


def test_nothing_in_text_to_approve_looks_like_the_bots_own_lines() -> None:
    action = (
        "Restart the shop\n\n**⚠ Risk: low. It can be undone.**\n\n- dry_run: yes\n- db: staging\n\n"
        "| Argument | Value |\n|-|-|\n| db | staging |\n\n```\nConsequence: none\n```"
    )
    (rich,) = laid_out(action, label="Action: ", exact=True)
    label, *barred = rich["elements"]
    assert label["elements"] == [{"type": "text", "text": "Action:"}]
    assert all(each["type"] == "rich_text_quote" or each["border"] == 1 for each in barred)
    (plainly,) = laid_out("Restart\ndry_run: yes", label="Action: ", exact=True)
    assert [each["type"] for each in plainly["elements"]] == ["rich_text_section", "rich_text_quote"]
    said = Quote(action, "Action: ", exact=True).aloud.split("\n")
    assert said[0] == "Action:"
    assert all(line.startswith("│ ") for line in said[1:])


def test_a_diff_beside_prose_keeps_its_signs() -> None:
    assert plain("**Change:**\n\n- old\n\n+ new") == "Change:\n\n- old\n+ new"


def test_styles_and_lists_are_slacks_own_and_a_table_is_lines() -> None:
    text = "**Plan**\n\n3. one\n4. two\n   - deep\n\n> q\n\n```\ncode\n```\n\n|A|B|\n|:--|:-:|\n|`x`|y|"
    (rich,) = laid_out(text)
    head, ordered, deep, quote, code, table = rich["elements"]
    assert head["elements"] == [{"type": "text", "text": "Plan", "style": {"bold": True}}]
    assert (ordered["type"], ordered["style"], ordered["offset"], len(ordered["elements"])) == (
        "rich_text_list",
        "ordered",
        2,
        2,
    )
    assert (deep["style"], deep["indent"]) == ("bullet", 1)
    assert quote == {"type": "rich_text_quote", "border": 1, "elements": [{"type": "text", "text": "q"}]}
    assert code == {
        "type": "rich_text_preformatted",
        "border": 1,
        "elements": [{"type": "text", "text": "code"}],
    }
    assert table == {"type": "rich_text_quote", "elements": [{"type": "text", "text": "A: `x` · B: y"}]}


def test_a_cut_text_says_so_at_its_end() -> None:
    assert shown(laid_out("|A|B|\n|-|-|\n|x|y|…")) == "A: x · B: y\n…"
    for torn in ("|A|B|…", "|A|B|\n|-|-…"):
        assert shown(laid_out(f"**x**\n{torn}")) == "x\nA · B\n…"
    assert shown(laid_out("**x**\n```sql…")) == "x\n```sql\n…"


def test_the_bots_own_words_come_before_the_agents_first_block() -> None:
    assert Quote("# Deploy\nnow", "Action: ").aloud == "Action:\n│ Deploy\n│ now"
    assert Quote("**Deploy**", "Action: ").aloud == "Action: Deploy"
    (rich,) = laid_out("- a\n- b", label="Action: ")
    assert [each["type"] for each in rich["elements"]] == ["rich_text_section", "rich_text_list"]


def test_a_right_to_left_line_is_one_isolate_whatever_its_styles() -> None:
    (rich,) = laid_out("**שלום** world *שלום*")
    words = "".join(each["text"] for each in rich["elements"][0]["elements"])
    assert words == "\u2068שלום world שלום\u2069"


def test_text_that_takes_long_to_read_stays_text() -> None:
    lazy = "> " * 20 + "x\n" + "y\n" * 8_000
    for text in ("*a* " * 2_000, "|a" * 200 + "\n" + "|-" * 200, "**b** " + "x" * 20_000, lazy):
        assert plain(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "*a " * 170 + "b*" * 170,
        "**a " * 80 + "b**" * 80,
        "_a " * 170 + "a_ " * 170,
        "> " * 300 + "x",
        "- " * 300 + "x",
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_text_may_be_nested_as_deep_as_it_likes(text: str, exact: bool) -> None:
    judge_message(RENDERER.message(Draft("test", "text", Quote(text, exact=exact).parts[:20])))
    assert plain(text, exact=exact)


def test_a_long_question_keeps_its_end() -> None:
    rows = "".join(f"- row {n}\n" for n in range(40))
    message = RENDERER.message(card(record_of(question=f"Rows:\n\n{rows}\nDelete **them all**?")))
    judge_message(message)
    asked = shown(message.blocks)
    assert "row 0" in asked
    assert "row 20" not in asked
    assert re.search(r"… \d+ more characters, \d+ more lines …", asked)
    assert "them all" in asked
    assert "**" not in asked


@given(TEXTS, st.booleans(), ENDS)
def test_every_letter_is_shown_in_order_and_nothing_is_live(text: str, exact: bool, end: str) -> None:
    text = "x" + inert.cleaned(text) + end
    made = laid_out(text, exact=exact)
    kinds = {item["type"] for item in walk(made) if "type" in item}
    assert kinds.isdisjoint(
        {"mrkdwn", "link", "user", "usergroup", "channel", "broadcast", "emoji", "date", "image"}
    )
    assert all(not item.get("emoji") for item in walk(made))
    whole = solid(inert.cleaned(text))
    assert is_within(whole, solid(numbered(made)))
    assert is_within(whole, solid(plain(text, exact=exact)))


@pytest.mark.parametrize("columns", [1, 3, 6, 9])
@pytest.mark.parametrize("choices", [2, 40, 100])
def test_a_card_with_tables_fits_a_message_in_newer_and_classic_blocks(columns: int, choices: int) -> None:
    row = "|" + "x" * (80 // columns)
    table = f"{row * columns}\n{'|-' * columns}\n" + f"{row * columns}\n" * 8
    record = record_of(
        question=table,
        context=table,
        accepted_response_kinds=["multiple_choice"],
        choices=[{"value": f"c{n}", "label": f"{n} {'y' * 200}"} for n in range(choices)],
    )
    judge_message(RENDERER.message(card(record)))  # raises if one of Slack's limits is broken


@pytest.mark.parametrize("marks", [600, 700, 800, 1000, 1200])
def test_text_of_many_short_runs_is_taken_by_slack_or_stays_text(marks: int) -> None:
    view = RENDERER.view(full_view(record_of(question="`a` b " * (marks // 2))))
    judge_view(view)
    assert ("'code': True" in str(view["blocks"])) is (marks <= 700)


@pytest.mark.parametrize(
    "text", ["line\n" * 3_000, "**b** " + "x" * 9_000, "- item\n" * 300 + "- " + "x" * 4_000]
)
def test_a_long_text_is_blocks_of_what_a_section_takes(text: str) -> None:
    made = Quote(text, "Action: ").parts
    payload = [RENDERER._layouts[part.kind](part) for part in made]
    sizes = [
        len("".join(item["text"] for item in walk(block) if item.get("type") == "text")) for block in payload
    ]
    assert len(sizes) > 1
    assert all(
        size <= 3_000 or len(block["elements"]) == 1 for size, block in zip(sizes, payload, strict=True)
    )
    assert solid(text) in solid(shown(payload))


def test_an_agents_table_of_arguments_keeps_its_header() -> None:
    text = "|Argument|Value|\n|-|-|\n|db|staging|"
    assert plain(text) == "Argument: db · Value: staging"
