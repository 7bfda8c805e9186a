"""Checks the tokens of OAUTHBEARER clients (RFC 7519, KIP-255, KIP-768).

Kafka's OAuthBearerValidatorCallbackHandler with its settings `sasl.oauthbearer.…`. Tokens that nobody has signed are
believed only where `sasl.server.callback.handler.class` names the handler of Kafka's that does so.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jwt

from ...protocol.jaas import jaas_options
from ..config.keys.catalogue import BROKER_KEYS
from ..config.keys.validators import ConfigError
from .key_set import Key, KeySet

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config.broker_config import BrokerConfig
    from ..config.keys.definition import ConfigValue
    from ..runtime.ports import Work

LANE = "tokens"
"""On which signatures are checked: a large token or a key of a large curve takes up to a millisecond."""
LONGEST_TOKEN = 32 * 1024
LONGEST_NAME = 1024
HANDLER, URL = "sasl.server.callback.handler.class", "sasl.oauthbearer.jwks.endpoint.url"
_SIGNED, _UNSECURED = "OAuthBearerValidatorCallbackHandler", "OAuthBearerUnsecuredValidatorCallbackHandler"
_NOT_SOUND = (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError)
_JWS = jwt.PyJWS()
"""Signatures alone: claims are checked here, by the broker's clock and Kafka's settings."""


class TokenRefusedError(Exception):
    """A token is not believed; the text is for the log."""


class Bearer(NamedTuple):
    """Whose token it is."""

    name: str
    expires_ms: int


class TokenValidator:
    """Of one listener. Loop-thread only. Settings are read once, at start, as Kafka reads them."""

    def __init__(
        self, config: BrokerConfig, listener: str, work: Work, now: Callable[[], float], now_ms: Callable[[], int]
    ) -> None:
        """Raises ConfigError if there is nothing by which to tell a good token from a bad one."""
        self._config = config
        self._prefix = f"listener.name.{listener.lower()}"
        self._listener = listener
        self._work = work
        self._now_ms = now_ms
        self._subject = str(self._value("sasl.oauthbearer.sub.claim.name")).strip() or "sub"
        self._skew_s = cast(int, self._value("sasl.oauthbearer.clock.skew.seconds"))
        audiences = cast("tuple[str, ...] | None", self._value("sasl.oauthbearer.expected.audience"))
        self._audiences = frozenset(audiences or ())
        self._issuer = self._value("sasl.oauthbearer.expected.issuer")
        handler = str(self._value(HANDLER) or "").rpartition(".")[2]
        url = str(self._value(URL) or "")
        if handler not in ("", _SIGNED, _UNSECURED):
            raise ConfigError(HANDLER, handler, f"listener {listener}: it is neither {_SIGNED} nor {_UNSECURED}")
        self._keys = None if handler == _UNSECURED else self._key_set(url, now)
        if handler == _UNSECURED:
            if url:
                raise ConfigError(
                    URL, url, f"listener {listener}: {_UNSECURED} has no use for keys, as it believes all"
                )
            options = jaas_options(config.free_value(f"{self._prefix}.oauthbearer.sasl.jaas.config") or "")
            self._subject = options.get("unsecuredValidatorPrincipalClaimName") or "sub"
            self._skew_s = int(options.get("unsecuredValidatorAllowableClockSkewMs") or 0) // 1000

    async def check(self, token: str) -> Bearer:
        """Whose the token is. Raises TokenRefusedError."""
        if len(token) > LONGEST_TOKEN:
            raise TokenRefusedError(f"the token has {len(token)} bytes")
        try:
            header = _JWS.get_unverified_header(token)
            claims = self._unsecured(token, header) if self._keys is None else await self._signed(token, header)
            return self._bearer(claims)
        except _NOT_SOUND as error:
            raise TokenRefusedError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Look for no keys any more."""
        if self._keys is not None:
            await self._keys.close()

    async def _signed(self, token: str, header: dict[str, Any]) -> dict[str, Any]:
        assert self._keys is not None, "tokens are signed"
        key_id = header.get("kid")
        key = await self._keys.find(key_id if key_id is None else str(key_id))
        if key is None:
            raise TokenRefusedError(f"the key {str(key_id)[:100]!r} is not known")
        claims = await self._work.run(LANE, partial(_verified, token, key))
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise TokenRefusedError(f"the issuer is {str(claims.get('iss'))[:100]!r}")
        audience = claims.get("aud")
        if self._audiences and not self._audiences.intersection(audience if isinstance(audience, list) else [audience]):
            raise TokenRefusedError(f"the audience is {str(audience)[:100]!r}")
        return claims

    @staticmethod
    def _unsecured(token: str, header: dict[str, Any]) -> dict[str, Any]:
        if header.get("alg") != "none" or not token.endswith("."):
            raise TokenRefusedError("an unsecured token has no algorithm and no signature")
        return _object(_JWS.decode(token, options={"verify_signature": False}))

    def _bearer(self, claims: dict[str, Any]) -> Bearer:
        now_s, skew_s = self._now_ms() / 1000, self._skew_s
        expires_s = _seconds(claims, "exp")
        if expires_s is None or expires_s + skew_s <= now_s:
            raise TokenRefusedError("it has expired, or does not say when")
        if (issued_s := _seconds(claims, "iat")) is None and self._keys is not None:
            raise TokenRefusedError("it does not say when it was issued")
        for begins_s in (issued_s, _seconds(claims, "nbf")):
            if begins_s is not None and begins_s - skew_s > now_s:
                raise TokenRefusedError("it is for later")
        name = claims.get(self._subject)
        if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
            raise TokenRefusedError(f"the claim {self._subject} is no name")
        return Bearer(name.strip(), int((expires_s + skew_s) * 1000))

    def _key_set(self, url: str, now: Callable[[], float]) -> KeySet:
        if not url:
            reason = f"listener {self._listener} has no keys to check tokens by; {HANDLER}={_UNSECURED} believes any"
            raise ConfigError(URL, None, reason)
        refresh, backoff, most = (
            cast(int, self._value(f"sasl.oauthbearer.jwks.endpoint.{name}"))
            for name in ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
        )
        try:
            return KeySet(url, self._work, now, refresh_ms=refresh, backoff_ms=backoff, most_backoff_ms=most)
        except (OSError, ValueError) as error:
            raise ConfigError(URL, url, f"listener {self._listener}: {error}") from error

    def _value(self, key: str) -> ConfigValue:
        """Of the mechanism at this listener, else of the listener, else of the broker."""
        text = self._config.free_value(f"{self._prefix}.oauthbearer.{key}")
        return BROKER_KEYS[key].parse(text) if text is not None else self._config.listener_value(self._listener, key)


def _verified(token: str, key: Key) -> dict[str, Any]:
    return _object(_JWS.decode(token, key.key.key, algorithms=list(key.algorithms)))


def _object(payload: bytes) -> dict[str, Any]:
    claims = json.loads(payload)
    if not isinstance(claims, dict):
        raise TypeError("the claims are no object")
    return claims


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    """A claim that is a time. Raises ValueError, TypeError."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise ValueError(f"the claim {name} is no time")
    return float(value)
