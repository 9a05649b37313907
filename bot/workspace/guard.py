"""Keeps other web sites out: a browser on this machine may be led here by any page that it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

_HOSTS = {"127.0.0.1", "localhost"}


@web.middleware
async def local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse requests under a foreign host name (DNS rebinding) and those that another site's page sent."""
    if request.url.host not in _HOSTS:
        raise web.HTTPForbidden(text="this workspace answers to 127.0.0.1 and localhost only")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        raise web.HTTPForbidden(text="requests from other sites are refused")
    return await handler(request)
