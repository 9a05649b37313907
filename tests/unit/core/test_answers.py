"""What people type, and what the agent gets: a big table, and any text at all."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.answers import (
    TEXT_LIMIT,
    default_label,
    describe,
    from_choices,
    from_free_text,
    from_text,
    from_yes_no,
    hint,
    is_talk,
    number,
)
from core.clarification import KINDS, Answer, Choice, Kind, Question
from core.errors import AnswerRejected

ABC = (
    Choice(value="a", label="Alpha"),
    Choice(value="b", label="Beta, the second"),
    Choice(value="c", label="Gamma"),
)
NUMBERS = tuple(Choice(value=word, label=word) for word in ("10", "5", "2"))
VERSIONS = (
    Choice(value="3.11", label="Python 3.11"),
    Choice(value="2", label="Python 2"),
    Choice(value="x", label="2"),
)


def asked(*kinds: Kind, choices: tuple[Choice, ...] = (), several: bool = False) -> Question:
    return Question(kinds=kinds or ("freetext",), choices=choices, multi_select=several)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("1200", 1200), ("-3", -3), ("+3", 3), ("007", 7), ("12.5", 12.5), (".5", 0.5),
        ("-0.25", -0.25), ("1,200.50", 1200.5), ("1,200,000", 1_200_000), ("12,345,678.9", 12_345_678.9),
        ("1 200", 1200), ("1 200 000", 1_200_000), ("1'200'000.5", 1_200_000.5), ("1_000_000", 1_000_000),
        ("1\u00a0200\u00a0000", 1_200_000), ("1e3", 1000.0), ("1.5E-3", 0.0015), ("0.125", 0.125),
        ("1234.567", 1234.567), ("12.50", 12.5), ("12.0000", 12.0), ("9" * 60, int("9" * 60)),
    ],
)  # fmt: skip
def test_number_by_the_stated_rule(text: str, value: float) -> None:
    assert number(text) == value
    assert type(number(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    ["1,200", "1.200", "-1,200", "12.500", "999,999", "1,5", "12,50", "0,125", "0,5", "00,125", "1.200,50", "1.200.000",
     "1,2,3", "1 2", "1,20,000", "1,200 300", "1.2.3", "1..2", "1,", "-1,", "9" * 61, "0" * 61 + ".5"],
)  # fmt: skip
def test_number_that_can_be_read_in_two_ways_is_asked_back(text: str) -> None:
    with pytest.raises(AnswerRejected):
        number(text)


@pytest.mark.parametrize(
    "text",
    [
        "twelve",
        "12 apples",
        "$12",
        "50%",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "0x10",
        "",
        "-",
        ".",
        "1/2",
        "½",
        "²",
        "１２a",
    ],
)
def test_number_is_not_guessed_from_other_words(text: str) -> None:
    assert number(text) is None


def test_number_hint_can_be_followed() -> None:
    with pytest.raises(AnswerRejected, match=r"reply 1200 or 1\.2000"):
        number("1,200")
    assert (number("1200"), number("1.2000")) == (1200, 1.2)


YES = ["yes", "Yes", "YES!", "y", "yep", "yeah.", "ok", "okay", "sure", "true", "👍", ":+1:", " yes "]
NO = ["no", "No.", "n", "nope", "nah", "FALSE", "👎", ":-1:"]


@pytest.mark.parametrize(
    ("text", "response"), [(text, True) for text in YES] + [(text, False) for text in NO]
)
def test_yes_no_words(text: str, response: bool) -> None:
    answer = from_text(asked("yes_no"), text)
    assert answer.response is response
    assert answer.label == ("Yes" if response else "No")


@pytest.mark.parametrize("text", ["maybe", "yes please", "not yet", "yesno", "1", "0", "ja", "?", "   "])
def test_yes_no_takes_no_other_words(text: str) -> None:
    with pytest.raises(AnswerRejected, match="yes or no"):
        from_text(asked("yes_no"), text)


@pytest.mark.parametrize(
    ("text", "value", "label"),
    [
        ("1", "a", "Alpha"), ("#2", "b", "Beta, the second"), ("3.", "c", "Gamma"), ("(3)", "c", "Gamma"), ("2)", "b", "Beta, the second"),
        ("a", "a", "Alpha"), ("A", "a", "Alpha"), ("alpha", "a", "Alpha"), ("  beta,  the SECOND ", "b", "Beta, the second"), ("*alpha*", "a", "Alpha"),
    ],
)  # fmt: skip
def test_choice_by_number_value_or_label(text: str, value: str, label: str) -> None:
    answer = from_text(asked("multiple_choice", choices=ABC), text)
    assert (answer.response, answer.label) == (value, label)


@pytest.mark.parametrize("text", ["0", "4", "99", "100", "-1", "alph", "1, 2", "a b", "both", "#0"])
def test_choice_takes_nothing_else(text: str) -> None:
    with pytest.raises(AnswerRejected, match="number of a choice"):
        from_text(asked("multiple_choice", choices=ABC), text)


@pytest.mark.parametrize(
    ("choices", "text", "told", "way", "value"),
    [
        (NUMBERS, "2", "#2 for “5” or #3 for “2”", "#3", "2"),
        (NUMBERS, "2", "#2 for “5” or #3 for “2”", "#2", "5"),
        (VERSIONS, "2", "matches more than one", "#2", "2"),
        ((Choice(value="x", label="Go"), Choice(value="y", label="go")), "GO", "#1 for “Go” or #2 for “go”", "#2", "y"),
    ],
)  # fmt: skip
def test_choice_with_two_readings_is_asked_back_with_a_way_out(
    choices: tuple[Choice, ...], text: str, told: str, way: str, value: str
) -> None:
    question = asked("multiple_choice", choices=choices)
    with pytest.raises(AnswerRejected) as caught:
        from_text(question, text)
    assert told in str(caught.value)
    assert from_text(question, way).response == value


def test_choice_whose_value_is_its_own_number_is_no_trouble() -> None:
    options = tuple(Choice(value=str(n), label=f"Choice {n}") for n in (1, 2, 3))
    assert from_text(asked("multiple_choice", choices=options), "2").response == "2"


@pytest.mark.parametrize(
    ("text", "joined"),
    [("1", "Alpha"), ("1, 3", "Alpha, Gamma"), ("3;1", "Alpha, Gamma"), ("gamma\nalpha", "Alpha, Gamma"),
     ("1,1,a", "Alpha"), ("beta, the second", "Beta, the second"), ("1, 3,", "Alpha, Gamma")],
)  # fmt: skip
def test_several_choices_are_one_string_of_labels(text: str, joined: str) -> None:
    answer = from_text(asked("multiple_choice", choices=ABC, several=True), text)
    assert (answer.response, answer.label) == (joined, joined)


@pytest.mark.parametrize("text", ["1, 9", "1 and 2", ",", "alpha, delta"])
def test_several_choices_all_have_to_be_choices(text: str) -> None:
    with pytest.raises(AnswerRejected, match="separated by commas"):
        from_text(asked("multiple_choice", choices=ABC, several=True), text)


def test_several_long_choices_are_not_sent_as_an_invalid_reply() -> None:
    options = tuple(Choice(value=str(n), label=f"{n}" * 1000) for n in range(1, 20))
    with pytest.raises(AnswerRejected, match="at most 16384"):
        from_choices(asked("multiple_choice", choices=options, several=True), list(range(19)))


def test_choice_whose_label_another_has_is_named_with_its_value() -> None:
    options = (Choice(value="a", label="Go"), Choice(value="b", label="Go"), Choice(value="c", label="Stop"))
    question = asked("multiple_choice", choices=options)
    assert [from_choices(question, [n]).label for n in range(3)] == ["Go (a)", "Go (b)", "Stop"]


@pytest.mark.parametrize("indexes", [[], [-1], [3], [0, 3], [0, 1]])
def test_from_choices_refuses_what_is_not_asked(indexes: list[int]) -> None:
    with pytest.raises(AnswerRejected):
        from_choices(asked("multiple_choice", choices=ABC), indexes)


@pytest.mark.parametrize(
    ("kinds", "choices", "text", "response"),
    [
        (("yes_no", "freetext"), (), "yes", True),
        (("yes_no", "freetext"), (), "yes, but later", "yes, but later"),
        (("numeric", "freetext"), (), "12.5", 12.5),
        (("numeric", "freetext"), (), "1,200", "1,200"),
        (("multiple_choice", "freetext"), ABC, "2", "b"),
        (("multiple_choice", "freetext"), ABC, "something else", "something else"),
        (("multiple_choice", "yes_no"), (Choice(value="y", label="Yes"),), "yes", "y"),
        (("multiple_choice", "yes_no"), ABC, "no", False),
        (("yes_no", "numeric"), (), "1", 1),
        (("multiple_choice", "numeric"), ABC, "#2", "b"),
        (("multiple_choice", "numeric"), ABC, "2.0", 2.0),
        (("multiple_choice", "numeric"), ABC, "7", 7),
    ],
)
def test_several_kinds_are_read_in_the_stated_order(
    kinds: tuple[Kind, ...], choices: tuple[Choice, ...], text: str, response: object
) -> None:
    answer = from_text(asked(*kinds, choices=choices), text)
    assert answer.response == response
    assert type(answer.response) is type(response)


def test_choice_or_number_is_asked_back() -> None:
    with pytest.raises(AnswerRejected, match=r"reply #2 for “Beta, the second”, or 2\.0"):
        from_text(asked("multiple_choice", "numeric", choices=ABC), "2")


@pytest.mark.parametrize("text", ["x", " as typed \n", "y" * TEXT_LIMIT, "nan", "👍", "1"])
def test_free_text_is_as_typed(text: str) -> None:
    assert from_text(asked(), text).response == text


@pytest.mark.parametrize("text", ["", " \n\t", "y" * (TEXT_LIMIT + 1)])
def test_free_text_has_limits(text: str) -> None:
    with pytest.raises(AnswerRejected):
        from_free_text(text)


def test_half_a_character_is_replaced() -> None:
    assert from_free_text("a\ud83d").response == "a\ufffd"


def test_yes_no_button_of_another_question() -> None:
    assert from_yes_no(asked("yes_no"), yes=False).response is False
    with pytest.raises(AnswerRejected):
        from_yes_no(asked("numeric"), yes=True)


@pytest.mark.parametrize(
    ("response", "words"), [(True, "Yes"), (False, "No"), (5, "5"), (0.5, "0.5"), ("x", "x")]
)
def test_describe(response: bool | float | str, words: str) -> None:
    assert describe(response) == words


LABELS = st.text(min_size=1, max_size=12).filter(str.strip)
QUESTIONS = st.builds(
    lambda kinds, words, several: Question(
        kinds=tuple(k for k in KINDS if k in kinds),
        choices=tuple(Choice(value=word, label=word.upper() or word) for word in dict.fromkeys(words)),
        multi_select=several,
    ),
    st.sets(st.sampled_from(KINDS), min_size=1),
    st.lists(LABELS | st.sampled_from(["1", "2", "yes", "no", "1,200"]), min_size=1, max_size=5),
    st.booleans(),
)
TYPED = (
    st.text()
    | st.text(alphabet="0123456789.,' _-+eE#()", max_size=12)
    | st.sampled_from([*YES, *NO, "1", "2, 1", "\ud800", "1,200"])
    | st.floats().map(str)
    | st.integers().map(str)
)


def fits(question: Question, kind: Kind, response: object) -> bool:
    """Whether a reply may carry `response` to a question of `kind` (aaep, chapter 6)."""
    if kind == "yes_no":
        return isinstance(response, bool)
    if kind == "numeric":
        is_number = isinstance(response, (int, float)) and not isinstance(response, bool)
        return is_number and math.isfinite(response)  # type: ignore[arg-type]
    if not isinstance(response, str) or not 1 <= len(response) <= TEXT_LIMIT:
        return False
    if kind == "freetext":
        return True
    if not question.multi_select:
        return response in {option.value for option in question.choices}
    labels = [option.label for option in question.choices]
    return any(
        response == ", ".join(some) for n in range(1, len(labels) + 1) for some in combinations(labels, n)
    )


def tried(question: Question, text: str) -> Answer | AnswerRejected:
    try:
        return from_text(question, text)
    except AnswerRejected as rejected:
        return rejected


@given(QUESTIONS, TYPED)
def test_any_text_is_a_fitting_answer_or_a_hint(question: Question, text: str) -> None:
    answer = tried(question, text)
    if isinstance(answer, AnswerRejected):
        assert str(answer).strip()
        return
    assert any(fits(question, kind, answer.response) for kind in question.kinds)
    assert answer.label
    str(answer.response).encode()


@given(QUESTIONS)
def test_every_choice_can_be_said_by_its_number_sign(question: Question) -> None:
    if "multiple_choice" not in question.kinds:
        return
    for index, option in enumerate(question.choices):
        sign = f"#{index + 1}"
        if any(sign in {o.value, o.label} for o in question.choices):
            continue
        assert from_text(question, sign).response == (option.label if question.multi_select else option.value)


@given(QUESTIONS)
def test_every_hint_says_how(question: Question) -> None:
    assert hint(question).startswith("Reply with ")
    assert len(hint(question)) > len("Reply with .")


@pytest.mark.parametrize(
    ("default", "several", "label"),
    [
        (None, False, ""),
        ("b", False, "Beta, the second"),
        (" C ", False, "Gamma"),
        ("\u2067b\u2069", False, "Beta, the second"),
        ("Gamma", False, "Gamma"),
        ("none of these", False, "none of these"),
        ("a, c", False, "a, c"),
        ("c, a", True, "Gamma, Alpha"),
        ("c, z", True, "c, z"),
    ],
)
def test_default_label(default: str | None, several: bool, label: str) -> None:
    question = asked("multiple_choice", choices=ABC, several=several)
    assert default_label(question.model_copy(update={"default_response": default})) == label


@pytest.mark.parametrize(
    ("text", "talks"),
    [
        ("note: yes", True),
        (" NOTE : no", True),
        ("(yes)", True),
        (" (hm (no)) ", True),
        ("  //no idea", True),
        ("(a) or (b)", False),
        ("blue (the light one)", False),
        ("(", False),
    ],
)
def test_talk_is_told_from_what_only_looks_like_it(text: str, talks: bool) -> None:
    assert is_talk(text) is talks
