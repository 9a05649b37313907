"""The bytes of files: `POST /upload/{ticket}` takes them as Slack's upload address does, `GET /file/{id}` shows them.

In memory only, on this machine only. What is uploaded is in no traffic panel: only the calls around it are.
"""

from __future__ import annotations

from aiohttp import web

from .api.files import MOST_BYTES
from .context import Context

_PNG = b"\x89PNG\r\n\x1a\n"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'",
    "Cache-Control": "no-store",
}


class Shelf:
    def __init__(self, context: Context) -> None:
        self._state = context.state

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/upload/{ticket}", self._take)
        app.router.add_get("/file/{id}", self._show)

    async def _take(self, request: web.Request) -> web.Response:
        ticket = request.match_info["ticket"]
        file = next((each for each in self._state.files.values() if each.ticket == ticket), None)
        if file is None:
            raise web.HTTPNotFound(text="no such upload")
        content = bytearray()
        async for chunk in request.content.iter_chunked(65_536):
            content += chunk
            if len(content) > min(file.size, MOST_BYTES):
                raise web.HTTPRequestEntityTooLarge(max_size=file.size, actual_size=len(content))
        if len(content) != file.size:
            raise web.HTTPBadRequest(text=f"{file.size} bytes were announced, {len(content)} came")
        file.content = bytes(content)
        return web.Response(text=f"OK - {len(content)}")

    async def _show(self, request: web.Request) -> web.Response:
        """A PNG as it is; everything else only as something to keep, since it could be a page."""
        file = self._state.files.get(request.match_info["id"])
        if file is None or file.content is None or file.ticket is not None:
            raise web.HTTPNotFound(text="no such file, or no longer kept")
        if file.content.startswith(_PNG):
            return web.Response(body=file.content, content_type="image/png", headers=_HEADERS)
        kept = _HEADERS | {"Content-Disposition": "attachment"}
        return web.Response(body=file.content, content_type="application/octet-stream", headers=kept)
