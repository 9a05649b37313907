"""`auth.*`, `apps.*`, `api.test`, `users.*`, `usergroups.*`, `bots.*`, `reactions.*`."""

from __future__ import annotations

from bot.workspace.payloads import bot_json, group_json, user_json
from bot.workspace.state import Json

from .base import ApiError, Args, Caller, Method, Office, page


async def api_test(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    if "error" in args:
        raise ApiError(args.text("error"), args=args.raw())
    return {"args": args.raw()}


async def auth_test(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    """With an org-wide installation `team_id` is the organization's."""
    state = office.context.state
    return {
        "url": state.team["url"],
        "team": state.team["name"],
        "user": state.users[caller.user].name,
        "team_id": state.enterprise if state.org_wide else state.team["id"],
        "user_id": caller.user,
        "bot_id": state.app.bot_id,
        "is_enterprise_install": state.org_wide,
    } | ({"enterprise_id": state.enterprise} if state.enterprise else {})


async def auth_teams(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    """The workspaces that the token is good for."""
    team = office.context.state.team
    return {
        "teams": [{"id": team["id"], "name": team["name"]}],
        "response_metadata": {"next_cursor": ""},
    }


async def users_info(office: Office, caller: Caller, args: Args) -> Json:
    user = office.person(args.text("user"))
    if user.hidden:
        raise ApiError(user.hidden)
    return {"user": user_json(office.context.state, user, email="users:read.email" in caller.scopes)}


async def get_presence(office: Office, caller: Caller, args: Args) -> Json:
    """Of others no more than `presence`; the caller's own with how it came about.

    Source: docs.slack.dev, "users.getPresence".
    """
    user = office.person(args.text("user", caller.user))
    presence = "away" if user.deleted else user.presence
    if user.id != caller.user:
        return {"presence": presence}
    return {
        "presence": presence,
        "online": presence == "active",
        "auto_away": False,
        "manual_away": presence == "away",
        "connection_count": len(office.link.connections),
        "last_activity": int(office.context.now()),
    }


async def users_list(office: Office, caller: Caller, args: Args) -> Json:
    state = office.context.state
    email = "users:read.email" in caller.scopes
    rows = [user_json(state, user, email=email) for user in state.users.values()]
    chosen, cursor = page(rows, args, default=len(rows) or 1, most=1000)
    return {
        "members": chosen,
        "cache_ts": int(office.context.now()),
        "response_metadata": {"next_cursor": cursor},
    }


async def lookup_by_email(office: Office, caller: Caller, args: Args) -> Json:
    caller.need("users:read.email")
    state = office.context.state
    email = args.text("email").lower()
    for user in state.users.values():
        if user.email.lower() == email and user.team_id == state.team["id"] and not user.deleted:
            return {"user": user_json(state, user, email=True)}
    raise ApiError("users_not_found")


async def usergroups_list(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    groups = [
        g for g in office.context.state.groups.values() if not g.disabled or args.flag("include_disabled")
    ]
    return {
        "usergroups": [group_json(office.context.state, g, users=args.flag("include_users")) for g in groups]
    }


async def usergroups_users(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    """A token of an org-wide installation has to say of which workspace."""
    state = office.context.state
    if state.org_wide and args.text("team_id", "") != state.team["id"]:
        raise ApiError("invalid_team" if "team_id" in args else "missing_argument")
    group = office.context.state.groups.get(args.text("usergroup"))
    if group is None or (group.disabled and not args.flag("include_disabled")):
        raise ApiError("no_such_subteam")
    return {"users": list(group.users)}


async def bots_info(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    if args.text("bot", "") not in {"", office.context.state.app.bot_id}:
        raise ApiError("bot_not_found")
    return {"bot": bot_json(office.context.state)}


async def connections_open(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    return {"url": f"{office.link_url()}?ticket={office.link.new_ticket()}"}


async def reactions_add(office: Office, caller: Caller, args: Args) -> Json:
    channel = office.channel(args.text("channel"), caller)
    message = channel.messages.get(args.text("timestamp"))
    if message is None:
        raise ApiError("message_not_found")
    users = message.reactions.setdefault(args.text("name").strip(":"), [])
    if caller.user in users:
        raise ApiError("already_reacted")
    users.append(caller.user)
    office.context.changes.notify(f"channel:{channel.id}")
    return {}


METHODS = {
    "api.test": Method(api_test, None, "special", auth=False),
    "auth.test": Method(auth_test, None, "special"),
    "auth.teams.list": Method(auth_teams, None, "tier2"),
    "apps.connections.open": Method(connections_open, "connections:write", "tier1", app_token=True),
    "users.info": Method(users_info, "users:read", "tier4"),
    "users.getPresence": Method(get_presence, "users:read", "tier3"),
    "users.list": Method(users_list, "users:read", "tier2"),
    "users.lookupByEmail": Method(lookup_by_email, "users:read.email", "tier3"),
    "usergroups.list": Method(usergroups_list, "usergroups:read", "tier2"),
    "usergroups.users.list": Method(usergroups_users, "usergroups:read", "tier2"),
    "bots.info": Method(bots_info, "users:read", "tier3"),
    "reactions.add": Method(reactions_add, "reactions:write", "tier3"),
}
