"""Results of checks, for `clarify check`, the start and /readyz. Each part of the bot exports its checks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import structlog

from bot.logs import without_secrets

_log = structlog.get_logger("clarify.http")
LISTED = 20
"""How many problems of one kind are shown."""
_ALLOWED_SKEW = timedelta(seconds=30)


class CheckResult(NamedTuple):
    """The result of one check. `fix`: what to do; `line`: where it is in the file; `warns`: it works, but is not safe."""

    ok: bool
    subject: str
    text: str
    fix: str | None = None
    line: str = ""
    warns: bool = False

    @property
    def json(self) -> dict[str, str | None]:
        """For `clarify check --json`."""
        status = "failed" if not self.ok else "warning" if self.warns else "ok"
        where = self.line or None
        return {
            "subject": self.subject,
            "status": status,
            "text": self.text,
            "fix": self.fix,
            "where": where,
        }

    @property
    def lines(self) -> Iterator[str]:
        """The lines to print."""
        where = f"{self.line}: " if self.line else ""
        mark = "✗ wrong" if not self.ok else "! warn " if self.warns else "✓ ok   "
        yield f"{mark}  {where}{self.subject}: {self.text}"
        if self.fix is not None:
            yield f"           → {self.fix}"


def right(subject: str, text: str, fix: str | None = None) -> CheckResult:
    return CheckResult(True, subject, text, fix)  # noqa: FBT003 - the field's name is in its class


def warning(subject: str, text: str, fix: str | None = None) -> CheckResult:
    return right(subject, text, fix)._replace(warns=True)


def wrong(subject: str, text: str, fix: str | None = None) -> CheckResult:
    return CheckResult(False, subject, text, fix)  # noqa: FBT003 - as above


def summary(results: Collection[CheckResult]) -> str:
    bad, warned = sum(not each.ok for each in results), sum(each.warns for each in results)
    told = f"{bad} of {len(results)} checks failed" if bad else f"All {len(results)} checks passed"
    return f"{told}, {warned} with a warning." if warned else f"{told}."


def first_of(found: Sequence[CheckResult], subject: str, like: str) -> Iterator[CheckResult]:
    """The first `LISTED` problems, and how many more `like` these there are."""
    yield from found[:LISTED]
    if len(found) > LISTED:
        yield wrong(subject, f"{len(found) - LISTED} more {like}", "fix them, or move them away")


def clock(subject: str, date_header: str | None) -> CheckResult | None:
    """Compare the Date header of a response with our clock; None without a readable one."""
    try:
        skew = parsedate_to_datetime(date_header or "") - datetime.now(UTC)
    except (TypeError, ValueError):
        return None
    seconds = round(abs(skew).total_seconds())
    if abs(skew) <= _ALLOWED_SKEW:
        return right(subject, f"within {max(1, seconds)} s of ours")
    direction = "ahead of" if skew > timedelta(0) else "behind"
    return wrong(
        subject, f"{seconds} s {direction} ours", "synchronise the clocks with NTP; deadlines depend on them"
    )


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the running bot. `look` returns in one line what is wrong, or None."""

    name: str
    look: Callable[[], str | Awaitable[str | None] | None]

    async def run(self) -> CheckResult:
        """The result, with secrets removed: network errors quote addresses."""
        try:
            why = self.look()
            if inspect.isawaitable(why):
                why = await why
        except Exception as error:  # noqa: BLE001 - a check that raises has failed
            _log.exception("health check failed", check=self.name)
            why = f"the check failed ({type(error).__name__})"
        return wrong(self.name, without_secrets(why)) if why else right(self.name, "")


async def run_all(checks: Sequence[Check]) -> list[CheckResult]:
    return await asyncio.gather(*(check.run() for check in checks))
