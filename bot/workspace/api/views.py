"""`views.*`: open, push, update and publish.

Source: docs.slack.dev, the methods' pages; `hash` protects a view from being overwritten unseen.
"""

from __future__ import annotations

import json

from bot.workspace import rules
from bot.workspace.payloads import view_json
from bot.workspace.state import Json, Trigger, View

from .base import ApiError, Args, Caller, Method, Office

MOST_VIEWS = 3


async def open_(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    payload = checked(args)
    trigger = _trigger(office, args)
    view = office.views.open(trigger.user, payload, trigger.tab)
    return {"view": view_json(office.context.state, view)}


async def push(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    payload = checked(args)
    user = _trigger(office, args).user
    if len(office.context.state.views_of(user)) >= MOST_VIEWS:
        raise ApiError("push_limit_reached")
    return {"view": view_json(office.context.state, office.views.push(user, payload))}


async def update(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    view = _find(office, args)
    _check_hash(office, args, view)
    office.views.update(view, checked(args, kind=str(view.payload["type"])))
    return {"view": view_json(office.context.state, view)}


async def publish(office: Office, caller: Caller, args: Args) -> Json:  # noqa: ARG001 — every method has this signature
    user = office.person(args.text("user_id"))
    payload = checked(args, kind="home")
    if user.deleted or user.is_bot or not office.context.state.app.home_tab:
        raise ApiError("not_enabled")
    state = office.context.state
    _check_hash(office, args, state.homes.get(user.id))
    others = [v for owner, v in state.homes.items() if owner != user.id]
    external_id = payload.get("external_id")
    if external_id and external_id in [v.payload.get("external_id") for v in others]:
        raise ApiError("duplicate_external_id")
    return {"view": view_json(office.context.state, office.views.publish(user.id, payload))}


def checked(args: Args, kind: str = "modal") -> Json:
    """The view as it was sent, found right by the rules."""
    view = args.structure("view")
    if not isinstance(view, dict):
        raise ApiError("invalid_arguments", messages=["missing required field: view"])
    if len(json.dumps(view, ensure_ascii=False).encode()) > rules.VIEW_BYTES:
        raise ApiError("view_too_large")
    problems = rules.check_view(view)
    if view.get("type") != kind:
        problems.insert(0, f"must be a view of type {kind} [json-pointer:/view/type]")
    if problems:
        raise ApiError("invalid_arguments", messages=problems)
    return view


def _check_hash(office: Office, args: Args, view: View | None) -> None:
    """A hash that was sent has to be the view's present one; a Home tab never published has none."""
    sent = args.text("hash", "")
    if sent and view is None:
        raise ApiError("hash_conflict")
    if sent and view is not None and sent != view.hash:
        raise ApiError("hash_conflict", view=view_json(office.context.state, view))


def _trigger(office: Office, args: Args) -> Trigger:
    """The trigger that was sent; good once, and for three seconds."""
    trigger = office.context.state.triggers.get(args.text("trigger_id"))
    if trigger is None:
        raise ApiError("invalid_trigger_id")
    if trigger.used:
        raise ApiError("exchanged_trigger_id")
    if office.context.now() > trigger.expires:
        raise ApiError("expired_trigger_id")
    trigger.used = True
    return trigger


def _find(office: Office, args: Args) -> View:
    view_id, external_id = args.text("view_id", ""), args.text("external_id", "")
    if not view_id and not external_id:
        raise ApiError("invalid_arguments", messages=["missing required field: view_id"])
    state = office.context.state
    view = state.view(view_id)
    if view is None and external_id:
        views = [v for stack in state.modals.values() for v in stack]
        view = next((v for v in views if v.payload.get("external_id") == external_id), None)
    if view is None:
        raise ApiError("not_found")
    return view


METHODS = {
    "views.open": Method(open_, None, "tier4"),
    "views.push": Method(push, None, "tier4"),
    "views.update": Method(update, None, "tier4"),
    "views.publish": Method(publish, None, "tier4"),
}
