"""Checks of requests: they must be sent by the console's own page, under one of its names, and changes require that
page's token.

A browser lets any page send requests to this machine, and a foreign name may resolve to it (DNS rebinding). So `Host`
must be one of the console's names, `Origin`, if present, must be that host, and a request for a change has the token in
the page, which no other page can read.

With a secret token, which the page does not contain, every request for data requires it, because other users of this
machine can use the loopback interface.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..http_server import AllowedHosts, bounded, without_port

TOKEN_HEADER = "x-console-token"  # noqa: S105 - the name, not the token
MAX_BODY_BYTES = 2 << 20
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_READING = frozenset({"GET", "HEAD"})


class PageGuard:
    """ASGI middleware around the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        is_secret: bool = False,
        names: Collection[str] = (),
        any_address: bool = False,
    ) -> None:
        """`names` are accepted in addition to the local names; with `any_address` every address is, but no other name.

        With `is_secret` the token is required for all requests except the static page and its scripts.
        """
        self._app = app
        self._token = token
        self._is_secret = is_secret
        self._own = AllowedHosts.of(names, any_address=any_address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refusal is not None:
            status, why = refusal
            await JSONResponse({"error": why}, status)(scope, receive, send_guarded)
            return
        await self._app(scope, bounded(receive, MAX_BODY_BYTES), send_guarded)

    def _refusal(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._own.has_host(hosts[0]):
            return 421, "unknown host name of the console"
        origin = headers.get("origin")
        if origin is not None and not self._is_the_page(origin.lower(), hosts[0].lower()):
            return 403, "another page's request"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # A link to the page itself would be harmless, but no page contains one.
            return 403, "another page's request"
        has_token = hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self._token.encode())
        if self._is_secret and not has_token and not (path == "/" or path.startswith("/static/")):
            return 401, "this console requires its token: open the address that it printed at its start"
        if method not in _READING and not has_token:
            return 403, "the page is older than the console: reload it"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return 413, f"more than {MAX_BODY_BYTES} bytes"
        return None

    def _is_the_page(self, origin: str, host: str) -> bool:
        """A proxy under an accepted name may use TLS; local names never do."""
        return origin == f"http://{host}" or (origin == f"https://{host}" and without_port(host) in self._own.told)
