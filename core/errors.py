"""The exceptions of core. Those that carry a record (*) are defined in `core.clarification`.

    ClarifyError
    ├── NotFound            no such clarification
    ├── Tampered            it does not agree with the receipt of its decision
    ├── BadInput            an invalid id, topic or body
    │   └── TooLong             more characters than are allowed
    ├── ScopeViolation      the workflow does not let this agent ask that one
    │   └── BlockingNotAllowed  it may ask, but not wait
    ├── MaxRoundsExceeded*  a follow-up after the last round; people have it now
    ├── AgentError          a responder gave no usable answer
    ├── AnswerRejected      the answer does not fit the question
    │   ├── ConsentRefused      an action that cannot be accepted in this way
    │   └── ReasonWanted        an accept without a reason, where its route wants one
    ├── NotCounted          an accept that does not count
    │   ├── CountsOnce          the same person accepted before; another person must
    │   ├── NotToldApart        several must accept, or not this person, and we do not know who this is
    │   │   └── ApprovedMeanwhile*  someone accepted after it was looked up who did
    │   ├── OwnRequest          the agent works for this person; another person must accept
    │   ├── NoRequester         someone else must accept, and it is not known for whom the agent works
    │   └── NotSeen             a typed accept; the card may not have shown the whole action
    ├── NotOpen*            the clarification can no longer be answered
    │   ├── AlreadyAnswered*    another answer was first
    │   ├── Superseded*         the question was asked again: only the newer round can be answered
    │   │   └── ArgumentsChanged*   another person edited the action's arguments
    │   └── Closed*             resolved or abandoned without an answer
    ├── IllegalTransition   a status change that the protocol does not allow
    │   └── NotAnswered*        a follow-up before the answer
    ├── LockTimeout         another process held the ledger for too long
    │   └── LedgersAway         the folder with all ledgers, or their database, is unavailable
    ├── LedgerUnreadable    a ledger file did not parse and was quarantined (renamed)
    ├── LedgerUnwritable    the disk refused; nothing was changed
    │   └── LedgerInDoubt       the database connection was lost: it may have been changed
    └── StatusUnavailable   the agent-status file cannot be used now; nothing was changed

`code` is the same in every interface (shell, Python, Slack).
"""

from __future__ import annotations

from pathlib import Path


class ClarifyError(Exception):
    """The base of all errors of the domain."""

    code = "ERROR"


class NotFound(ClarifyError):
    code = "NOT_FOUND"

    def __init__(self, clarification_id: str) -> None:
        super().__init__(f"There is no question {clarification_id}.")
        self.clarification_id = clarification_id


class Tampered(ClarifyError):
    """A decided record does not agree with its receipt, so it is not returned."""

    code = "TAMPERED"

    def __init__(self, clarification_id: str) -> None:
        super().__init__(
            f"{clarification_id} was changed after it was decided, so its answer is not handed out."
        )


class BadInput(ClarifyError):
    code = "BAD_INPUT"


class TooLong(BadInput):
    """Has the code of BadInput. The message is a hint for the writer and does not repeat the text."""

    def __init__(self, what: str, length: int, limit: int) -> None:
        super().__init__(f"The {what} has {length} characters; at most {limit} are allowed.")


class ScopeViolation(ClarifyError):
    """`allowed`: the roles that the agent may ask."""

    code = "SCOPE_VIOLATION"

    def __init__(self, message: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class BlockingNotAllowed(ScopeViolation):
    """Has the code of ScopeViolation: the same rule of the workflow forbids both."""


class AgentError(ClarifyError):
    """The message says what the responder did, without the question or the answer."""

    code = "AGENT_ERROR"


class AnswerRejected(ClarifyError):
    """The answer does not fit the question. The message is a hint for the person."""

    code = "ANSWER_REJECTED"


class ConsentRefused(AnswerRejected):
    code = "CONSENT_REFUSED"

    def __init__(self, clarification_id: str) -> None:
        super().__init__(
            f"{clarification_id} needs approval, which people give in Slack, on its card. "
            "Here you can only reject it: “reject”, or “reject:” and a reason."
        )


class ReasonWanted(AnswerRejected):
    """Has the code of AnswerRejected: with a reason, the answer would fit."""

    def __init__(self, least: int) -> None:
        super().__init__(
            f"To accept this, give a reason of at least {least} characters, in words: “accept: because …”, or click Accept on "
            "its card."
        )


class NotCounted(ClarifyError):
    """This accept does not count, although the action can be accepted. The message is for the person."""

    code = "NOT_COUNTED"


class CountsOnce(NotCounted):
    def __init__(self, clarification_id: str, missing: int) -> None:
        others = "one more person must" if missing == 1 else f"{missing} more people must"
        super().__init__(
            f"Your approval of {clarification_id} is already recorded and counts once: {others} approve."
        )


class NotToldApart(NotCounted):
    def __init__(self, clarification_id: str, is_about: str = "who you are") -> None:
        super().__init__(
            f"{clarification_id} needs approval by different people, and Slack did not say {is_about}, so nothing was "
            "recorded. Please try again in a moment."
        )


class OwnRequest(NotCounted):
    def __init__(self, clarification_id: str) -> None:
        super().__init__(
            f"You can't approve {clarification_id}, because the agent works for you: someone else must approve it. "
            "You can still reject it."
        )


class NoRequester(NotCounted):
    def __init__(self, clarification_id: str) -> None:
        super().__init__(
            f"No one can approve {clarification_id}: someone other than the person its agent works for must, and who that "
            "is isn't configured. You can still reject it."
        )


class NotSeen(NotCounted):
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

    def __init__(self, what: int | str, seconds: float, holder: str) -> None:
        """`what`: the issue of a ledger file, or a name."""
        super().__init__(f"{_named(what)} was locked for {seconds:.1f} s by {holder}. Try again.")


class LedgersAway(LockTimeout):
    """All records, or all ledger files, are unavailable. A LockTimeout, because callers retry both in the same way."""

    code = "LEDGERS_AWAY"

    def __init__(self, folder: Path | None, why: str = "") -> None:
        """`folder`: of the ledger files; None: it is the database that is unavailable, for the reason `why`."""
        ClarifyError.__init__(
            self,
            f"The folder with the ledgers, {folder}, is missing or was replaced. Check that its disk is mounted."
            if folder is not None
            else f"The database is unavailable: {why}",
        )


class LedgerUnreadable(ClarifyError):
    code = "LEDGER_UNREADABLE"

    def __init__(self, issue: int, path: Path, reason: str, quarantined: Path | None) -> None:
        where = f"set aside as {quarantined.name}" if quarantined else "left in place"
        super().__init__(
            f"The ledger {path.name} of issue {issue} is not a valid ledger ({reason}). It was {where}."
        )
        self.issue = issue
        self.quarantined = quarantined
        self.what = f"The ledger of issue {issue}"
        self.name = (quarantined or path).name


class RecordUnreadable(LedgerUnreadable):
    """Somebody else wrote into its row."""

    def __init__(self, clarification: str, issue: int) -> None:
        ClarifyError.__init__(
            self, f"{clarification} in the database is not a valid clarification. It was left unchanged."
        )
        self.issue = issue
        self.quarantined = None
        self.what = self.name = clarification


class LedgerUnwritable(ClarifyError):
    code = "LEDGER_UNWRITABLE"

    def __init__(self, what: int | str, reason: str) -> None:
        """`what`: the issue of a ledger file, or a name."""
        super().__init__(f"{_named(what)} could not be written ({reason}). Nothing was changed.")


class LedgerInDoubt(LedgerUnwritable):
    """Has the code of LedgerUnwritable: callers retry, and a repeated change has no effect. A write that did succeed is
    reported as a change when the bot next reads the record.
    """

    def __init__(self, what: str) -> None:
        ClarifyError.__init__(
            self, f"{_named(what)} may or may not have been written: the database connection was lost."
        )


class StatusUnavailable(ClarifyError):
    code = "STATUS_UNAVAILABLE"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is unavailable ({reason}). Nothing was changed.")


def _named(what: int | str) -> str:
    return f"The ledger of issue {what}" if isinstance(what, int) else what[:1].upper() + what[1:]
