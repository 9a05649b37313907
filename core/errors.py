"""The exceptions of core. Those that carry a record (*) are defined in `core.clarification`.

    ClarifyError
    ├── NotFound            no such clarification
    ├── Tampered            another program changed or deleted it after it was decided
    ├── BadInput            an id, topic or body that breaks its form
    │   └── TooLong             more characters than are allowed
    ├── ScopeViolation      an agent may not ask another, by its workflow
    │   └── BlockingNotAllowed  it may ask, but not wait
    ├── MaxRoundsExceeded*  asked further after the last round; people have it now
    ├── AgentError          a responder gave no answer that can be used
    ├── AnswerRejected      the answer does not fit the question
    │   └── ConsentRefused      an action may be accepted, but not in this way
    ├── NotCounted          an accept that does not count
    │   ├── CountsOnce          the same person accepted before; somebody else has to
    │   ├── NotToldApart        who accepts is not known well enough to be one of several
    │   └── NotSeen             it was typed, and its card may not have shown all of what is accepted
    ├── NotOpen*            the clarification takes no answer any more
    │   ├── AlreadyAnswered*    somebody else answered first
    │   ├── Superseded*         asked again since: the newer round takes the answer
    │   │   └── ArgumentsChanged*   an action's arguments were changed since
    │   └── Closed*             resolved or abandoned without an answer
    ├── IllegalTransition   a status change that the protocol does not allow
    │   └── NotAnswered*        asked further before there was an answer
    ├── LockTimeout         somebody else held the ledger for too long
    │   └── LedgersAway         the folder with all ledgers is not there
    ├── LedgerUnreadable    a ledger file did not parse and was quarantined (renamed)
    ├── LedgerUnwritable    the disk refused; nothing was changed
    │   └── LedgerInDoubt       the database went away in the middle: it may have been changed
    └── StatusUnavailable   the agent-status file cannot be used now; nothing was changed

`code` is the same in every interface (shell, Python, Slack).
"""

from __future__ import annotations

from pathlib import Path


class ClarifyError(Exception):
    """Something in the domain of clarifications went wrong."""

    code = "ERROR"


class NotFound(ClarifyError):
    code = "NOT_FOUND"

    def __init__(self, clarification_id: str) -> None:
        super().__init__(f"There is no question {clarification_id}.")
        self.clarification_id = clarification_id


class Tampered(ClarifyError):
    """What was decided is not what the ledger says now: it is handed out to nobody."""

    code = "TAMPERED"

    def __init__(self, clarification_id: str, *, deleted: bool = False) -> None:
        did = "deleted it from its ledger" if deleted else "changed it after it was decided"
        super().__init__(f"{clarification_id} can't be returned: another program {did}.")


class BadInput(ClarifyError):
    code = "BAD_INPUT"


class TooLong(BadInput):
    """The same code. The message is a hint for the writer, without their words."""

    def __init__(self, what: str, length: int, limit: int) -> None:
        super().__init__(f"The {what} has {length} characters; at most {limit} are allowed.")


class ScopeViolation(ClarifyError):
    """`allowed` are the roles that the agent may ask."""

    code = "SCOPE_VIOLATION"

    def __init__(self, message: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class BlockingNotAllowed(ScopeViolation):
    """The same code: it is the same rule of the workflow that says no."""


class AgentError(ClarifyError):
    """The message says what the responder did, without what it was asked or answered."""

    code = "AGENT_ERROR"


class AnswerRejected(ClarifyError):
    """The answer does not fit the question; the message is a hint for the person who gave it."""

    code = "ANSWER_REJECTED"


class ConsentRefused(AnswerRejected):
    code = "CONSENT_REFUSED"

    def __init__(self, clarification_id: str) -> None:
        super().__init__(
            f"{clarification_id} needs approval, which people give in Slack, on its card. "
            "Here you can only reject it: “reject”, or “reject:” and a reason."
        )


class NotCounted(ClarifyError):
    """The action may be accepted, but this accept does not count. The message is for the person."""

    code = "NOT_COUNTED"


class CountsOnce(NotCounted):
    """The same code."""

    def __init__(self, clarification_id: str, missing: int) -> None:
        others = "one more person must" if missing == 1 else f"{missing} more people must"
        super().__init__(
            f"Your approval of {clarification_id} is already recorded and counts once: {others} approve."
        )


class NotToldApart(NotCounted):
    """The same code."""

    def __init__(self, clarification_id: str) -> None:
        super().__init__(
            f"{clarification_id} needs several approvals, and Slack did not say who you are, so nothing was "
            "recorded. Please try again in a moment."
        )


class NotSeen(NotCounted):
    """The same code."""

    def __init__(self, clarification_id: str, *, edited: bool) -> None:
        why = "its arguments were changed after it was asked" if edited else "you may not have seen all of it"
        super().__init__(
            f"Nothing was recorded: you can't accept {clarification_id} by typing, because {why}. Read it and click "
            "Accept on its newest card, or open it with Answer…. You can still type reject."
        )


class IllegalTransition(ClarifyError):
    code = "ILLEGAL_TRANSITION"

    def __init__(self, clarification_id: str, old: str, new: str) -> None:
        super().__init__(f"{clarification_id} cannot go from {old} to {new}.")


class LockTimeout(ClarifyError):
    code = "LOCK_TIMEOUT"

    def __init__(self, issue: int, seconds: float, holder: str) -> None:
        super().__init__(
            f"The ledger of issue {issue} was locked for {seconds:.1f} s by {holder}. Try again."
        )
        self.issue = issue


class LedgersAway(LockTimeout):
    """No ledger can be had: the folder is gone. A LockTimeout, as callers wait for both in the same way."""

    code = "LEDGERS_AWAY"

    def __init__(self, folder: Path | None, issue: int = 0, why: str = "") -> None:
        """`folder`: None if they are in a database, which is not to be had, and `why` not."""
        ClarifyError.__init__(
            self,
            f"The folder with the ledgers, {folder}, is missing or was replaced. Check that its disk is mounted."
            if folder is not None
            else f"The ledgers' database is unavailable: {why}",
        )
        self.issue = issue


class LedgerUnreadable(ClarifyError):
    code = "LEDGER_UNREADABLE"

    def __init__(self, issue: int, path: Path, reason: str, quarantined: Path | None) -> None:
        where = f"set aside as {quarantined.name}" if quarantined else "left in place"
        super().__init__(
            f"The ledger {path.name} of issue {issue} is not a valid ledger ({reason}). It was {where}."
        )
        self.issue = issue
        self.quarantined = quarantined


class LedgerUnwritable(ClarifyError):
    code = "LEDGER_UNWRITABLE"

    def __init__(self, issue: int, reason: str) -> None:
        super().__init__(f"The ledger of issue {issue} could not be written ({reason}). Nothing was changed.")
        self.issue = issue


class LedgerInDoubt(LedgerUnwritable):
    """The same code, as callers try again what changes nothing the second time. Once it is known that it was changed, that
    is news as any other.
    """

    def __init__(self, issue: int) -> None:
        ClarifyError.__init__(
            self,
            f"The ledger of issue {issue} may or may not have been written: the database connection was lost.",
        )
        self.issue = issue


class StatusUnavailable(ClarifyError):
    code = "STATUS_UNAVAILABLE"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is unavailable ({reason}). Nothing was changed.")
