"""Modals and Home tabs as people have them open: open, push, update, close."""

from __future__ import annotations

from . import controls
from .board import Board
from .context import TAB, Context
from .state import Json, Trigger, View


class Views:
    """The one writer of views; whoever calls has checked the payload."""

    def __init__(self, context: Context, board: Board) -> None:
        self._context = context
        self._state = context.state
        self._board = board

    def trigger(self, user: str) -> str:
        """A new trigger_id for `user`: good once, for `Options.trigger_lifetime`."""
        trigger_id = self._state.next_id("trigger.")
        expires = self._context.now() + self._context.options.trigger_lifetime
        self._state.triggers[trigger_id] = Trigger(user, expires, tab=TAB.get())
        return trigger_id

    def open(self, user: str, payload: Json, tab: str = "") -> View:
        """A new modal in place of whatever the user had open; `tab`: the browser tab that it shows in."""
        view = self._new(user, payload)
        view.tab = tab
        self._state.modals[user] = [view]
        self._changed(user)
        return view

    def push(self, user: str, payload: Json) -> View:
        """A new modal on top of the user's stack."""
        stack = self._state.modals.setdefault(user, [])
        view = self._new(user, payload)
        if stack:
            view.root_view_id, view.previous_view_id, view.tab = stack[0].id, stack[-1].id, stack[0].tab
        stack.append(view)
        self._changed(user)
        return view

    def update(self, view: View, payload: Json) -> None:
        """Other content in the same view; it gets a new hash, and what was entered is kept by ids."""
        view.payload = self._with_ids(payload)
        view.values = controls.still_there(view.payload["blocks"], view.values)
        view.hash = self._state.next_id("h.")
        view.errors = {}
        self._changed(view.user, view)

    def publish(self, user: str, payload: Json) -> View:
        """The user's Home tab, new or updated."""
        home = self._state.homes.get(user)
        if home is None:
            home = self._state.homes[user] = self._new(user, payload)
            self._changed(user, home)
        else:
            self.update(home, payload)
        return home

    def pop(self, user: str) -> View | None:
        """Close the modal on top; the one below shows again."""
        stack = self._state.modals.get(user, [])
        view = stack.pop() if stack else None
        self._changed(user)
        return view

    def clear(self, user: str) -> list[View]:
        """Close all of the user's modals; the ones that were open, the one on top last."""
        closed = self._state.modals.pop(user, [])
        self._changed(user)
        return closed

    def refuse(self, view: View, errors: dict[str, str]) -> None:
        """Show errors at the view's inputs; the view stays open."""
        view.errors = errors
        self._changed(view.user)

    def _new(self, user: str, payload: Json) -> View:
        view_id = self._state.next_id("V")
        return View(view_id, user, self._with_ids(payload), self._state.next_id("h."), view_id)

    def _with_ids(self, payload: Json) -> Json:
        return {**payload, "blocks": self._board.with_ids(payload["blocks"])}

    def _changed(self, user: str, view: View | None = None) -> None:
        kind = "home" if view is not None and view.payload["type"] == "home" else "modal"
        self._context.changes.notify(f"{kind}:{user}")
