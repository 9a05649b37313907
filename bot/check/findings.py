"""What `clarify check` found, as values; and the lines that tell it. No network, no files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

NEEDED_SCOPES = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "groups:history",
        "groups:read",
        "im:history",
        "im:write",
        "usergroups:read",
        "users:read",
    }
)
EMAIL_SCOPE = "users:read.email"
PICTURE_SCOPE = "files:write"  # the bot works without it
ALLOWED_SKEW = timedelta(
    seconds=30
)  # a Date header is exact to a second; half a minute is a clock that drifts


class Finding(NamedTuple):
    """One thing that was looked at. `mend` tells how to put it right, `line` where it stands in the file."""

    ok: bool
    subject: str
    text: str
    mend: str | None = None
    line: str = ""


def right(subject: str, text: str) -> Finding:
    return Finding(ok=True, subject=subject, text=text)


def wrong(subject: str, text: str, mend: str) -> Finding:
    return Finding(ok=False, subject=subject, text=text, mend=mend)


def lines(finding: Finding) -> Iterator[str]:
    """Tell a finding in sign and words, and how to mend what is wrong."""
    where = f"{finding.line}: " if finding.line else ""
    yield f"{'✓ ok   ' if finding.ok else '✗ wrong'}  {where}{finding.subject}: {finding.text}"
    if finding.mend is not None:
        yield f"           → {finding.mend}"


def summary(findings: Collection[Finding]) -> str:
    bad = sum(not finding.ok for finding in findings)
    return f"{bad} of {len(findings)} checks failed." if bad else f"All {len(findings)} checks passed."


def scopes(header: str | None, *, email: bool) -> Finding:
    """Compare the `x-oauth-scopes` header of a response with what the bot needs."""
    subject = "SLACK_BOT_TOKEN scopes"
    needed = NEEDED_SCOPES | ({EMAIL_SCOPE} if email else frozenset())
    given = {scope.strip() for scope in (header or "").split(",")}
    missing = sorted(needed - given)
    if missing:
        mend = "add them (OAuth & Permissions, or paste manifest.yml anew) and reinstall the app"
        return wrong(subject, f"missing: {', '.join(missing)}", mend)
    if PICTURE_SCOPE not in given:
        text = f"all {len(needed)} that are needed, but not {PICTURE_SCOPE}: “digest png” can send no picture"
        return Finding(
            ok=True, subject=subject, text=text, mend=f"for pictures add {PICTURE_SCOPE} and reinstall"
        )
    return right(subject, f"all {len(needed)} that are needed")


def channel(subject: str, channel_id: str, answer: Mapping[str, Any]) -> Finding:
    """Judge the answer of `conversations.info`."""
    if not answer.get("ok"):
        return refused(subject, answer, channel_id)
    found = answer["channel"]
    name = f"{channel_id} (#{found.get('name', '?')})"
    if found.get("is_archived"):
        return wrong(subject, f"{name} is archived", "unarchive it, or name another channel")
    if not found.get("is_member"):
        return wrong(
            subject, f"the bot is not in {name}", f"invite it: /invite @clarify in #{found.get('name', '?')}"
        )
    return right(subject, f"{name}, and the bot is in it")


def person(subject: str, user_id: str, answer: Mapping[str, Any]) -> Finding:
    """Judge the answer of `users.info`."""
    if not answer.get("ok"):
        return refused(subject, answer, user_id)
    user = answer["user"]
    profile = user.get("profile") or {}
    name = f"{user_id} ({profile.get('real_name') or user.get('real_name') or user.get('name', '?')})"
    if user.get("deleted"):
        return wrong(subject, f"{name} is deactivated", "name somebody else in clarify.toml")
    if user.get("is_bot"):
        return wrong(subject, f"{name} is a bot", "name a person in clarify.toml")
    return right(subject, f"{name} is there")


def group(subject: str, group_id: str, answer: Mapping[str, Any]) -> Finding:
    """Judge the answer of `usergroups.users.list`."""
    if not answer.get("ok"):
        return refused(subject, answer, group_id)
    members: Collection[str] = answer.get("users") or ()
    if not members:
        return wrong(
            subject,
            f"user group {group_id} has no members",
            "add people to it, or name others in clarify.toml",
        )
    return right(subject, f"user group {group_id} has {len(members)} member{'s' if len(members) > 1 else ''}")


def history(retry_after: str | None) -> Finding:
    """Slack let the history be read no second time. The bot works, but reads slowly what it missed."""
    again = f" (again in {retry_after} s)" if retry_after and retry_after.isdigit() else ""
    text = (
        f"Slack refuses to be read twice in a row{again}: it seems to allow this app one history call a minute. "
        "Replies written while the bot is away are found late"
    )
    mend = "use an app of your own (manifest.yml) in place of one that is sold outside Slack's Marketplace"
    return Finding(ok=True, subject="history", text=text, mend=mend)


_MENDS = {
    "invalid_auth": "take the token from the app's page, Install App / App-Level Tokens",
    "not_authed": "take the token from the app's page, Install App / App-Level Tokens",
    "account_inactive": "reinstall the app: its token was revoked",
    "token_revoked": "reinstall the app: its token was revoked",
    "missing_scope": "add the scope named above and reinstall the app",
    "channel_not_found": "check the id; a private channel is seen only after /invite @clarify",
    "user_not_found": "check the id, or name somebody whom Slack tells this app about",
    "user_not_visible": "check the id, or name somebody whom Slack tells this app about",
    "no_such_subteam": "check the id; a disabled group has to be enabled again",
    "subteam_not_found": "check the id; a disabled group has to be enabled again",
    "not_allowed_token_type": "SLACK_BOT_TOKEN begins with xoxb-, SLACK_APP_TOKEN with xapp-",
    "ratelimited": "try again in a minute",
    "unreachable": "check the network, SLACK_API_URL, and https://slack-status.com",
}


def refused(subject: str, answer: Mapping[str, Any], name: str = "") -> Finding:
    """Tell an error of Slack about what `name` names; ours for no answer at all is `unreachable`, with `reason`."""
    code = str(answer.get("error", "unknown_error"))
    needed = f" (needs {answer['needed']})" if answer.get("needed") else ""
    text = (
        f"Slack cannot be reached: {answer.get('reason')}"
        if code == "unreachable"
        else f"{name and f'{name}: '}Slack says {code}{needed}"
    )
    return wrong(subject, text, _MENDS.get(code, f"see https://docs.slack.dev/reference/methods for {code}"))


def clock(subject: str, date_header: str | None, now: datetime) -> Finding | None:
    """Compare the Date header of a response with our clock; None where it gave none."""
    try:
        theirs = parsedate_to_datetime(date_header or "")
        skew = theirs - now
    except (TypeError, ValueError):
        return None
    seconds = round(abs(skew).total_seconds())
    if abs(skew) <= ALLOWED_SKEW:
        return right(subject, f"within {max(1, seconds)} s of ours")
    direction = "ahead of" if skew > timedelta(0) else "behind"
    return wrong(
        subject, f"{seconds} s {direction} ours", "let NTP set the clocks: deadlines are counted by them"
    )
