"""The workspace as it starts: who is there, which channels, which tokens. Tests may rely on every name here.

| id | what |
| --- | --- |
| T0LOCAL, T0EXTERN | our team; the team that external people come from |
| U0FOLAKE, U0ADE | full members |
| U0GIO | guest (`is_restricted`) |
| U0EVA | external person (team T0EXTERN, `is_stranger`) |
| U0ONCALL | Noor, a full member who is on call |
| U0GONE | deactivated |
| U0BOT, B0CLARIFY, A0CLARIFY | the bot's user, bot id and app id |
| U0OTHERBOT | another app's bot |
| S0PLATFORM | user group @platform: U0ONCALL, U0ADE |
| C0AGENTS, C0FALLBACK | #agents, #clarify-fallback: the bot is a member |
| C0RANDOM | #random: the bot is not a member |
| C0OLD | #old-questions: archived |

The app has the command /clarify, the message shortcut "Use as answer" (callback id `clarify.use_as_answer`)
and a Home tab. Everybody is present (`active`) at the start.
"""

from __future__ import annotations

from collections.abc import Callable

from .state import App, Channel, Shortcut, State, User, UserGroup

TEAM = "T0LOCAL"
EXTERNAL_TEAM = "T0EXTERN"
BOT_TOKEN = "xoxb-local-bot"  # noqa: S105 — a made-up token, documented for everybody
APP_TOKEN = "xapp-local-app"  # noqa: S105 — a made-up token, documented for everybody
SIGNING_SECRET = "local-signing-secret"  # noqa: S105 — as well
BOT_USER = "U0BOT"
BOT_ID = "B0CLARIFY"
APP_ID = "A0CLARIFY"
OTHER_BOT_USER = "U0OTHERBOT"
FOLAKE, ADE, GIO, EVA, ONCALL, GONE = "U0FOLAKE", "U0ADE", "U0GIO", "U0EVA", "U0ONCALL", "U0GONE"
AGENTS, FALLBACK, RANDOM, ARCHIVED = "C0AGENTS", "C0FALLBACK", "C0RANDOM", "C0OLD"
PLATFORM = "S0PLATFORM"
USE_AS_ANSWER = "clarify.use_as_answer"

BOT_SCOPES = frozenset(
    {
        "chat:write",
        "commands",
        "app_mentions:read",
        "channels:read",
        "groups:read",
        "channels:history",
        "groups:history",
        "im:history",
        "im:write",
        "users:read",
        "users:read.email",
        "usergroups:read",
    }
)
APP_SCOPES = frozenset({"connections:write"})


def seeded(clock: Callable[[], float]) -> State:
    """A fresh state with the content that this module's table describes."""
    state = State(
        app=App(
            APP_ID, BOT_ID, BOT_USER, "clarify", ("/clarify",), (Shortcut(USE_AS_ANSWER, "Use as answer"),)
        ),
        team={"id": TEAM, "name": "Local workspace", "domain": "local", "url": "https://local.slack.com/"},
        clock=clock,
    )
    state.tokens = {BOT_TOKEN: BOT_SCOPES, APP_TOKEN: APP_SCOPES}
    for user in _users():
        state.users[user.id] = user
    everyone = [u.id for u in state.users.values() if not u.deleted]
    people = [u for u in everyone if u not in {BOT_USER, OTHER_BOT_USER}]
    created = int(clock())
    state.channels = {
        AGENTS: Channel(AGENTS, "agents", list(everyone), created=created),
        FALLBACK: Channel(FALLBACK, "clarify-fallback", [FOLAKE, ADE, ONCALL, BOT_USER], created=created),
        RANDOM: Channel(RANDOM, "random", [u for u in people if u != EVA], created=created),
        ARCHIVED: Channel(ARCHIVED, "old-questions", [FOLAKE, BOT_USER], is_archived=True, created=created),
    }
    state.groups = {PLATFORM: UserGroup(PLATFORM, "platform", "Platform", [ONCALL, ADE])}
    return state


def _users() -> list[User]:
    return [
        User(FOLAKE, "folake", "Folake", TEAM, "folake@local.example"),
        User(ADE, "ade", "Ade", TEAM, "ade@local.example"),
        User(GIO, "gio", "Gio", TEAM, "gio@guest.example", is_restricted=True),
        User(EVA, "eva", "Eva", EXTERNAL_TEAM, "eva@extern.example", is_stranger=True),
        User(ONCALL, "noor", "Noor", TEAM, "noor@local.example"),
        User(GONE, "gone", "Gone", TEAM, "gone@local.example", deleted=True),
        User(BOT_USER, "clarify", "clarify", TEAM, is_bot=True),
        User(OTHER_BOT_USER, "otherbot", "Other bot", TEAM, is_bot=True),
    ]
