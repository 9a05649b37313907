"""Imported by the server that processes are forked from: all that commands import late, with templates compiled."""

# ruff: noqa: F401 - imported to be there

from __future__ import annotations

import gc

import anyio._backends._asyncio
import apprise
import pydantic.v1
import rich.cells
import rich.table
import rich.text

import bot.app
import bot.check
import bot.cli.app
import bot.cli.changes
import bot.cli.copies
import bot.cli.lists
import bot.cli.reports
import bot.cli.running
import bot.http
import bot.people.access
import bot.responders
import bot.web.clarifications
import bot.web.health
import bot.web.push
import bot.web.server
import bot.web.tools
import core.hub
import core.router
import tests.kit.processes
import workspace.demo.stage
import workspace.server
from bot.views.render import Renderer

# As `tests.conftest` has it in its own process: a machine that stands still refuses nobody.
bot.people.access.LOOK_UPS = 30.0
core.router.Router.__init__.__defaults__ = (30.0,)

Renderer("")
bot.http._ssl_context()
gc.freeze()  # what stands here stays: the children need not look at it
