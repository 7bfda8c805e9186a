"""Blocking HTTPS requests, outside of the event loop: key sets and tokens of identity providers, schemas."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener, getproxies

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 20
MAX_DETAIL_BYTES = 4096


class HttpStatusError(OSError):
    """A response with an error status; `detail` is the beginning of its body."""

    def __init__(self, text: str, status: int, detail: bytes) -> None:
        super().__init__(text)
        self.status = status
        self.detail = detail


class _NoRedirects(HTTPRedirectHandler):
    """Rejects redirects: credentials for one host must not be sent to another."""

    def redirect_request(self, *_: object) -> None:
        return None


def check_url(url: str) -> None:
    """Raise ValueError for an unencrypted address, or another scheme than HTTP."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not _is_loopback(parts.hostname or ""):
        raise ValueError(f"{url} must be https://, or http:// on this machine")


def fetch(
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    json_body: bytes | None = None,
    method: str | None = None,
    login: tuple[str, str] | None = None,
    may_be_plain: bool = False,
) -> bytes:
    """Return the document at the URL; `form` or `json_body` is sent, `login` is a name and a secret.

    The default `method` is POST with a body, otherwise GET. Raises ValueError, OSError, HttpStatusError for an error
    status.
    """
    if not may_be_plain:
        check_url(url)
    body = json_body if form is None else urlencode(form).encode()
    request = Request(url, body, method=method)  # noqa: S310 - checked, or configured by the operator
    if json_body is not None:
        request.add_header("Content-Type", "application/json")
    request.add_header("Accept", "application/json")
    if login is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(":".join(login).encode()).decode())
    proxies = {scheme: proxy for scheme, proxy in getproxies().items() if scheme == "https"}
    opener = build_opener(ProxyHandler(proxies), HTTPSHandler(context=ssl.create_default_context()), _NoRedirects())
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            data: bytes = response.read(MAX_BYTES + 1)
    except HTTPError as error:
        with error:
            detail = _beginning(error)
            text = f"{url} responded with {error.code} {error.reason}"
            raise HttpStatusError(text, error.code, detail) from None
    if len(data) > MAX_BYTES:
        raise OSError(f"the response of {url} has more than {MAX_BYTES} bytes")
    return data


def _beginning(error: HTTPError) -> bytes:
    try:
        return error.read(MAX_DETAIL_BYTES)
    except OSError:
        return b""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
