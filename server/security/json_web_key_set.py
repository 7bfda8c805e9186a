"""The public keys of an identity provider (RFC 7517), read from a file or from its endpoint.

Kafka's RefreshingHttpsJwks and JwksFileVerificationKeyResolver. The keys are refreshed at an interval, and once when a
token names an unknown key, but never more often than the settings allow: any client can send such tokens. While the
provider cannot be reached, the keys of the last refresh are used.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import jwt

from ...clients.http import check_url, fetch
from ...common.room_logger import room_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..runtime.ports import Work

logger = room_logger("security")

LANE = "token keys"
MAX_KEYS = 100
EXPEDITED_SECONDS = 10.0
"""The shortest time between two refreshes for unknown keys."""
ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
"""The algorithms of a key, by its type or curve. A public key must never be used as the secret of an HMAC."""


class VerificationKey(NamedTuple):
    """A public key and its algorithms."""

    key: jwt.PyJWK
    algorithms: tuple[str, ...]


class JsonWebKeySet:
    """The keys of one listener. `read` may be called on any thread, all other methods on the loop's."""

    def __init__(
        self, url: str, work: Work, now: Callable[[], float], *, refresh_ms: int, backoff_ms: int, max_backoff_ms: int
    ) -> None:
        """Read keys from a file immediately. Raises ValueError, OSError."""
        self._url = url
        self._work = work
        self._now = now
        self._refresh = refresh_ms / 1000
        self._backoff = backoff_ms / 1000, max_backoff_ms / 1000
        self._keys: dict[str | None, VerificationKey] = {}
        self._read_at: float | None = None
        self._not_before = 0.0
        self._failures = 0
        self._reading: asyncio.Task[None] | None = None
        self._path: Path | None = None
        if urlsplit(url).scheme == "file":
            self._path = Path(unquote(urlsplit(url).path))
            self._keys = self.read()
            self._read_at = self._now()
        else:
            check_url(url)

    async def find(self, key_id: str | None) -> VerificationKey | None:
        """Return the key of an id, or the only key for None; None without such a key."""
        now = self._now()
        if self._read_at is None or now - self._read_at >= self._refresh or self._named(key_id) is None:
            if self._reading is None and now >= self._not_before:
                self._reading = asyncio.get_running_loop().create_task(self._read_again())
            # A client whose key is known does not wait for the provider.
            if self._reading is not None and self._named(key_id) is None:
                await asyncio.shield(self._reading)
        return self._named(key_id)

    def read(self) -> dict[str | None, VerificationKey]:
        """Return the current keys of the provider. Raises ValueError, OSError."""
        data = self._path.read_bytes() if self._path is not None else fetch(self._url)
        try:
            entries = json.loads(data)["keys"][:MAX_KEYS]
            found = {entry.get("kid"): key for entry in entries if (key := _key(entry)) is not None}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{self._url} returned no JSON Web Key Set: {error!r}") from error
        if not found:
            raise ValueError(f"{self._url} has no key for any of {', '.join(ALGORITHMS)}")
        return found

    async def close(self) -> None:
        """Stop refreshing keys."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _named(self, key_id: str | None) -> VerificationKey | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def _read_again(self) -> None:
        try:
            self._keys = await self._work.run(LANE, self.read)
            self._read_at, self._failures = self._now(), 0
            self._not_before = self._now() + EXPEDITED_SECONDS
        except (OSError, ValueError) as error:
            first, most = self._backoff
            self._not_before = self._now() + min(most, first * 2**self._failures)
            self._failures = min(self._failures + 1, 30)
            logger.error("cannot refresh the keys of tokens: %s", error)
        finally:
            self._reading = None


def _key(entry: dict[str, object]) -> VerificationKey | None:
    """Return a key for signatures with a supported algorithm, None for any other key."""
    kind = entry.get("crv", entry.get("kty")) if entry.get("kty") in ("EC", "OKP") else entry.get("kty")
    algorithms = ALGORITHMS.get(str(kind), ())
    if "alg" in entry:
        algorithms = tuple(name for name in algorithms if name == entry["alg"])
    if not algorithms or entry.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in entry.items() if name not in ("d", "alg")}
    try:
        return VerificationKey(jwt.PyJWK(public, algorithms[0]), algorithms)
    except (jwt.PyJWTError, ValueError):
        return None  # other keys of the provider are valid
