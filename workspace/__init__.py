"""A local Slack workspace, for trying out and for tests. See `server.py`."""

from __future__ import annotations

from .context import Options, Way
from .controls import ControlError
from .interactions import Outcome
from .server import Workspace, serve, stop_accepting

__all__ = ["ControlError", "Options", "Outcome", "Way", "Workspace", "serve", "stop_accepting"]
