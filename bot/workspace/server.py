"""The local Slack workspace: a Web API subset, Socket Mode or a request URL, and a page, on 127.0.0.1.

```python
async with Workspace() as ws:
    client = AsyncWebClient(BOT_TOKEN, base_url=ws.api_url)
    ...
    await ws.click(ADE, AGENTS, ts, label="Yes")
```
It is a party of its own: it imports nothing from the bot, and the bot meets it over HTTP only. Everything is in
memory and gone when it closes. `seed.py` tells what is in it at the start, `control.py` how another process
drives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aiohttp import web

from .acting import Acting
from .api.base import Office
from .api.dispatch import WebApi
from .board import Board
from .context import Context, Options
from .control import Control
from .events import Events
from .guard import local_only
from .interactions import Interactions
from .link import Link
from .modals import Views
from .page import Page
from .people import People
from .responses import Responses
from .seed import seeded
from .shelf import Shelf

HOST = "127.0.0.1"


class Workspace(Acting):
    """A running workspace; use it as an async context manager. `port` 0 takes any free one.

    `Acting` has the methods that act as a person and read what is shown. Here: where it listens, and the
    faults of its sockets.
    """

    def __init__(self, port: int = 0, options: Options | None = None) -> None:
        options = options or Options()
        context = Context(options, seeded(options.clock))
        link = Link(context)
        events = Events(context, link)
        board = Board(context, events)
        views = Views(context, board)
        self.interactions = Interactions(context, board, views, events)
        super().__init__(context, board, views, link, People(context, board, views, link, self.interactions))
        self._port = port
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None

    @property
    def url(self) -> str:
        """The page."""
        return f"http://{HOST}:{self._port}/"

    @property
    def api_url(self) -> str:
        """What `SLACK_API_URL` is to be set to."""
        return f"{self.url}api/"

    @property
    def link_url(self) -> str:
        return f"ws://{HOST}:{self._port}/link/"

    async def use_request_url(self, url: str) -> None:
        """From now on what happens goes to `url` over HTTP, instead of to Socket Mode.

        Raises:
            ControlError: it does not answer Slack's challenge.
        """
        await self.link.requests.use(url)

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self._app(), shutdown_timeout=0.5, access_log=None)
        await self._runner.setup()
        try:
            await self.accept_connections()
        except OSError:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.context.stop()
        await self.link.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def accept_connections(self) -> None:
        """Listen; after `refuse_connections` again on the same port."""
        if self._runner is None or self._site is not None:
            return
        self._site = web.TCPSite(self._runner, HOST, self._port, reuse_address=True)
        await self._site.start()
        self._port = self._runner.addresses[0][1]
        self.interactions.response_base = f"http://{HOST}:{self._port}"
        self.state.team["url"] = self.url
        self.context.changes.notify("record")

    async def refuse_connections(self) -> None:
        """Be gone: cut every connection and listen no more, until `accept_connections`."""
        if self._runner is None or self._site is None:
            return
        await self._site.stop()
        self._site = None
        server = self._runner.server
        for handler in list(server.connections) if server is not None else []:
            if handler.transport is not None:
                handler.transport.abort()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[local_only], client_max_size=4 * 1024 * 1024)
        office = Office(self.context, self.board, self.link, self.view_desk, lambda: self.link_url)
        api = WebApi(office)
        responses = Responses(self.context, self.board, self.interactions)
        app.router.add_route("GET", "/api/{method}", api.handle)
        app.router.add_route("POST", "/api/{method}", api.handle)
        app.router.add_get("/link/", self.link.handle)
        app.router.add_post("/response/{key}", responses.handle)
        self.context.traffic.add_routes(app)  # before /control/{action}
        Control(self).add_routes(app)
        Shelf(self.context).add_routes(app)
        Page(self).add_routes(app)
        return app


async def serve(port: int, ready: Callable[[Workspace], None], options: Options | None = None) -> None:
    """Run a workspace until cancelled; `ready` is told once it listens.

    Raises:
        OSError: the port is taken.
    """
    async with Workspace(port, options) as workspace:
        ready(workspace)
        await asyncio.Event().wait()
