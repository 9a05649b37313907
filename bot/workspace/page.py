"""The page; see below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from .server import Workspace


class Page:
    """Serves the page."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def add_routes(self, app: web.Application) -> None:
        """To come."""
