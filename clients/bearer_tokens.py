"""Sources of a client's OAUTHBEARER token: a token endpoint, a callback, or, for tests, the client itself.

The settings are Kafka's: `sasl.oauthbearer.token.endpoint.url` with client credentials (RFC 6749, section 4.4;
KIP-768). A source blocks, so connections call it outside of the event loop.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

from ..common.jaas import jaas_options
from ..protocol.errors import ErrorCode, KafkaError
from .host import now_ms

TokenSource = Callable[[], str]
"""Returns a valid token. Raises KafkaError or OSError."""

_URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT = "sasl.oauthbearer.client.credentials.client."
_OWN = "unsecuredLoginStringClaim_sub"
_USED_PERCENT = 80
"""Share of its lifetime for which a token is reused (`sasl.login.refresh.window.factor`)."""
_OWN_LIFE_S = 3600


def token_source(settings: Mapping[str, str]) -> TokenSource:
    """Create the token source of a Kafka client's settings. Raises ValueError."""
    options = jaas_options(settings.get("sasl.jaas.config", ""))
    url = settings.get(_URL)
    if not url:
        subject = options.get(_OWN)
        if not subject:
            raise ValueError(f"{_URL} is not set: this client has no source of tokens")
        return lambda: unsecured_token(subject, now_ms() // 1000)
    name = settings.get(f"{_CLIENT}id") or options.get("clientId")
    secret = settings.get(f"{_CLIENT}secret") or options.get("clientSecret")
    if not name or secret is None:
        raise ValueError(f"{_CLIENT}id and {_CLIENT}secret are not set")
    scope = settings.get("sasl.oauthbearer.scope") or options.get("scope") or ""
    return TokenEndpoint(url, (name, secret), scope)


class TokenEndpoint:
    """Requests a token and reuses it for most of its lifetime. Thread-safe: at worst each thread requests a token."""

    def __init__(self, url: str, login: tuple[str, str], scope: str = "") -> None:
        """Raise ValueError for an address to which the secret must not be sent."""
        # Imported here because most clients never need it.
        from . import http

        http.check_url(url)
        self._fetch = http.fetch
        self._url = url
        self._login = login
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._kept: tuple[str, int] = "", 0

    def __call__(self) -> str:
        """Return a token. Raises KafkaError SASL_AUTHENTICATION_FAILED."""
        token, until_ms = self._kept
        if now_ms() < until_ms:
            return token
        try:
            answer = json.loads(self._fetch(self._url, form=self._form, login=self._login))
            token = answer["access_token"]
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
                raise ValueError("the access_token is not a token")
            life_s = float(answer.get("expires_in") or 0)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = f"no token from {self._url}: {error if isinstance(error, OSError) else repr(error)}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason) from error
        self._kept = token, now_ms() + int(life_s * 10 * _USED_PERCENT)
        return token


def unsecured_token(subject: str, now_s: int) -> str:
    """Return an unsigned token, which only a broker without verification accepts. Kafka's default, for tests."""
    claims = {"sub": subject, "iat": now_s, "exp": now_s + _OWN_LIFE_S}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return b".".join((*parts, b"")).decode()
