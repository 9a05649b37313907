"""What one agent asks another, and what it may look like: guard 6 of the architecture's §7."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import BadInput, TooLong
from core.steering import BODY_LIMIT
from core.workflow import ROLE_LIMIT, is_role

TOPIC_LIMIT = 200
CONTEXT_LIMIT = 4096  # as in AAEP
HIGHEST_ISSUE = 100_000  # above, numbers are for sessions that name no issue
_HIGHEST_NUMBER = 10**9


@dataclass(frozen=True, slots=True)
class Request:
    """What one agent asks another, about an issue (1 to 100000).

    `from_`, `to`: roles, one line of 1 to 80 characters; `to` may be "human". `topic`: at most 200 characters; without
    one, the question's first words. `question`: 1 to 2000, `context`: at most 4096. `blocking`: whether `from_` waits.

    Raises:
        BadInput: what, how it is, and what is allowed; TooLong if it is the length.
    """

    issue: int
    from_: str
    to: str
    topic: str
    question: str
    blocking: bool = True
    context: str | None = None

    def __post_init__(self) -> None:
        check_issue(self.issue)
        check_role("requester (from)", self.from_)
        check_role("target (to)", self.to)
        check_text("topic", self.topic, TOPIC_LIMIT, may_be_empty=True)
        check_question(self.question, self.context)


def check_issue(issue: int) -> None:
    if type(issue) is not int or not 1 <= issue <= _HIGHEST_NUMBER:
        raise BadInput(f"The issue is not a whole number from 1 to {HIGHEST_ISSUE}.")
    if issue > HIGHEST_ISSUE:
        raise BadInput(
            f"The issue {issue} is reserved for sessions without an issue; allowed is 1 to {HIGHEST_ISSUE}."
        )


def check_role(what: str, role: str) -> None:
    if not isinstance(role, str):
        raise BadInput(f"The {what} is no text.")
    if len(role) > ROLE_LIMIT:
        raise TooLong(what, len(role), ROLE_LIMIT)
    if not is_role(role):
        raise BadInput(f"The {what} is no role: expected one line of 1 to {ROLE_LIMIT} printable characters.")


def check_question(question: str, context: str | None) -> None:
    check_text("question", question, BODY_LIMIT)
    check_text("context", context or "", CONTEXT_LIMIT, may_be_empty=True)


def check_reason(reason: str | None) -> None:
    check_text("reason", reason or "", BODY_LIMIT, may_be_empty=True)


def check_text(what: str, text: str, limit: int, *, may_be_empty: bool = False) -> None:
    if not isinstance(text, str):
        raise BadInput(f"The {what} is no text.")
    if len(text) > limit:
        raise TooLong(what, len(text), limit)
    if not may_be_empty and not text.strip():
        raise BadInput(f"The {what} is empty; expected 1 to {limit} characters.")
