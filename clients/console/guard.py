"""Who is answered: only a page of our own, under a name that is ours, and who changes something has that page's token.

A browser lets any page send requests to this machine, and a name that a stranger owns may lead here (DNS rebinding). So
`Host` is one of the names we are reached by, `Origin`, where there is one, is that host, and a request that changes
something carries the token that is in the page, which no foreign page can read.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..http_server import OwnNames, bounded, without_port

TOKEN_HEADER = "x-console-token"  # noqa: S105 - its name, not the token
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
    """ASGI around the application."""

    def __init__(self, app: ASGIApp, *, token: str, names: Collection[str] = (), any_address: bool = False) -> None:
        """`names` beside the local ones are ours, too; with `any_address` so is every address, but no other name."""
        self._app = app
        self._token = token
        self._own = OwnNames.of(names, any_address=any_address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
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

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            status, why = refusal
            await JSONResponse({"error": why}, status)(scope, receive, send_guarded)
            return
        await self._app(scope, bounded(receive, MAX_BODY_BYTES), send_guarded)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._own.has_host(hosts[0]):
            return 421, "this name is not the console's"
        origin = headers.get("origin")
        if origin is not None and not self._is_the_page(origin.lower(), hosts[0].lower()):
            return 403, "another page's request"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # A link to the page itself would be harmless, but nothing links to it.
            return 403, "another page's request"
        token = headers.get(TOKEN_HEADER, "").encode()
        if method not in _READING and not hmac.compare_digest(token, self._token.encode()):
            return 403, "the page is older than the console: load it again"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return 413, f"more than {MAX_BODY_BYTES} bytes"
        return None

    def _is_the_page(self, origin: str, host: str) -> bool:
        """Whoever stands in front of us, under a name that we were told, may speak TLS; nobody does on this machine."""
        return origin == f"http://{host}" or (origin == f"https://{host}" and without_port(host) in self._own.told)
