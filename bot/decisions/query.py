"""Reads what a person typed to search decisions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from bot.views.codec import LONGEST_SEARCH
from core.clock import span_of
from core.errors import BadInput

_LONGEST_SPAN = timedelta(days=36_600)
_OPTIONS = ("by", "agent", "since")
_TOKEN = re.compile(r'"(?P<a>[^"]*)"|[“„](?P<b>[^“”"]*)[“”"]|«(?P<c>[^»]*)»|(?P<word>(?:<[^<>]*>|\S)+)')
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_USER = re.compile(r"[UW][A-Z0-9]{5,}")
_DASHES = re.compile("^[-‐‑‒–—−]+")


class Search(NamedTuple):
    """What to look for: all of `words`, each anywhere in a question, an answer, a comment or an agent's name.

    `by`: Slack ids and names of who decided, any of which will do. `agent`: a part of the agent's name. What is empty makes
    no difference.
    """

    words: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    agent: str = ""
    span: timedelta | None = None
    until: datetime | None = None


class Token(NamedTuple):
    text: str
    is_quoted: bool = False


def search_of(text: str) -> Search:
    """Reads `WORDS [by @ann] [agent NAME] [since 30d]` as typed in Slack, in any order. Quotes make a phrase.

    Raises:
        BadInput: says what was expected.
    """
    if len(text) > LONGEST_SEARCH:
        raise BadInput(f"That's too long: at most {LONGEST_SEARCH} characters.")
    found = parsed(tokens_of(text))
    (by,) = found.by or ("",)
    if match := _MENTION.fullmatch(by):
        return found._replace(by=(match[1],))
    if by and not (_USER.fullmatch(by) or "@" in by[1:]):
        raise BadInput(
            f"“{by[:40]}” is not a mention: pick the name from Slack's list while you type, or give an e-mail address. To look"
            ' for the word itself, put it in quotes: “"by"”.'
        )
    return found


def tokens_of(text: str) -> list[Token]:
    """Splits a text at spaces, but not within quotes."""
    return [Token(each["word"]) if each["word"] else _quoted(each) for each in _TOKEN.finditer(text)]


def parsed(tokens: Iterable[Token]) -> Search:
    """Reads a search of tokens, such as the words of a command in the shell. Who `by` is is not checked.

    Raises:
        BadInput: says what was expected.
    """
    words: list[str] = []
    given: dict[str, str] = {}
    left = list(tokens)
    while left:
        token = left.pop(0)
        option = "" if token.is_quoted else _DASHES.sub("", token.text).casefold()
        if option not in _OPTIONS:
            words.append(token.text)
            continue
        if option in given:
            raise BadInput(f"“{option}” is given twice.")
        value = left.pop(0).text if left else ""
        if option == "since" and value.isdecimal() and left:  # 2 weeks
            value += left.pop(0).text
        given[option] = value
        if not value:
            raise BadInput(_expected(option))
    return Search(
        words=tuple(filter(None, map(str.strip, words))),
        by=(given["by"],) if "by" in given else (),
        agent=given.get("agent", ""),
        span=span_in(given["since"]) if "since" in given else None,
    )


def span_in(text: str) -> timedelta:
    """Reads the span after `since`.

    Raises:
        BadInput: it is none.
    """
    try:
        span = span_of(text)
    except OverflowError:
        span = None
    if span is None or span > _LONGEST_SPAN:
        raise BadInput(f"“{text[:40]}” is not a time span. {_expected('since')}")
    return span


def _expected(option: str) -> str:
    example = {"by": "by @ann", "agent": "agent planner", "since": "since 30d"}[option]
    return f'Expected for example “{example}”. To look for the word itself, put it in quotes: “"{option}"”.'


def _quoted(found: re.Match[str]) -> Token:
    return Token(
        next(each for each in (found["a"], found["b"], found["c"]) if each is not None), is_quoted=True
    )
