"""Finds clarifications that are due, repeat themselves, or wait for each other in a loop.

After one SLA the answerers are nudged and `stale_after` is renewed; after another the clarification is escalated. If a
question has a timeout of its own, the nudge comes after half of it at the latest, the escalation after three quarters.

A question repeats another if both say the same, judged by their words, without a model. A wrong "the same" takes a question
away from its agent and pages people; a wrong "different" costs one more round. So in doubt two texts are different. Word
order and filler do not count; what changes the meaning does:

* numbers with their units, negations, opposites (enable/disable, staging/production), proper names, identifiers and
  quantifiers have to be in both texts;
* so has what follows a word that gives a direction (from, before, than, without …);
* two words that changed places (client calls server, server calls client) make a different text.

Pure: no clock, no files. The router acts on the findings, and decides again under the record's lock. The cost grows with what
changed and what is due, and with the clarifications that are open between agents, not with the number of all.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Literal

from core.clarification import HUMAN, US, Clarification, Entry, agent_key
from core.summary import Seen
from core.transitions import escalation_limit, nudge_limit

_NEVER = datetime.max.replace(tzinfo=UTC)
FindingKind = Literal["due", "stuck", "deadlocked"]
_NAMED = 6
_COMPARED = 300  # answered questions of a session; waits of one agent for another
_OTHERS = 8
_NAME = 40
# Answers that mean nothing without their question, so that two alike are no repetition.
_BARE = frozenset({"yes", "no", "y", "n", "ok", "okay", "true", "false"})
_NOT_TAKEN = frozenset({"sending", "refused", "too_late"})


@dataclass(frozen=True, slots=True)
class DueCall:
    """What is due, and when."""

    kind: Literal["nudge", "escalate", "expire", "unclaimed"]
    at: datetime


def next_call(seen: Seen, sla: timedelta) -> DueCall | None:
    """What is due next if nothing else happens; None if nothing ever is."""
    if not seen.is_open:
        return None if seen.unclaimed_at is None else DueCall("unclaimed", seen.unclaimed_at)
    expires = seen.expires_at
    reminder = None if seen.status == "escalated" else _next_reminder(seen, sla)
    if expires is not None and (reminder is None or expires <= reminder.at):
        return DueCall("expire", expires)
    return reminder


def due_call(seen: Seen, sla: timedelta, now: datetime) -> DueCall | None:
    """What to do at `now`, None if nothing is due. An expired clarification is not nudged, even if its nudge was missed."""
    if seen.is_open and seen.expires_at is not None and seen.expires_at <= now:
        return DueCall("expire", seen.expires_at)
    call = next_call(seen, sla)
    return call if call is not None and call.at <= now else None


def _next_reminder(seen: Seen, sla: timedelta) -> DueCall | None:
    """The next nudge or escalation; None if it was nudged and must not page. A record that another implementation marked
    `stale` counts as pending: no one was nudged.
    """
    if seen.nudges == 0:
        return DueCall(
            "nudge",
            _earlier(
                seen.stale_after or _later(seen.asked_last, sla),
                nudge_limit(seen.asked_last, seen.expires_at),
            ),
        )
    if not seen.escalates:
        return None
    stale = seen.stale_after or _later(seen.asked_last, 2 * sla)
    return DueCall("escalate", _earlier(stale, escalation_limit(seen.asked_last, seen.expires_at)))


def _earlier(at: datetime, limit: datetime | None) -> datetime:
    return at if limit is None else min(at, limit)


def _later(at: datetime, delta: timedelta) -> datetime:
    """`at + delta`, or the end of time, which other implementations may write for "never"."""
    try:
        return at + delta
    except OverflowError:
        return _NEVER


@dataclass(frozen=True, slots=True)
class Wait:
    """One open clarification between agents: `asker` waits for `asked`. `blocking`: and does nothing else meanwhile."""

    clarification: str
    asker: str
    asked: str
    topic: str = ""
    blocking: bool = True

    @property
    def edge(self) -> tuple[str, str]:
        return agent_key(self.asker), agent_key(self.asked)


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A loop of waits, or several that share agents.

    `agents`: first the one that keeps waiting, then the others in their order. `waits`: those that people must end, each with
    the ids of a few others, beginning with those of the agent it waits for.
    """

    agents: tuple[str, ...]
    waits: tuple[tuple[Wait, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A clarification to act on. `words` tell people why; they may name agents, but never quote a question. `others`: a few
    related clarifications.
    """

    kind: FindingKind
    clarification: str
    words: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Timed:
    at: datetime
    expires_at: datetime | None


class Monitor:
    """Tracks clarifications as they change and reports which are due, stuck or deadlocked.

    Args:
        sla: the time from a question to its first nudge, unless the record says.
        order: agents' names, the most upstream first. In a deadlock, the most upstream agent keeps waiting.
    """

    def __init__(self, sla: timedelta, order: Sequence[str]) -> None:
        self._sla = sla
        self._timed: dict[str, _Timed] = {}
        self._armed: set[str] = set()  # the ones in `_timed` not yet reported as due
        self._retries: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []  # may hold outdated entries, which are skipped
        self._order = tuple(order)
        self._waits: dict[str, Wait] = {}
        self._has_new_waits = False
        self._latest: datetime | None = None

    def record_changed(self, record: Seen) -> None:
        """Track a clarification's new state, or forget it if it is closed."""
        call = next_call(record, self._sla)
        if call is None:
            self._timed.pop(record.id, None)
            self._armed.discard(record.id)
        else:
            known = self._timed.get(record.id)
            self._timed[record.id] = _Timed(call.at, record.expires_at)
            if record.id not in self._armed or known is None or known.at != call.at:
                self._arm(record.id, call.at)
        if not record.is_open:
            self._retries.pop(record.id, None)
        self._note_wait(record)

    def due(self, now: datetime) -> list[Finding]:
        """What is due, the longest overdue first. Each is reported once, until it changes or `again` is called; again at its
        time if the clock was set back since.
        """
        if self._latest is not None and now < self._latest:
            for clarification, timed in self._timed.items():
                if clarification not in self._armed and timed.at > now:
                    self._arm(clarification, timed.at)
        self._latest = now
        found: dict[str, None] = {}
        while (at := self.next_due()) is not None and at <= now:
            _, clarification = heapq.heappop(self._heap)
            self._disarm(clarification, at)
            found[clarification] = None
            self._end_wait(clarification, now)
        return [Finding("due", clarification) for clarification in found]

    def again(self, clarification: str, at: datetime) -> None:
        """Report it as due once more, at `at`, since acting on it failed. Its other due times stay."""
        self._retries[clarification] = at
        heapq.heappush(self._heap, (at, clarification))

    def new_waits(self) -> list[Wait]:
        """The open clarifications between agents, if some are new or changed since the last call; else none."""
        is_new, self._has_new_waits = self._has_new_waits, False
        return list(self._waits.values()) if is_new else []

    def suspects(self, waits: Sequence[Wait]) -> list[Finding]:
        """What is stuck or deadlocked between agents. Two that ask each other the same thing are both stuck, rather than
        deadlocked.
        """
        stuck = {
            wait.clarification: Finding("stuck", wait.clarification, _flip_words(wait), others)
            for wait, others in flips(waits)
        }
        found = [*stuck.values()]
        for deadlock in deadlocks(waits, self._order):
            words = _deadlock_words(deadlock.agents)
            found += [
                Finding("deadlocked", wait.clarification, words, others)
                for wait, others in deadlock.waits
                if wait.clarification not in stuck
            ]
        return found

    def next_due(self) -> datetime | None:
        """When `due` reports something next, if nothing changes; None if never."""
        while self._heap and not self._is_up_to_date(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _arm(self, clarification: str, at: datetime) -> None:
        self._armed.add(clarification)
        heapq.heappush(self._heap, (at, clarification))
        if len(self._heap) > 64 + 3 * (len(self._armed) + len(self._retries)):
            self._heap = sorted({entry for entry in self._heap if self._is_up_to_date(*entry)})

    def _is_up_to_date(self, at: datetime, clarification: str) -> bool:
        if clarification in self._armed and self._timed[clarification].at == at:
            return True
        return self._retries.get(clarification) == at

    def _disarm(self, clarification: str, at: datetime) -> None:
        if self._retries.get(clarification) == at:
            del self._retries[clarification]
        else:
            self._armed.discard(clarification)

    def _note_wait(self, record: Seen) -> None:
        if not record.is_with_target or agent_key(record.to) == HUMAN:
            self._waits.pop(record.id, None)
            return
        wait = Wait(record.id, record.from_, record.to, record.short_topic, record.blocking)
        self._has_new_waits |= self._waits.get(record.id) != wait
        self._waits[record.id] = wait

    def _end_wait(self, clarification: str, now: datetime) -> None:
        """Forget a wait that has expired, although its record does not say so yet: its agent goes on."""
        timed = self._timed.get(clarification)
        if timed is not None and timed.expires_at is not None and timed.expires_at <= now:
            self._waits.pop(clarification, None)


def repetitions(records: Sequence[Clarification]) -> list[Finding]:
    """The waiting clarifications of one issue that repeat an earlier question or answer.

    Args:
        records: all of the issue, by number.

    That is: the last two questions or the last two answers say the same in different rounds, or the same session got an
    answer to the question before. If that answer did not reach the producer, asking again is right.
    """
    found: dict[str, Finding] = {}
    for record in records:
        if record.is_with_target and (words := _goes_round(record)) is not None:
            found[record.id] = Finding("stuck", record.id, words)
    for record, earlier in _asked_twice(records):
        words = f"This question was already answered in this session ({earlier.id})."
        finding = Finding("stuck", record.id, words, (earlier.id,))
        found.setdefault(record.id, finding)
    return list(found.values())


def _goes_round(record: Clarification) -> str | None:
    """Why a clarification repeats itself, or None."""
    if len({entry.round for entry in record.thread}) < 2:
        return None
    if record.earlier and record.earlier[-1].delivery.reply in _NOT_TAKEN:
        return None
    if (
        rounds := _same_rounds([e for e in record.thread if e.type == "question" and e.from_ != US])
    ) is not None:
        return "Round {1} repeats the question of round {0}.".format(*rounds)
    labels = {text.casefold() for option in record.asked.choices for text in (option.label, option.value)}
    answers = [e for e in record.thread if e.type == "answer" and _says_something(e.body, labels)]
    if (rounds := _same_rounds(answers)) is not None:
        return "Round {1} repeats the answer of round {0}.".format(*rounds)
    return None


def _same_rounds(entries: list[Entry]) -> tuple[int, int] | None:
    """The rounds of the last two entries if they say the same."""
    if len(entries) < 2:
        return None
    before, last = entries[-2:]
    return (
        (before.round, last.round)
        if before.round != last.round and says_again(before.body, last.body)
        else None
    )


def _says_something(answer: str, labels: set[str]) -> bool:
    words = answer.strip().casefold().rstrip(".!")
    return words not in _BARE | labels and any(letter.isalpha() for letter in words)


def _asked_twice(records: Iterable[Clarification]) -> Iterator[tuple[Clarification, Clarification]]:
    """Waiting clarifications, each with the earlier, answered one whose question it repeats, of the latest `_COMPARED`."""
    sessions: defaultdict[tuple[str | None, str], list[Clarification]] = defaultdict(list)
    for record in records:
        if record.asked.session_id is not None:
            sessions[record.asked.producer, record.asked.session_id].append(record)
    for session in sessions.values():
        waiting = [record for record in session if _may_be_stuck(record)]
        if not waiting:
            continue
        reported = sorted(filter(_was_reported, session), key=_answered_at)[-_COMPARED:]
        sayings = [saying_of(each.question) for each in reported]
        for record in waiting:
            mine = saying_of(record.question)
            before = (
                earlier
                for earlier, saying in zip(reported, sayings, strict=True)
                if _answered_at(earlier) <= record.asked_last
                and _may_repeat(record, earlier)
                and are_alike(saying, mine)
            )
            if (match := next(before, None)) is not None:
                yield record, match


def _may_be_stuck(record: Clarification) -> bool:
    """Whether it waits, and a repetition counts: not for direct questions that must not page, nor for approvals, which
    are each of one action.
    """
    direct = record.asked.direct
    may_page = direct is None or (direct.escalate and direct.kind != "approval")
    return record.is_with_target and may_page


def _may_repeat(record: Clarification, earlier: Clarification) -> bool:
    """Whether it can repeat `earlier`: similar actions each need an approval, so only the same words count there."""
    are_questions = record.current.confirmation is None and earlier.current.confirmation is None
    return are_questions or record.question == earlier.question


def _was_reported(record: Clarification) -> bool:
    return record.answer is not None and record.delivery.reply not in _NOT_TAKEN


def _answered_at(record: Clarification) -> datetime:
    answer = record.answer
    return record.given.answered_at or (answer.timestamp if answer else record.created)


def _flip_words(wait: Wait) -> str:
    return f"{_named([wait.asker])} and {_named([wait.asked])} keep asking each other the same question."


def _deadlock_words(agents: Sequence[str]) -> str:
    if len(agents) == 1:
        return f"{_named(agents)} is waiting for itself."
    return f"{_named(agents)} are waiting for each other in a loop; {_named(agents[:1])} keeps waiting."


def _named(agents: Sequence[str]) -> str:
    names = [name if len(name) <= _NAME else name[: _NAME - 1] + "…" for name in agents[:_NAMED]]
    if len(agents) > _NAMED:
        names.append(f"{len(agents) - _NAMED} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_Known = tuple[str, Wait]  # the key of the agent that is asked, and the wait


def deadlocks(waits: Iterable[Wait], order: Sequence[str]) -> list[Deadlock]:
    """The deadlocks of blocking waits. The most upstream agent keeps waiting, all other waits must end. Loops that share agents
    are one deadlock. An agent's wait for itself must always end.

    `order`: the agents, the most upstream first; others follow by name.
    """
    rank = {agent_key(agent): rank for rank, agent in reversed(list(enumerate(order)))}
    edges: dict[str, dict[str, list[Wait]]] = {}
    for wait in waits:
        if wait.blocking:
            asker, asked = wait.edge
            edges.setdefault(asker, {}).setdefault(asked, []).append(wait)
    found = []
    for knot in _ComponentSearch(edges, sorted(edges)).knots:
        members = set(knot)
        within: dict[str, list[_Known]] = {
            asker: [
                (asked, wait)
                for asked, between in edges.get(asker, {}).items()
                if asked in members
                for wait in between
            ]
            for asker in sorted(members, key=lambda agent: (rank.get(agent, len(rank)), agent))
        }
        if any(within.values()):
            found.append(_deadlock(within))
    return found


def flips(waits: Iterable[Wait]) -> list[tuple[Wait, tuple[str, ...]]]:
    """Every wait of a pair in which two agents ask each other about the same topic, with a few of the others in its pairs.
    Of two agents at most the latest `_COMPARED` waits each.
    """
    of_edge: defaultdict[tuple[str, str], list[Wait]] = defaultdict(list)
    for wait in waits:
        if wait.topic.strip():
            of_edge[wait.edge].append(wait)
    pairs: dict[str, tuple[Wait, dict[str, None]]] = {}
    for (asker, asked), some in of_edge.items():
        back = of_edge.get((asked, asker), []) if asker < asked else []
        others = [(each, saying_of(each.topic)) for each in back[-_COMPARED:]]
        for one in some[-_COMPARED:] if others else ():
            mine = saying_of(one.topic)
            for other in (each for each, saying in others if are_alike(mine, saying)):
                pairs.setdefault(one.clarification, (one, {}))[1][other.clarification] = None
                pairs.setdefault(other.clarification, (other, {}))[1][one.clarification] = None
    return [(wait, tuple(islice(alike, _OTHERS))) for wait, alike in pairs.values()]


def _deadlock(waits: dict[str, list[_Known]]) -> Deadlock:
    upstream = next(iter(waits))
    some = [wait.clarification for _, wait in islice(chain.from_iterable(waits.values()), _OTHERS + 1)]
    first = {
        agent: [wait.clarification for _, wait in known[: _OTHERS + 1]] for agent, known in waits.items()
    }
    ended = tuple(
        (wait, _others(wait, first[asked], some))
        for asker, known in waits.items()
        for asked, wait in known
        if asker != upstream or asked == upstream
    )
    return Deadlock(tuple(known[0][1].asker for known in waits.values()), ended)


def _others(wait: Wait, nearest: list[str], some: list[str]) -> tuple[str, ...]:
    ids = dict.fromkeys((*nearest, *some))
    ids.pop(wait.clarification, None)
    return tuple(islice(ids, _OTHERS))


class _ComponentSearch:
    """The strongly connected components of a graph that can be reached from some roots, by Tarjan's algorithm; without
    recursion, as chains may be long.
    """

    def __init__(self, edges: Mapping[str, Mapping[str, object]], roots: Iterable[str]) -> None:
        self.knots: list[list[str]] = []
        self._edges = edges
        self._number: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self._open: dict[str, None] = {}  # in the order they were entered
        for root in roots:
            if root not in self._number:
                self._walk(root)

    def _walk(self, root: str) -> None:
        path = [self._enter(root)]
        while path:
            agent, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                self._leave(agent, path[-1][0] if path else None)
            elif target not in self._number:
                path.append(self._enter(target))
            elif target in self._open:
                self._low[agent] = min(self._low[agent], self._number[target])

    def _enter(self, agent: str) -> tuple[str, Iterator[str]]:
        self._number[agent] = self._low[agent] = len(self._number)
        self._open[agent] = None
        return agent, iter(self._edges.get(agent, {}))

    def _leave(self, agent: str, before: str | None) -> None:
        if before is not None:
            self._low[before] = min(self._low[before], self._low[agent])
        if self._low[agent] == self._number[agent]:
            knot: list[str] = []
            while agent in self._open:
                knot.append(self._open.popitem()[0])
            self.knots.append(knot)


THRESHOLD = 0.8  # the Jaccard index of the word sets

_LONGEST = 8000  # characters; longer texts must be equal

_WORD = re.compile(r"(?:(?<!\w)[-$€£])?[^\W_]+(?:['._:/@\\-]+[^\W_]+)*[%+#]*")
_ENDS_SENTENCE = re.compile(r"[.!?:;\n]\s*[\"'(*_`\s-]*$")
_THOUSANDS = re.compile(r"(?<=\d)[,_'](?=\d{3}(?!\d))")
_OR_NOT = re.compile(r"\bor not\b", re.IGNORECASE)
_OPENING = re.compile(
    r"\A\s*(?:(?:(?:sorry|hi|hello|again|i ask again|asking again|once (?:more|again)|quick question|following up"
    r"|just checking|please (?:confirm|clarify|advise)|(?:just )?to (?:confirm|clarify|be (?:sure|clear)))"
    r"\s*[,:;.!–—-]+\s+)+)(?=\S)",
    re.IGNORECASE,
)
_INSIDE = frozenset("._:/@\\-#+%$€£")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEGATIONS = _set("no not never none nobody nothing neither nor without")
_DIRECTIONS = _NEGATIONS | _set(
    "from before after than over into instead under above below unless until except since"
)
_JOINING = _set("or and vs versus nor")
_FILLER = _JOINING | _set(
    "a an the this that these those please kindly could would should can may might shall will i we you me us my our"
    " your it its is are be am to of for in on at with by do does so then also just there here"
)
# Words that change the question when another word of their kind replaces them.
_SIGNIFICANT = _DIRECTIONS | _set(
    "all only both every each any some first second last next previous when where who whom whose why how"
    " did was were have been must"
    " production staging development sandbox qa test enable disable start stop add remove delete create update"
    " read write increase decrease allow deny approve reject accept decline yes public private internal external"
    " frontend backend client server minimum maximum min max old new open close off up down left right true"
    " false optional required today tomorrow yesterday upgrade downgrade source target local remote manual"
    " automatic sync async keep drop merge rebase revert install uninstall encrypt decrypt encrypted unencrypted"
    " http https monday tuesday wednesday thursday friday saturday sunday"
)
_ALIASES = {
    "which": "what",
    "prod": "production",
    "dev": "development",
    "db": "database",
    "config": "configuration",
    "repo": "repository",
    "okay": "ok",
    "has": "have",
    "had": "have",
    "used": "use",
    "using": "use",
    "uses": "use",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}
_NO_PLURAL = _set("https does versus previous unless")


@dataclass(frozen=True, slots=True)
class Saying:
    """The parts of a text that are compared.

    `order`: all its words in order; `words`: those that are not filler; `keys`: what the other text must contain (words, and
    pairs such as "from postgres"); `has`: everything that the other text's keys may need.
    """

    plain: str
    order: tuple[str, ...]
    words: frozenset[str]
    keys: frozenset[str]
    has: frozenset[str]


def saying_of(text: str) -> Saying:
    """The parts of `text` that count."""
    plain = " ".join(text.casefold().split())
    text = unicodedata.normalize("NFKC", text[: _LONGEST + 1])  # it may become 18 times as long
    if len(text) > _LONGEST:
        return Saying(plain, (), frozenset(), frozenset(), frozenset())
    text = _THOUSANDS.sub("", text.replace("’", "'"))
    text = _OPENING.sub("", _OR_NOT.sub(" ", text), count=1)
    order: list[str] = []
    names: set[str] = set()
    for match in _WORD.finditer(text):
        words = _canonical(match.group())
        order += words
        if _is_name(match, text):
            names.update(words)
    content = frozenset(word for word in order if word not in _FILLER)
    pairs = frozenset(_pairs(order))
    keys = frozenset(word for word in content if word in names or _is_significant(word))
    return Saying(plain, tuple(order), content, keys | pairs, content | pairs)


def says_again(a: str, b: str) -> bool:
    """Whether `b` says what `a` says."""
    return are_alike(saying_of(a), saying_of(b))


def are_alike(a: Saying, b: Saying) -> bool:
    """`says_again` of two read texts."""
    return similarity(a, b) >= THRESHOLD


def similarity(a: Saying, b: Saying) -> float:
    """From 0 (a key differs, or nothing in common) to 1 (the same words)."""
    if a.plain == b.plain:
        return 1.0
    common = len(a.words & b.words)
    if not common or not (a.keys <= b.has and b.keys <= a.has) or _changed_places(a.order, b.order):
        return 0.0
    return common / (len(a.words) + len(b.words) - common)


def _canonical(raw: str) -> list[str]:
    word = raw.casefold()
    if "'" in word:
        for suffix in ("'s", "'ll", "'re", "'ve", "'m", "'d"):
            word = word.removesuffix(suffix)
    if word.endswith("n't") or word == "cannot":
        stem = {"ca": "can", "wo": "will", "can": "can"}.get(word[:-3], word[:-3])
        return [_ALIASES.get(stem, stem), "not"]
    if word in _ALIASES:
        return [_ALIASES[word]]
    plural = len(word) > 3 and word.isalpha() and word.endswith("s") and not word.endswith("ss")
    word = word[:-1] if plural and word not in _NO_PLURAL else word
    return [_ALIASES.get(word, word)]


def _is_name(match: re.Match[str], text: str) -> bool:
    """Whether a word has a capital inside, or begins with one inside the sentence."""
    raw = match.group()
    if raw.islower():
        return False
    if any(letter.isupper() for letter in raw[1:]):
        return True
    before = text[max(0, match.start() - 20) : match.start()]
    return raw[0].isupper() and bool(before.strip()) and not _ENDS_SENTENCE.search(before)


def _is_significant(word: str) -> bool:
    return word in _SIGNIFICANT or not (word.isalpha() or (_INSIDE.isdisjoint(word) and not _has_digit(word)))


def _has_digit(word: str) -> bool:
    return not word.isalpha() and any(letter.isdigit() for letter in word)


def _pairs(order: list[str]) -> Iterator[str]:
    """A direction with the word it points to, a number with its unit."""
    for at, word in enumerate(order):
        if word in _DIRECTIONS:
            following = next((w for w in order[at + 1 :] if w not in _FILLER), None)
        elif word[0].isdigit():
            following = next((w for w in order[at + 1 : at + 2] if w.isalpha() and w not in _FILLER), None)
        else:
            continue
        if following is not None:
            yield f"{word} {following}"


def _changed_places(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two texts differ only in two words that changed places, other than in an enumeration."""
    if len(a) != len(b):
        return False
    differing = [at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(differing) != 2:
        return False
    first, second = differing
    swapped = a[first] == b[second] and a[second] == b[first]
    between = a[first + 1 : second]
    return swapped and bool(between) and _JOINING.isdisjoint(between)
