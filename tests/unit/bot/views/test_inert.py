"""Others' words made inert; cut at what is seen as one character; right-to-left text in isolates; live parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.views import inert
from tests.unit.bot.strategies import words

FAMILY = "👩‍👩‍👧‍👦"
FLAGS = "🇳🇬🇩🇪"
RLI, FSI, PDI = "\u2067", "\u2068", "\u2069"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x00b\x1b[31mc\x7fd\x9be", "ab[31mcde"),
        ("a\tb\nc\r\nd\re\u0085f\u2028g\u2029h", "a\tb\nc\nd\ne\nf\ng\nh"),
        ("\u202aa\u202bb\u202cc\u202dd\u202ee", "abcde"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("\u2067שלום\u2069 balanced", "\u2067שלום\u2069 balanced"),
        ("open \u2066 never closed", "open  never closed"),
        ("\u2069 never opened", " never opened"),
        ("\u2066 ends with\nits line\u2069", " ends with\nits line"),
        ("e\u0301 and " + FAMILY, "e\u0301 and " + FAMILY),
    ],
)
def test_plain_removes_what_steers(text: str, expected: str) -> None:
    assert inert.plain(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<!channel> & <https://x|y>", "&lt;!channel&gt; &amp; &lt;https://x|y&gt;"),
        ("&lt;!channel&gt;", "&amp;lt;!channel&amp;gt;"),
        ("*bold* _it_ ~gone~ `code`", "∗bold∗ ˍitˍ ∼gone∼ ˋcodeˋ"),
        ("snake_case 2*3 a~b", "snake_case 2*3 a~b"),
        ("> quote\n  > deeper", "› quote\n  › deeper"),
        ("5 > 4", "5 &gt; 4"),
        (":tada: at 10:30", "꞉tada: at 10:30"),
    ],
)
def test_escape_leaves_no_markup(text: str, expected: str) -> None:
    assert inert.escape(text) == expected


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("abcd", 1, "…"),
        ("abcd", 0, ""),
        ("😀😀😀", 4, "😀…"),
        ("ae\u0301e\u0301", 4, "ae\u0301…"),
        ("ab" + FAMILY, 8, "ab…"),
        ("a" + FLAGS, 8, "a🇳🇬…"),
    ],
)
def test_clip_never_tears_what_is_seen_as_one(text: str, limit: int, expected: str) -> None:
    assert inert.clip(text, limit) == expected


@pytest.mark.parametrize("limit", range(1, 14))
def test_clip_escaped_never_tears_an_entity(limit: int) -> None:
    clipped = inert.clip_escaped("a&amp;&lt;b&gt;", limit)
    assert clipped.rstrip("…").replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").strip("ab") == ""
    assert inert.size(clipped) <= limit


@given(words(5000), st.integers(10, 4000))
def test_clip_keeps_its_limit_by_both_counts(text: str, limit: int) -> None:
    clipped = inert.clip(inert.plain(text), limit)
    assert len(clipped) <= inert.size(clipped) <= limit
    assert inert.size(inert.fallback(text, limit)) <= limit


@given(words(9000), st.integers(10, 3000))
def test_split_loses_nothing(text: str, limit: int) -> None:
    pieces = inert.split(text, limit)
    assert "".join(pieces) == text
    assert all(0 < inert.size(piece) <= limit for piece in pieces)


@given(words(9000), st.integers(20, 3900))
def test_split_unescaped_keeps_its_limit_as_sent(text: str, limit: int) -> None:
    pieces = inert.split_unescaped(text, limit)
    assert "".join(pieces) == inert.plain(text)
    assert all(inert.size(inert.fallback(piece, 10**9)) <= limit for piece in pieces)


@given(st.lists(st.sampled_from(["<@U0GOOD>", "&amp;", "&lt;", "word ", "\n", "😀"])), st.integers(20, 99))
def test_split_live_tears_nothing_live(parts: list[str], limit: int) -> None:
    pieces = inert.split_live("".join(parts), limit)
    assert "".join(pieces) == "".join(parts)
    for piece in pieces:
        assert 0 < inert.size(piece) <= limit
        assert piece.count("<") == piece.count(">") == piece.count("<@U0GOOD>")
        assert piece.count("&") == piece.count("&amp;") + piece.count("&lt;")


@pytest.mark.parametrize(
    ("needs", "budget", "expected"),
    [
        ([10, 20], 100, [10, 20]),
        ([10, 200], 100, [10, 90]),
        ([100, 100], 100, [50, 50]),
        ([0, 100, 100], 100, [0, 50, 50]),
        ([5, 5], -3, [0, 0]),
        ([], 10, []),
    ],
)
def test_shares_are_fair(needs: list[int], budget: int, expected: list[int]) -> None:
    assert [len(each) for each in inert.shared(["x" * each for each in needs], budget)] == expected


def test_live_parts_are_built_of_ids_only() -> None:
    assert inert.mention("U0123ABC") == "<@U0123ABC>"
    assert inert.channel("C0123ABC") == "<#C0123ABC>"
    assert inert.group("S0123ABC") == "<!subteam^S0123ABC>"


@pytest.mark.parametrize(
    "bad", ["", "U", "u0123", "U0>", "!channel", "U01|name", "C0123\n", "C01 ", "U0123\n"]
)
def test_live_parts_refuse_what_is_no_id(bad: str) -> None:
    for build in (inert.mention, inert.channel, inert.group):
        with pytest.raises(ValueError, match="expected a Slack"):
            build(bad)


def test_date_has_a_fallback_in_utc() -> None:
    moment = datetime(2026, 5, 4, 16, 7, tzinfo=timezone(timedelta(hours=2)))
    assert inert.date(moment) == "<!date^1777903620^{date_short_pretty} at {time}|4 May 2026, 14:07 UTC>"
    assert inert.deadline(moment) == "<!date^1777903620^{time} {date_short_pretty}|4 May 2026, 14:07 UTC>"
    assert inert.utc_dates(f"Answer by {inert.date(moment)}") == "Answer by 4 May 2026, 14:07 UTC"
    assert inert.utc(datetime(2026, 12, 31, 23, 59, tzinfo=UTC)) == "31 December 2026, 23:59 UTC"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\ntwo", "one\ntwo"),
        ("\n".join(f"line {n}" for n in range(15)), "\n".join(f"line {n}" for n in range(15))),
        (
            "\n".join(f"line {n}" for n in range(20)),
            "\n".join(
                [
                    *(f"line {n}" for n in range(7)),
                    "… 78 more characters, 10 more lines …",
                    "line 17\nline 18\nline 19",
                ]
            ),
        ),
    ],
)
def test_excerpt_takes_about_ten_rows(text: str, shown: str) -> None:
    assert inert.excerpt(text, rows=10) == shown


@pytest.mark.parametrize(
    ("text", "rtl", "expected"),
    [
        ("as it is", True, "as it is"),
        ("naïve 你好 한글 😀 2+2", True, "naïve 你好 한글 😀 2+2"),
        ("שלום", False, f"{FSI}שלום{PDI}"),
        ("مرحبا", True, f"{RLI}مرحبا{PDI}"),
        ("5 - 3", False, "5 - 3"),
        ("5 - 3", True, f"{RLI}5 - 3{PDI}"),
        ("a \u200f b", False, f"{FSI}a \u200f b{PDI}"),
        ("שלום\nas it is\n\n  עולם ", False, f"{FSI}שלום{PDI}\nas it is\n\n  {FSI}עולם{PDI} "),
        (f"{FSI}שלום{PDI} עולם", False, f"{FSI}{FSI}שלום{PDI} עולם{PDI}"),
        (f"שלום{PDI} עולם{RLI}", False, f"{FSI}שלום עולם{PDI}"),
    ],
)
def test_isolate_is_for_what_reads_from_right_to_left(text: str, rtl: bool, expected: str) -> None:
    assert inert.isolate(text, rtl=rtl) == expected
    assert inert.isolate(expected, rtl=rtl) == expected


@given(st.text(st.characters(max_codepoint=0x58F)))
def test_left_to_right_text_stays_byte_for_byte(text: str) -> None:
    assert inert.isolate(text) == text


@given(words(300))
def test_plain_said_twice_is_plain_said_once(text: str) -> None:
    for make in (inert.plain, inert.line):
        assert make(make(text)) == make(text)


@pytest.mark.parametrize("limit", range(1, 20))
@pytest.mark.parametrize(
    "text", ["שלום עולם, שלום לכולם ועוד מילים", "abc\nשלום עולם, שלום לכולם", f"{RLI}ab\u2066cd{FSI}ef{PDI}gh{PDI}ij{PDI}kl mn"]
)  # fmt: skip
def test_cut_closes_what_it_tears(text: str, limit: int) -> None:
    cut = inert.clip(inert.plain(text), limit)
    assert inert.size(cut) <= limit
    assert cut.rstrip(PDI).endswith("…")
    assert inert.cleaned(cut) == cut, "an isolate without its end"
    if "ש" in cut:
        assert FSI in cut


def test_direction_marks_are_shown_where_nothing_reads_from_right_to_left() -> None:
    said = "Scale from \u200f5 - \u200f10 replicas"
    assert inert.visible(said, prose=True) == "Scale from <U+200F>5 - <U+200F>10 replicas"
    assert "\u200f" in inert.visible("שלום \u200f5", prose=True)


def test_a_value_that_looks_like_several_lines_is_quoted() -> None:
    assert inert.value_words("x ⏎ db: staging") == '"x ⏎ db: staging"'
