"""The tokens of OAUTHBEARER clients (RFC 7519, KIP-255, KIP-768).

Kafka's OAuthBearerValidatorCallbackHandler and AccessTokenValidator with the settings `sasl.oauthbearer.…`. Unsigned
tokens are accepted only if `sasl.server.callback.handler.class` names Kafka's handler for unsecured tokens.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jwt

from ...common.jaas import jaas_options
from ..config.keys.catalogue import BROKER_KEYS
from ..config.keys.validators import ConfigError
from .json_web_key_set import JsonWebKeySet, VerificationKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config.broker_config import BrokerConfig
    from ..config.keys.definition import ConfigValue
    from ..runtime.ports import Work

LANE = "tokens"
"""The lane that verifies signatures: a large token or a key of a large curve takes up to a millisecond."""
MAX_TOKEN_BYTES = 32 * 1024
MAX_NAME_CHARACTERS = 1024
HANDLER, URL = "sasl.server.callback.handler.class", "sasl.oauthbearer.jwks.endpoint.url"
_SIGNED, _UNSECURED = "OAuthBearerValidatorCallbackHandler", "OAuthBearerUnsecuredValidatorCallbackHandler"
_INVALID_TOKEN_ERRORS = (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError)
_JWS = jwt.PyJWS()
"""Verifies signatures only: this module checks the claims by the broker's clock and Kafka's settings."""


class AccessTokenRejectedError(Exception):
    """A token is not valid; the text is for the log."""


class OAuthBearerToken(NamedTuple):
    """A valid token (Kafka's OAuthBearerToken)."""

    principal_name: str
    lifetime_ms: int
    """Its expiration in ms since 1970."""


class AccessTokenValidator:
    """The validator of one listener, used on the loop's thread only. Settings are read once, at start, as in Kafka."""

    def __init__(
        self, config: BrokerConfig, listener: str, work: Work, now: Callable[[], float], now_ms: Callable[[], int]
    ) -> None:
        """Raises ConfigError without a setting for the verification of tokens."""
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
            raise ConfigError(HANDLER, handler, f"listener {listener}: expected {_SIGNED} or {_UNSECURED}")
        self._keys = None if handler == _UNSECURED else self._key_set(url, now)
        if handler == _UNSECURED:
            if url:
                raise ConfigError(URL, url, f"listener {listener}: {_UNSECURED} accepts all tokens and uses no keys")
            options = jaas_options(config.free_value(f"{self._prefix}.oauthbearer.sasl.jaas.config") or "")
            self._subject = options.get("unsecuredValidatorPrincipalClaimName") or "sub"
            self._skew_s = int(options.get("unsecuredValidatorAllowableClockSkewMs") or 0) // 1000

    async def validate(self, token: str) -> OAuthBearerToken:
        """Return the claims of a valid token. Raises AccessTokenRejectedError."""
        if len(token) > MAX_TOKEN_BYTES:
            raise AccessTokenRejectedError(f"the token has {len(token)} bytes")
        try:
            header = _JWS.get_unverified_header(token)
            claims = (
                self._read_unsecured(token, header) if self._keys is None else await self._verify_signed(token, header)
            )
            return self._validate_claims(claims)
        except _INVALID_TOKEN_ERRORS as error:
            raise AccessTokenRejectedError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Stop refreshing keys."""
        if self._keys is not None:
            await self._keys.close()

    async def _verify_signed(self, token: str, header: dict[str, Any]) -> dict[str, Any]:
        assert self._keys is not None, "a validator of signed tokens"
        key_id = header.get("kid")
        key = await self._keys.find(key_id if key_id is None else str(key_id))
        if key is None:
            raise AccessTokenRejectedError(f"no key has the id {str(key_id)[:100]!r}")
        claims = await self._work.run(LANE, partial(_verified, token, key))
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise AccessTokenRejectedError(f"the issuer is {str(claims.get('iss'))[:100]!r}")
        audience = claims.get("aud")
        if self._audiences and not self._audiences.intersection(audience if isinstance(audience, list) else [audience]):
            raise AccessTokenRejectedError(f"the audience is {str(audience)[:100]!r}")
        return claims

    @staticmethod
    def _read_unsecured(token: str, header: dict[str, Any]) -> dict[str, Any]:
        if header.get("alg") != "none" or not token.endswith("."):
            raise AccessTokenRejectedError("the algorithm of an unsecured token must be none, and its signature empty")
        return _object(_JWS.decode(token, options={"verify_signature": False}))

    def _validate_claims(self, claims: dict[str, Any]) -> OAuthBearerToken:
        now_s, skew_s = self._now_ms() / 1000, self._skew_s
        expires_s = _seconds(claims, "exp")
        if expires_s is None or expires_s + skew_s <= now_s:
            raise AccessTokenRejectedError("it has expired, or has no expiration time")
        if (issued_s := _seconds(claims, "iat")) is None and self._keys is not None:
            raise AccessTokenRejectedError("it has no issue time")
        for begins_s in (issued_s, _seconds(claims, "nbf")):
            if begins_s is not None and begins_s - skew_s > now_s:
                raise AccessTokenRejectedError("it is not valid yet")
        name = claims.get(self._subject)
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_CHARACTERS:
            raise AccessTokenRejectedError(f"the claim {self._subject} is not a name")
        return OAuthBearerToken(name.strip(), int((expires_s + skew_s) * 1000))

    def _key_set(self, url: str, now: Callable[[], float]) -> JsonWebKeySet:
        if not url:
            reason = f"listener {self._listener} has no keys of tokens; {HANDLER}={_UNSECURED} needs none"
            raise ConfigError(URL, None, reason)
        refresh, backoff, max_backoff = (
            cast(int, self._value(f"sasl.oauthbearer.jwks.endpoint.{name}"))
            for name in ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
        )
        try:
            return JsonWebKeySet(
                url, self._work, now, refresh_ms=refresh, backoff_ms=backoff, max_backoff_ms=max_backoff
            )
        except (OSError, ValueError) as error:
            raise ConfigError(URL, url, f"listener {self._listener}: {error}") from error

    def _value(self, key: str) -> ConfigValue:
        """Return the setting of the mechanism at this listener, or else of the listener, or else of the broker."""
        text = self._config.free_value(f"{self._prefix}.oauthbearer.{key}")
        return BROKER_KEYS[key].parse(text) if text is not None else self._config.listener_value(self._listener, key)


def _verified(token: str, key: VerificationKey) -> dict[str, Any]:
    return _object(_JWS.decode(token, key.key.key, algorithms=list(key.algorithms)))


def _object(payload: bytes) -> dict[str, Any]:
    claims = json.loads(payload)
    if not isinstance(claims, dict):
        raise TypeError("the claims are not an object")
    return claims


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    """Return a claim that is a time, None without it. Raises ValueError, TypeError."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise ValueError(f"the claim {name} is not a time")
    return float(value)
