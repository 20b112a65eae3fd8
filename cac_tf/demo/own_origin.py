# SPDX-License-Identifier: Apache-2.0
"""Lets only the page itself ask its server, not pages of other sites."""

import ipaddress
import socket
import urllib.parse
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import MutableMapping
from typing import Any


class OwnOrigin:
    """Refuses requests that a page of another site makes in somebody's browser.

    The page of such a site may lead its own name to this machine. So a server
    may be asked for by an address, as "localhost" and by its own names alone.

    Args:
        app: ASGI application.
        host: at which it listens.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], host: str) -> None:
        self._app = app
        names = ("localhost", host, socket.gethostname(), socket.getfqdn())
        self._names = {name.lower() for name in names}

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[..., Any],
        send: Callable[..., Awaitable[None]],
    ) -> None:
        """Answers a request, with status 403 where it is refused."""
        headers = dict(scope.get("headers", ()))
        # (The start and the end of the server are no requests.)
        if scope["type"] == "lifespan" or self._is_own(
            headers.get(b"host", b""), headers.get(b"origin")
        ):
            await self._app(scope, receive, send)
            return
        text = (b"content-type", b"text/plain")
        await send(
            {"type": "http.response.start", "status": 403, "headers": [text]}
        )
        body = b"This server answers its own page alone."
        await send({"type": "http.response.body", "body": body})

    def _is_own(self, host, origin):
        if origin is not None and origin.partition(b"://")[2] != host:
            return False
        try:
            # Without the port.
            name = urllib.parse.urlsplit(b"//" + host).hostname or b""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name.decode("latin-1"))
        except ValueError:
            return name.decode("latin-1") in self._names
        return True
