"""Parses the text of `/clarify`, of a mention and of a direct message into a command or a hint; holds the help texts.
Pure.

The text is as Slack sends it, with mentions such as `<@U123|ade>`. Case and quotes do not matter, except in a person's
own text (`Change.words`), which only loses quotes around all of it.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from bot.decisions.query import Search, search_of
from core.clock import is_like_span, span_of
from core.errors import BadInput

if TYPE_CHECKING:
    from bot.views.blockkit import Draft

_log = logging.getLogger("clarify.commands")
ListKind = Literal["waiting", "stale", "mine", "issue"]
ChangeVerb = Literal["answer", "resolve", "escalate", "abandon"]
DutyVerb = Literal["who", "take", "hand", "overrides", "cancel"]
BoardKind = Literal["agents", "ready"]
LONGEST_DUTY = timedelta(days=14)
VERBS = (
    "list", "show", "stale", "mine", *get_args(ChangeVerb), "oncall", *get_args(BoardKind), "search", "help"
)  # fmt: skip
_NEEDS_WORDS = {"answer": "yes", "resolve": "done by hand"}
_PAIRS = {'"': '"', "'": "'", "`": "`", "“": "”", "”": "”", "„": "“", "‘": "’", "’": "’", "«": "»", "‹": "›"}
_QUOTES = "".join({*_PAIRS, *_PAIRS.values()})
_DASHES = re.compile("[‐‑‒–—−]")
_ID = re.compile(r"CLR-(\d{1,9})-(\d{1,9})", re.IGNORECASE)
_NEAR_ID = re.compile(r"(?:CLR[-_ ]?)?(\d{1,9})[-_/](\d{1,9})", re.IGNORECASE)
_ISSUE = re.compile(r"#(\d{1,9})|<#C[A-Z0-9]+\|(\d{1,9})>")
_NUMBER = re.compile(r"\d{1,9}")
_PERSON = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_ITSELF = re.compile(r"^/clarify\b\s*", re.IGNORECASE)
_DUTIES: dict[DutyVerb, str] = {
    "who": "who platform",
    "take": "take 2h",
    "hand": "hand @ade 2h",
    "overrides": "overrides",
    "cancel": "cancel 3",
}
_LATER: dict[DutyVerb, str] = {
    "take": "take from 2026-12-24T18:00 for 12h",
    "hand": "hand @ade from 2026-12-24T18:00 for 12h",
}
_HOUR = re.compile(r"\d{1,2}:\d{2}")
_SEARCH = "rotate keys by @ann since 30d"
_CLOSE = 0.6
_FORMS = (
    ("/clarify", "questions waiting for you and in this channel"),
    ("list [#42]", "the same, or all of issue 42"),
    ("show ID", "one question"),
    ("#42", "all of issue 42"),
    ("CLR-42-001", "one question"),
    ("stale", "overdue and escalated questions"),
    ("mine", "questions waiting for you in any channel"),
    ("answer ID text", "answer a question"),
    ("resolve ID text", "close a question with a decision"),
    ("escalate ID [reason]", "page whoever is on call"),
    ("abandon ID [reason]", "close a question without an answer"),
    ("oncall [who|take|hand]", "who is on call; take over, or hand it to someone, now or later"),
    ("oncall overrides, oncall cancel N", "list overrides; cancel one"),
    ("agents", "your agents, and who is waiting for whom"),
    ("ready", "sessions ready to continue, and what blocks the rest"),
    ("search WORDS [by @ann] [agent NAME] [since 30d]", "find a decision again"),
    ("help [topic]", "this list, or more about one command"),
)
_HELP = {
    "list": "“/clarify”, “list”, “stale”, “mine” and “#42” list questions, most urgent first. Use Answer… and View full on "
    "each one, and Take on escalated ones. Next and Previous turn the pages. You see the questions that you may answer "
    "and those asked in your channels. Example: “/clarify list #42”.",
    "show": "“show ID” shows one question; the ID alone works too. Use #42 instead of an ID to list all of issue 42. "
    "Example: “/clarify show CLR-42-001”.",
    "answer": "“answer ID text” answers a question, like a reply in its thread: give a choice by number or label, yes or no, "
    "a number, or your own words; for an approval, accept, accept: and a reason, or reject. Quotes around the text are removed. "
    "The first answer wins. Use #42 instead of an ID if only one question of issue 42 is open. Example: “/clarify answer CLR-42-001 yes”.",
    "resolve": "“resolve ID text” closes a question with a decision. If it is still open, the text becomes its answer and "
    "goes to the agent. Example: “/clarify resolve CLR-42-001 done by hand”.",
    "escalate": "“escalate ID [reason]” pages whoever is on call for the agent until someone takes it. "
    "Example: “/clarify escalate CLR-42-001 nobody here knows this”.",
    "abandon": "“abandon ID [reason]” closes a question without an answer and tells the agent so. "
    "Example: “/clarify abandon CLR-42-001 no longer needed”.",
    "stale": "“stale” lists overdue questions: those with a reminder, and escalated ones. Example: “/clarify stale”.",
    "mine": "“mine” lists what you claimed, then what was handed to you or paged to you, then what you may answer. "
    "Example: “/clarify mine”.",
    "oncall": "“oncall” or “oncall who” shows who is on call. “oncall take 2h” puts you on call for two hours; without a "
    "time, until the current shift ends, or for 8 hours. “oncall hand @ade 2h” puts someone else on call. To plan ahead: "
    "“oncall hand @ade from 2026-12-24T18:00 for 12h”, in the policy's time zone. “oncall overrides” lists "
    "the overrides by number; “oncall cancel 3” cancels one. If you have several policies, put the name at the end. "
    "Example: “/clarify oncall take 2h platform”.",
    "agents": "“agents” shows whether each agent is idle, working, clarifying or blocked, by whom and since when. "
    "Example: “/clarify agents”.",
    "ready": "“ready” shows the sessions that are ready to continue, and the questions that block the rest. "
    "Example: “/clarify ready”.",
    "search": "“search WORDS” finds decisions, the newest first: all of the words must occur, each anywhere in the question, the "
    "answer, the comment, the ID or the agent's name. Quotes make a phrase. “by @ann” finds what Ann decided, “agent planner” what an "
    "agent asked, “since 30d” what was decided in the last 30 days. You see decisions of the channels that you are in, and of "
    "your direct messages. Example: “/clarify search rotate keys by @ann since 30d”.",
    "help": "“help” lists the commands; “help answer” explains one. You can type them after “/clarify”, after “@clarify” in "
    "a channel, or in a direct message to clarify. Most also work in a shell. Example: “/clarify help oncall”.",
}


@dataclass(frozen=True, kw_only=True)
class SlackCommand:
    """A command of an integration: for `/clarify`, mentions and direct messages.

    Args:
        word: what people type first, in lower-case letters, such as `digest`: none that could be an answer.
        form: the same with what may follow, for the list of commands: `digest [7d]`.
        meaning: what it does, for that list.
        help: explains it, with an example.
        read: reads what follows the word, as Slack sends it; what it returns is for `reply`. Raises BadInput with a hint and
            an example. It changes nothing.
        reply: returns the reply, from a `SlackHost`, what was read, and the `Person`. It changes nothing that people decide.
    """

    word: str
    form: str
    meaning: str
    help: str
    read: Callable[[str], Any]
    reply: Callable[..., Awaitable[Draft]]


Added = Mapping[str, SlackCommand]
"""The commands of integrations, by their word."""
_NONE: Added = {}


@dataclass(frozen=True, slots=True)
class List:
    """A list of clarifications; `issue` if of one issue only."""

    kind: ListKind
    issue: int = 0

    @property
    def query(self) -> str:
        """Returns the text that parses to this list."""
        return {"waiting": "", "issue": f"#{self.issue}"}.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class One:
    id: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change to the clarification with this `id`, or else to the only open one of `issue`."""

    verb: ChangeVerb
    id: str | None
    issue: int
    words: str = ""


@dataclass(frozen=True, slots=True)
class OnCallCommand:
    """`since`: the start, on the policy's wall clock; None: now. `number`: of the override to cancel."""

    verb: DutyVerb
    user: str | None = None
    span: timedelta | None = None
    policy: str | None = None
    since: datetime | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Board:
    kind: BoardKind


@dataclass(frozen=True, slots=True)
class Other:
    """A command of an integration; `wanted` is what it read."""

    command: SlackCommand
    wanted: Any


@dataclass(frozen=True, slots=True)
class Past:
    """A search of decisions; `text` is what was typed, in Slack's markup."""

    search: Search
    text: str

    @property
    def query(self) -> str:
        """Returns the text that parses to this search."""
        return f"search {self.text}"


@dataclass(frozen=True, slots=True)
class Help:
    topic: str | None = None


Command = List | One | Change | OnCallCommand | Board | Other | Past | Help


@dataclass(frozen=True, slots=True)
class Hint:
    """Help for an unknown command, with an example. Plain text, which repeats the person's words."""

    text: str


def parse(text: str, added: Added = _NONE) -> Command | Hint:
    """Returns the command in a text, or a hint."""
    text = _ITSELF.sub("", unquoted(text), count=1)
    first, rest = _split(unquoted(text))
    if not _bare(first):
        return List("waiting")
    if (issue := _issue(first)) is not None:
        return _only_shown(f"#{issue}", rest) if rest else List("issue", issue)
    if (found := id_of(first)) is not None:
        return _only_shown(found, rest) if rest else One(found)
    return _by_verb(first, rest, added)


def _by_verb(first: str, rest: str, added: Added) -> Command | Hint:
    verb = _bare(first).casefold().replace("-", "")
    if verb == "on" and _bare(_split(rest)[0]).casefold() == "call":
        verb, rest = "oncall", _split(rest)[1]
    if verb in get_args(ChangeVerb):
        return _change(cast("ChangeVerb", verb), rest)
    read = {"list": _list, "show": _show, "oncall": _on_call, "search": _search}.get(verb)
    if read is not None:
        return read(rest)
    if verb in {"help", "?"}:
        return _help(rest, added)
    if verb in added:
        return _added(added[verb], rest)
    return _plain_word(verb, rest) if verb in VERBS else _unknown(_bare(first), rest, added)


def verbs(added: Added = _NONE) -> tuple[str, ...]:
    """Returns the words of all commands, those of integrations before `search` and `help`."""
    return (*VERBS[:-2], *added, *VERBS[-2:])


def forms(added: Added = _NONE) -> list[tuple[str, str]]:
    """Returns all commands with what may follow, and what each does."""
    return [*_FORMS[:-2], *((each.form, each.meaning) for each in added.values()), *_FORMS[-2:]]


def help_text(topic: str | None, added: Added = _NONE) -> str:
    """Returns the help on all commands, or on one topic, as plain text."""
    if topic is not None:
        return added[topic].help if topic in added else _HELP[topic]
    lines = "\n".join(f"{form} – {meaning}" for form, meaning in forms(added))
    return (
        f"{lines}\nIDs look like CLR-42-001; use #42 (or 42) if only one question of issue 42 is open. "
        "You can also type these after “@clarify” or in a direct message."
    )


def is_change(command: Command | Hint) -> bool:
    """Returns whether it changes something, and so must be stored before the acknowledgement."""
    return isinstance(command, Change) or (
        isinstance(command, OnCallCommand) and command.verb not in {"who", "overrides"}
    )


def is_addressed(text: str) -> bool:
    """Returns whether a text is meant as a command even if it does not parse: it begins with us, a clarification or an
    issue, or with `show` or a change that stands alone or before such a name. Then it must not count as an answer.
    """
    text = unquoted(text)
    first, rest = _split(unquoted(_ITSELF.sub("", text, count=1)))
    target = first
    if _bare(first).casefold() in {"show", *get_args(ChangeVerb)}:
        target = _split(rest)[0] or first
        if target is first or _NEAR_ID.fullmatch(_DASHES.sub("-", _bare(target))):
            return True
    named = _bare(target).casefold().startswith("clr-") or _issue(target) is not None
    return named or _ITSELF.match(text) is not None


def id_of(token: str) -> str | None:
    """Returns a clarification's id, however it was typed (`clr-42-1`, “CLR-42-001”:), or None."""
    match = _ID.fullmatch(_DASHES.sub("-", _bare(token)))
    return f"CLR-{int(match[1])}-{int(match[2]):03d}" if match else None


def is_name(token: str) -> bool:
    """Returns whether this names a clarification or an issue: `CLR-42-001`, `#42`."""
    return id_of(token) is not None or _issue(token) is not None


def unquoted(text: str) -> str:
    """Returns `text` without quotes around all of it; keeps quotes inside."""
    text = text.strip()
    closing = _PAIRS.get(text[:1])
    if closing is None or len(text) < 2 or not text.endswith(closing):
        return text
    inside = text[1:-1]
    return text if text[0] in inside or closing in inside else inside.strip()


def _split(text: str) -> tuple[str, str]:
    parts = text.strip().split(None, 1)
    return (parts[0] if parts else "", parts[1].strip() if len(parts) > 1 else "")


def _bare(token: str) -> str:
    return token.strip(_QUOTES).rstrip(":,;.!").strip(_QUOTES)


def _issue(token: str) -> int | None:
    match = _ISSUE.fullmatch(_bare(token))
    return int(match[1] or match[2]) if match else None


def _named(token: str) -> int | None:
    """Returns the issue that follows a verb, where a plain `42` will do, as in the shell."""
    issue = _issue(token)
    return int(_bare(token)) if issue is None and _NUMBER.fullmatch(_bare(token)) else issue


def _list(rest: str) -> Command | Hint:
    target, more = _split(rest)
    if not target:
        return List("waiting")
    issue = _named(target)
    if issue is None or more:
        return Hint("“list” takes an issue number or nothing. For example: “/clarify list #42”.")
    return List("issue", issue)


def _show(rest: str) -> Command | Hint:
    target, more = _split(rest)
    if not more and (found := id_of(target)) is not None:
        return One(found)
    if not more and (issue := _named(target)) is not None:
        return List("issue", issue)
    near = _NEAR_ID.fullmatch(_DASHES.sub("-", _bare(target)))
    return Hint(f"Which question? For example: “/clarify show {_id(near) if near else 'CLR-42-001'}”.")


def _change(verb: ChangeVerb, rest: str) -> Command | Hint:
    example = f"/clarify {verb} CLR-42-001 {_NEEDS_WORDS.get(verb, '')}".rstrip()
    target, words = _split(rest)
    found, issue = id_of(target), _named(target)
    if found is None and issue is None:
        near = _NEAR_ID.fullmatch(_DASHES.sub("-", _bare(target)))
        if near:
            return Hint(
                f"“{_short(target)}” is not an ID. Did you mean “/clarify {verb} {_id(near)} {words}”?".replace(
                    " ”", "”"
                )
            )
        return Hint(f"Which question? For example: “{example}”. You find IDs on the cards and in the lists.")
    words = unquoted(words)
    if verb in _NEEDS_WORDS and not words:
        said = "What is the answer?" if verb == "answer" else "How was it resolved?"
        return Hint(f"{said} For example: “/clarify {verb} {found or f'#{issue}'} {_NEEDS_WORDS[verb]}”.")
    return Change(verb, found, issue or 0, words)


def _on_call(rest: str) -> Command | Hint:
    tokens = [_bare(token) for token in rest.split()]
    verb: DutyVerb = "who"
    if tokens and tokens[0].casefold() in get_args(DutyVerb):
        verb = cast("DutyVerb", tokens.pop(0).casefold())
    elif tokens and (near := _near(tokens[0], get_args(DutyVerb), 0.7)):
        return Hint(f"Unknown command “oncall {_short(tokens[0])}”. Did you mean “/clarify oncall {near}”?")
    if verb == "cancel":
        return _cancel(tokens)
    since = None
    if verb in {"take", "hand"}:
        tokens = [token for token in tokens if token.casefold() != "for"]
        at = next((index for index, token in enumerate(tokens) if token.casefold() == "from"), None)
        if at is not None:
            day, hour = [*tokens[at + 1 : at + 3], "", ""][:2]
            is_apart = _HOUR.fullmatch(hour) is not None and ":" not in day
            since = _moment(f"{day} {hour.zfill(5)}" if is_apart else day)
            if since is None:
                what = f"“{_short(day)}” is not a date and time." if day else "From when?"
                example = f"For example: “/clarify oncall {_LATER['hand']}”, in the policy's time zone."
                return Hint(f"{what} {example}")
            del tokens[at : at + (3 if is_apart else 2)]
    return _turn(verb, tokens, since)


def _turn(verb: DutyVerb, tokens: list[str], since: datetime | None) -> Command | Hint:
    user = span = policy = None
    for token in tokens:
        if match := _PERSON.fullmatch(token):
            user = match[1]
        elif (length := span_of(token)) is not None:
            span = length
        elif policy is None and not (token.startswith("@") or token.isdecimal() or is_like_span(token)):
            policy = token
        else:
            return _odd_duty(token, verb)
    wrong = None
    if verb == "hand" and user is None:
        wrong = "Who takes over? For example: “/clarify oncall hand @ade 2h”."
    elif span is not None and span > LONGEST_DUTY:
        wrong = "That's too long: at most 14d. For example: “/clarify oncall take 8h”."
    elif since is not None and span is None:
        wrong = f"For how long? For example: “/clarify oncall {_LATER[verb]}”."
    return Hint(wrong) if wrong else OnCallCommand(verb, user, span, policy, since)


def _cancel(tokens: list[str]) -> Command | Hint:
    number = tokens[0].removeprefix("#") if len(tokens) == 1 else ""
    if not _NUMBER.fullmatch(number):
        return Hint(
            "Which override? “/clarify oncall overrides” shows their numbers. For example: “/clarify oncall cancel 3”."
        )
    return OnCallCommand("cancel", number=int(number))


def _moment(text: str) -> datetime | None:
    """Returns a moment on the policy's wall clock, or None if the text is none."""
    try:
        found = datetime.fromisoformat(_DASHES.sub("-", text))
    except ValueError:
        return None
    return found if found.tzinfo is None else None


def _odd_duty(token: str, verb: DutyVerb) -> Hint:
    if token.startswith("@"):
        return Hint(f"“{_short(token)}” is not a mention. Pick the name from Slack's list while you type.")
    wrong = "is not a duration of up to 14d" if is_like_span(token) else "doesn't belong here"
    return Hint(f"“{_short(token)}” {wrong}. For example: “/clarify oncall {_DUTIES[verb]}”.")


def _added(command: SlackCommand, rest: str) -> Command | Hint:
    try:
        return Other(command, command.read(rest))
    except BadInput as error:
        return Hint(str(error))
    except Exception:  # noqa: BLE001 - others wrote it, and every message is parsed
        _log.exception("a command of an integration cannot be read: %s", command.word)
        return Hint(f"“{command.word}” doesn't work right now. The bot's log says why.")


def _search(rest: str) -> Command | Hint:
    rest = " ".join(rest.split())
    try:
        found = search_of(rest)
    except BadInput as error:
        return Hint(f"{error} For example: “/clarify search {_SEARCH}”.")
    if not any(found):
        return Hint(f"What are you looking for? For example: “/clarify search {_SEARCH}”.")
    return Past(found, rest)


def _help(rest: str, added: Added) -> Command | Hint:
    topic, words = _bare(_split(rest)[0]).casefold().replace("-", ""), verbs(added)
    if not topic or topic in words:
        return Help(topic or None)
    near = _near(topic, words)
    meant = f" Did you mean “/clarify help {near}”?" if near else f" There is help on {', '.join(words)}."
    return Hint(f"No help for “{_short(topic)}”.{meant}")


def _plain_word(verb: str, rest: str) -> Command | Hint:
    if rest:
        return Hint(f"“{verb}” stands alone. Did you mean “/clarify {verb}”?")
    return Board(cast("BoardKind", verb)) if verb in get_args(BoardKind) else List(cast("ListKind", verb))


def _only_shown(target: str, rest: str) -> Hint:
    """Asks whether words after an id are the answer, instead of guessing."""
    first, more = _split(rest)
    verb = _bare(first).casefold()
    meant = (
        f"{verb} {target} {more}".strip()
        if verb in get_args(ChangeVerb)
        else f"answer {target} {_short(rest)}"
    )
    return Hint(f"Did you mean “/clarify {meant}”? To see it, type “/clarify {target}”.")


def _unknown(word: str, rest: str, added: Added) -> Hint:
    dashed = _DASHES.sub("-", word)
    if dashed.isdecimal() and len(dashed) <= 9:
        return Hint(f"Did you mean “/clarify #{dashed}”, all of issue {dashed}?")
    if near := _NEAR_ID.fullmatch(dashed):
        return Hint(f"“{_short(word)}” is not an ID. Did you mean “/clarify {_id(near)}”?")
    if close := _near(word.casefold(), verbs(added)):
        meant = f"{close} {_short(rest)}".strip()
        if close not in get_args(ChangeVerb) and isinstance(parse(meant, added), Hint):
            meant = close  # suggest only what parses
        return Hint(f"Unknown command “{_short(word)}”. Did you mean “/clarify {meant}”?")
    return Hint(f"Unknown command “{_short(word)}”. Try “/clarify help”, or for example “/clarify stale”.")


def _near(word: str, words: tuple[str, ...], cutoff: float = _CLOSE) -> str | None:
    return next(iter(difflib.get_close_matches(word, words, 1, cutoff)), None)


def _id(match: re.Match[str]) -> str:
    return f"CLR-{int(match[1])}-{int(match[2]):03d}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
