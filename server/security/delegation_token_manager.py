"""Delegation tokens (KIP-48): an id and a secret with which a job authenticates as the token's owner for some days.

Kafka's DelegationTokenManager. A token's secret is an HMAC of its id with `delegation.token.secret.key`, which all
brokers have: it is not stored, and clients use it as the password of SCRAM (`tokenauth=true`). The stored tokens are
read for each request, so that all brokers give the same responses.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.sasl_server import ScramCredential, new_credentials
from ..metadata.metadata_store import StoreError
from ..metadata.token_store import DelegationToken, TokenStore
from ..runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence
    from typing import TypeVar

    from ..config.broker_config import BrokerConfig
    from ..runtime.ports import Ports

    T = TypeVar("T")

logger = room_logger("security")

TOKENS_PER_TURN = 20
"""Delegation tokens that a request examines."""

LANE = "passwords"
MAX_TOKENS_PER_OWNER = 1000
"""Kafka has no limit, and every user with a password can create tokens.

Brokers do not wait for each other: if each creates the last token at the same moment, an owner has one more per broker.
"""
KNOWN_CREDENTIALS = 1000
ID_BYTES, SECRET_BYTES, SALT_BYTES = 16, 64, 20


class TokenCredential(NamedTuple):
    """A token and its SCRAM credential."""

    token: DelegationToken
    credential: ScramCredential


class DelegationTokenManager:
    """The tokens of the cluster, used on the loop's thread only.

    Methods raise KafkaError, DELEGATION_TOKEN_AUTH_DISABLED without a key.
    """

    def __init__(self, config: BrokerConfig, store: TokenStore, ports: Ports) -> None:
        self._config = config
        self._store = store
        self._ports = ports
        key = config.delegation_token_secret_key or config.delegation_token_master_key
        self._key = key.encode() if key else None
        self._credentials: OrderedDict[str, dict[str, ScramCredential]] = OrderedDict()
        self._owner_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """The locks of owners whose tokens are being created."""

    @property
    def is_enabled(self) -> bool:
        """Whether there is a key for secrets."""
        return self._key is not None

    async def start(self) -> None:
        """Create the nodes of tokens in the store. Raises StoreError."""
        if self.is_enabled:
            await self._store.prepare()

    def secret(self, token_id: str) -> bytes:
        """Return the secret of a token."""
        return hmac.digest(self._check_enabled(), token_id.encode(), "sha512")

    async def create(self, owner: str, requester: str, renewers: Sequence[str], max_life_ms: int) -> DelegationToken:
        """Create a token with the requested lifetime, within the limits. Tokens of one owner are created one by one."""
        self._check_enabled()
        lock = self._owner_locks.setdefault(owner, asyncio.Lock())
        async with lock:
            await self._check_room(owner)
            token = self._new(owner, requester, renewers, max_life_ms)
            await _stored(self._store.add(token))
        logger.info("%s created a delegation token of %s", requester, owner)
        return token

    async def renew(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Renew a token for `period_ms`, or the default period if negative. Return its expiration in ms since 1970."""
        token = await self._own(principal, secret)
        usual_ms = self._config.delegation_token_expiry_time_ms
        return await self._set_expiry(token, usual_ms if period_ms < 0 else period_ms)

    async def expire(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Let a token expire after `period_ms`, or remove it if negative. Return its expiration in ms since 1970."""
        token = await self._own(principal, secret)
        if period_ms >= 0:
            return await self._set_expiry(token, period_ms)
        if not await _stored(self._store.remove(token)):
            raise _unknown()
        logger.info("%s removed a delegation token of %s", principal, token.owner)
        return self._ports.now_ms()

    async def all(self) -> AsyncIterator[DelegationToken]:
        """Yield every token, `TOKENS_PER_TURN` in each turn of the loop."""
        self._check_enabled()
        budget = CountBudget(TOKENS_PER_TURN)
        try:
            async for token in self._store.all():
                yield token
                await budget.step()
        except (StoreError, ValueError) as error:
            raise _unreadable(error) from error

    async def find_credential(self, token_id: str, mechanism: str) -> TokenCredential | None:
        """Return a token and its credential for a SCRAM mechanism; None if it does not exist or has expired."""
        if not self.is_enabled:
            return None
        try:
            token = await self._store.get(token_id)
        except (StoreError, ValueError) as error:
            raise _unreadable(error) from error
        if token is None or token.is_over(self._ports.now_ms()):
            return None
        known = self._credentials.get(token_id)
        if known is None:
            password = base64.b64encode(self.secret(token_id)).decode()
            salt = self._ports.token_bytes(SALT_BYTES)
            known = await self._ports.work.run(LANE, partial(new_credentials, password, salt))
            self._credentials[token_id] = known
            if len(self._credentials) > KNOWN_CREDENTIALS:
                self._credentials.popitem(last=False)
        return TokenCredential(token, known[mechanism])

    async def sweep(self) -> None:
        """Remove expired tokens, unless the controllers of a KRaft cluster do that. Raises StoreError, ValueError."""
        if not self.is_enabled or self._config.is_kraft:
            return
        now_ms = self._ports.now_ms()
        async for token in self._store.all():
            if token.is_over(now_ms):
                await self._store.remove(token)

    def _check_enabled(self) -> bytes:
        if self._key is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation token feature is not enabled.")
        return self._key

    def _new(self, owner: str, requester: str, renewers: Sequence[str], max_life_ms: int) -> DelegationToken:
        token_id = base64.urlsafe_b64encode(self._ports.token_bytes(ID_BYTES)).rstrip(b"=").decode()
        now_ms, most_ms = self._ports.now_ms(), self._config.delegation_token_max_lifetime_ms
        last_ms = now_ms + (most_ms if max_life_ms <= 0 else min(max_life_ms, most_ms))
        expiry_ms = min(last_ms, now_ms + self._config.delegation_token_expiry_time_ms)
        return DelegationToken(token_id, owner, requester, tuple(dict.fromkeys(renewers)), now_ms, last_ms, expiry_ms)

    async def _own(self, principal: str, secret: bytes) -> DelegationToken:
        """Return the token of a secret, which the principal owns or may renew."""
        self._check_enabled()
        if len(secret) != SECRET_BYTES:  # a comparison takes time in proportion to the client's text
            raise _unknown()
        budget, found = CountBudget(), None
        for token_id in await _stored(self._store.ids()):
            if hmac.compare_digest(self.secret(token_id), secret):
                found = token_id
            await budget.step()
        try:
            token = await self._store.get(found) if found is not None else None
        except (StoreError, ValueError) as error:
            raise _unreadable(error) from error
        if token is None:
            raise _unknown()
        if not token.concerns(principal):
            text = "Specified Principal is not valid Owner/Renewer."
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, text)
        if token.is_over(self._ports.now_ms()):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired.")
        return token

    async def _set_expiry(self, token: DelegationToken, period_ms: int) -> int:
        expiry_ms = min(token.max_ms, self._ports.now_ms() + period_ms)
        if not await _stored(self._store.change(token._replace(expiry_ms=expiry_ms))):
            raise _unknown()
        return expiry_ms

    async def _check_room(self, owner: str) -> None:
        if len(await _stored(self._store.ids())) < MAX_TOKENS_PER_OWNER:
            return
        if sum([token.owner == owner async for token in self.all()]) >= MAX_TOKENS_PER_OWNER:
            text = f"{owner} has {MAX_TOKENS_PER_OWNER} delegation tokens"
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, text)


async def _stored(work: Awaitable[T]) -> T:
    try:
        return await work
    except StoreError as error:
        raise _unreadable(error) from error


def _unknown() -> KafkaError:
    return KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found on server.")


def _unreadable(error: Exception) -> KafkaError:
    logger.error("delegation tokens cannot be read or written: %r", error)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata store could not be used.")
