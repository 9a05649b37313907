"""What commands say: help, and the short sentences after a change. Fixed English. Pure.

Sentences are mrkdwn of ours, as in `bot.views.phrases`; the help is plain text.
"""

from __future__ import annotations

from bot.views import inert, phrases
from core.clarification import Clarification

GRAMMAR = (
    ("/clarify", "what waits for you and in this channel"),
    ("list [#42]", "the same, or everything of issue 42"),
    ("show ID", "one clarification"),
    ("#42", "everything of issue 42"),
    ("CLR-42-001", "one clarification"),
    ("stale", "what was reminded of or escalated"),
    ("mine", "what waits for you, wherever it was asked"),
    ("answer ID text", "answer a question"),
    ("resolve ID text", "close it with what was decided"),
    ("escalate ID [reason]", "page whoever is on call"),
    ("abandon ID [reason]", "close it without an answer"),
    ("oncall [who|take|hand]", "who is on call; take it over, or hand it to somebody"),
    ("agents", "the agents, and who waits for whom"),
    ("ready", "the sessions that can go on, and what blocks the others"),
    ("digest [7d] [png]", "figures of the last days; with png also as a picture"),
    ("help [topic]", "this, or more on one word"),
)
HELP = {
    "list": "“/clarify”, “list”, “stale”, “mine” and “#42” list clarifications, the most urgent first. Each has Answer… and "
    "View full; escalated ones have Take. Next and Previous turn pages. You see what you may answer, and what is "
    "asked in channels that you are in. Example: “/clarify list #42”.",
    "show": "“show ID” shows one clarification; the id alone does it too. With #42 in place of the id, everything of "
    "issue 42 is listed. Example: “/clarify show CLR-42-001”.",
    "answer": "“answer ID text” answers a question as a reply in its thread would: a choice by its number or label, "
    "yes or no, a number, or your words. Quotes around the text are left out. The first answer wins. With #42 in "
    "place of the id, the only open question of issue 42 is meant. Example: “/clarify answer CLR-42-001 yes”.",
    "resolve": "“resolve ID text” closes a clarification with what was decided. If it is open, the text is its "
    "answer too, and goes to the agent that waits for it. Example: “/clarify resolve CLR-42-001 done by hand”.",
    "escalate": "“escalate ID [reason]” pages whoever is on call for the agent, until somebody takes it. "
    "Example: “/clarify escalate CLR-42-001 nobody here knows this”.",
    "abandon": "“abandon ID [reason]” closes a clarification without an answer; the agent gets none. "
    "Example: “/clarify abandon CLR-42-001 no longer needed”.",
    "stale": "“stale” lists open questions that were reminded of, are overdue or escalated. Example: “/clarify stale”.",
    "mine": "“mine” lists what you took, what was handed to you or you were paged for, and what you may answer. "
    "Example: “/clarify mine”.",
    "oncall": "“oncall” or “oncall who” says who is on call. “oncall take 2h” makes you the one for two hours; without "
    "a time until the present turn ends, or for 8 hours. “oncall hand @ade 2h” makes it somebody else. Where there are "
    "several policies, name one at the end. Example: “/clarify oncall take 2h platform”.",
    "agents": "“agents” shows the agents that are at work: idle, working, clarifying, or blocked, on whom and since "
    "when. Example: “/clarify agents”.",
    "ready": "“ready” shows the sessions that can go on, and for the others the clarifications that block them. "
    "Example: “/clarify ready”.",
    "digest": "“digest 7d” sums up: how many were asked, resolved, escalated and abandoned, how long answers took, "
    "rounds, topics, who asks and who answers most. Without a time the last 7 days. With “png” a picture of the same "
    "figures comes to your direct messages with clarify. Example: “/clarify digest 30d png”.",
    "help": "“help” shows all words, “help answer” more on one of them. All work as “/clarify …”, after “@clarify” in a "
    "channel, and as a direct message to clarify; most work in a shell, too. Example: “/clarify help oncall”.",
}


def help_text(topic: str | None) -> str:
    """The grammar, or more on one word, as plain text."""
    if topic is not None:
        return HELP[topic]
    lines = "\n".join(f"{form} – {meaning}" for form, meaning in GRAMMAR)
    return (
        f"{lines}\nID is such as CLR-42-001; #42 (or 42) in its place means the only open one of issue 42. "
        "All words also work after “@clarify” and in a direct message."
    )


def resolved(record: Clarification, text: str) -> str:
    """It was closed with words; or answered, where an agent still has to take the answer."""
    if record.status == "answered":
        return f"{phrases.accepted(record)} It is resolved as soon as the agent takes it."
    return f"{_id(record)} is resolved: “{_clean(text, 200)}”."


def escalated(record: Clarification, *, before: bool) -> str:
    if before:
        return f"{_id(record)} was escalated already: whoever is on call knows."
    return f"{_id(record)} is escalated: whoever is on call is paged."


def abandoned(record: Clarification) -> str:
    return f"{_id(record)} is closed without an answer."


def taken(record: Clarification) -> str:
    return f"You have {_id(record)} in hand now. Pages about it stop; please answer it, or hand it over."


def rejected(clarification_id: str, hint: str) -> str:
    """The text does not fit the question."""
    return f"Nothing was answered. {_clean(hint, 600)} For example: “/clarify answer {_clean(clarification_id, 40)} …”."


def not_possible(clarification_id: str) -> str:
    """The protocol knows no such step from where it stands."""
    return (
        f"{_clean(clarification_id, 40)} cannot be changed like that as it stands now. Nothing was changed."
    )


def nothing_open(issue: int) -> str:
    return f"No question of issue {issue} is open. “/clarify #{issue}” shows what there is."


def which_one(issue: int, count: int) -> str:
    """Plain text."""
    return f"{count} questions of issue {issue} are open. Nothing was changed: name one by its id"


def _id(record: Clarification) -> str:
    return _clean(record.id, 40)


def _clean(text: str, limit: int) -> str:
    return inert.escape(inert.clip(inert.line(text), limit)) or "(blank)"
