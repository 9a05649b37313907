"""The exceptions of the `bot` package.

    ClarifyBotError             expected trouble: shown as its message, without a traceback
    ├── ConfigurationError      the file or the environment is wrong; nothing was started
    ├── AddressInUseError       another program listens at the HTTP server's address
    ├── StorageError            the database cannot be opened, read or written
    │   ├── StorageInUseError   another instance holds it
    │   ├── LeaseLost           another bot on the same database leads now
    │   ├── StorageMoved        its contents are in another database now
    │   └── StorageUnavailable  nothing was stored this time; the same call may work later
    │       ├── StorageSilent   the database does not answer at all
    │       └── StorageInDoubt  it may have been stored: the database went away meanwhile
    ├── NotLeading              only the leader may do that, and this bot's lease is over
    ├── BackupError             a backup cannot be made or restored
    ├── SlackError              Slack cannot be used
    │   ├── SlackUnreachableError   no answer, or Slack asks to retry later
    │   ├── SlackRefusedError       Slack refused; a retry would not help
    │   └── RepliesUnread           replies written while the bot was down are still being read
    ├── RenderError             a template's output does not fit Slack
    ├── BadPress                a control's payload is not ours, or of another release
    └── TaskDiedError           a background task ended unexpectedly

The domain's exceptions are in `core.errors`. Messages say what is wrong, where, and what was expected; they never hold a
token, a question or an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar


class ClarifyBotError(Exception):
    """Something in clarify-bot could not be done."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).splitlines()[0])


class ConfigurationError(ClarifyBotError):
    """The configuration cannot be used."""

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Sequence[str]) -> None:
        """`problems`: one line each, with file, key and the expected value."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems) or None)


class AddressInUseError(ClarifyBotError):
    """Something else listens at this address; it may be free a moment later."""


class StorageError(ClarifyBotError):
    """The storage cannot be used."""


class StorageInUseError(StorageError):
    """Another instance is using this storage."""


class LeaseLost(StorageError):
    """Another bot on the same database leads now."""


class StorageMoved(StorageError):
    """The contents of this database are in another one now."""


class NotLeading(ClarifyBotError, TimeoutError):
    """This bot does not lead now; nothing was sent."""


class StorageUnavailable(StorageError):
    """Nothing was stored; try again."""


class StorageBusy(StorageUnavailable):
    """Another process holds the database; nothing was stored."""


class StorageSilent(StorageUnavailable):
    """The database does not answer; nothing was stored."""


class StorageInDoubt(StorageUnavailable):
    """The database went away while it stored this: it is unknown whether it did."""


class BackupError(ClarifyBotError):
    """A backup cannot be made or restored."""


class SlackError(ClarifyBotError):
    """Slack cannot be used."""


class SlackUnreachableError(SlackError):
    """Slack does not answer."""


class SlackRefusedError(SlackError):
    """Slack refused a call.

    `code` is Slack's error code, such as `channel_not_found`.
    """

    def __init__(self, message: str | None = None, *, code: str | None = None) -> None:
        self.code = code
        super().__init__(message)


class RepliesUnread(SlackError):
    """Replies that were written while the bot was down have not been read yet."""


class RenderError(ClarifyBotError):
    """A template gave something that Slack would not take."""


class BadPress(ClarifyBotError):
    """A control carries a payload that cannot be read."""


class TaskDiedError(ClarifyBotError):
    """A background task ended that must not end."""


@contextmanager
def driver_required() -> Iterator[None]:
    """Wraps a whole command, of which any part may be the first that needs PostgreSQL's driver, an optional extra.

    Raises:
        StorageError: it, or PostgreSQL's library that it needs, is not installed.
    """
    try:
        yield
    except ImportError as error:
        if error.name != "psycopg" and "libpq" not in str(error):
            raise
        raise StorageError(
            "PostgreSQL's driver is not installed: run pip install '.[postgres]' in the clone of clarify-bot."
        ) from error
