"""Delegation tokens in the metadata tree, where Kafka up to 3.9 has them (KIP-48, DelegationTokenManagerZk).

/delegation_token/tokens/TOKEN-ID                      JSON, without the secret: that follows from id and key
/delegation_token/token_changes/token_change_N         the id of a token that has changed, for Kafka's brokers
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import NamedTuple

from .change_notifications import ChangeNotifications
from .metadata_store import Create, Delete, MetadataStore, NodeExistsError, NoNodeError, SetData

TOKENS_PER_READ = 100
"""Delegation tokens that are read together: one by one, each read would wait for the store."""

ROOT, CHANGES = "/delegation_token/tokens", "/delegation_token/token_changes"
MAX_NOTICES = 10_000
"""The owner of a token may renew it without limit, and each renewal leaves a notification."""
_VERSION = 3


class DelegationToken(NamedTuple):
    """The stored data of a token. Principals are texts, `User:anna`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    """The latest time to which the token can be renewed, in ms."""
    expiry_ms: int

    def concerns(self, principal: str) -> bool:
        """Return whether the principal may describe and renew the token."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        """Return whether the token is expired for authentication."""
        return min(self.expiry_ms, self.max_ms) < now_ms


def encode_token(token: DelegationToken) -> bytes:
    """JSON of a token's node."""
    value = {
        "version": _VERSION,
        "owner": token.owner,
        "tokenRequester": token.requester,
        "renewers": list(token.renewers),
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return _json(value)


def kept_size(name: str) -> int:
    """Bytes that a name takes in there: of a control character that is six, of a quotation mark two."""
    return len(_json(name)) - len('""')


def decode_token(data: bytes) -> DelegationToken:
    """Decode a token. Before version 3 the requester was the owner. Raises ValueError."""
    try:
        value = json.loads(data)
        owner = str(value["owner"])
        times = (int(value[f"{name}Timestamp"]) for name in ("issue", "max", "expiry"))
        renewers = tuple(map(str, value["renewers"]))
        return DelegationToken(str(value["tokenId"]), owner, str(value.get("tokenRequester", owner)), renewers, *times)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a delegation token: {data[:200]!r}") from error


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class TokenStore:
    """Reads and writes tokens. Every method may raise StoreError. Loop-thread only."""

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._notifications = ChangeNotifications(store, f"{CHANGES}/token_change_", now_ms=now_ms, most=MAX_NOTICES)

    async def prepare(self) -> None:
        """Create the persistent paths that do not exist."""
        for path in (ROOT.rpartition("/")[0], ROOT, CHANGES):
            try:
                await self._store.create(path)
            except NodeExistsError:
                continue

    async def ids(self) -> list[str]:
        """Return the ids of all tokens."""
        return await self._store.children(ROOT)

    async def get(self, token_id: str) -> DelegationToken | None:
        """Return the stored token; None if it does not exist. Raises ValueError."""
        if not token_id or "/" in token_id or "\0" in token_id or token_id in (".", ".."):
            return None
        try:
            data, _ = await self._store.get(f"{ROOT}/{token_id}")
        except NoNodeError:
            return None
        return decode_token(data)

    async def all(self) -> AsyncIterator[DelegationToken]:
        """Yield every token; some are read at a time. Raises ValueError."""
        ids = iter(await self.ids())
        while some := [f"{ROOT}/{token_id}" for token_id in islice(ids, TOKENS_PER_READ)]:
            for node in await self._store.get_many(some):
                if node is not None:
                    yield decode_token(node[0])

    async def add(self, token: DelegationToken) -> None:
        """Keep a new one."""
        await self._write(Create(f"{ROOT}/{token.token_id}", encode_token(token)), token)

    async def change(self, token: DelegationToken) -> bool:
        """Store a token's new times; False if it does not exist any more."""
        try:
            await self._write(SetData(f"{ROOT}/{token.token_id}", encode_token(token)), token)
        except NoNodeError:
            return False
        return True

    async def remove(self, token: DelegationToken) -> bool:
        """Remove a token; False if it does not exist any more."""
        try:
            await self._write(Delete(f"{ROOT}/{token.token_id}"), token)
        except NoNodeError:
            return False
        return True

    async def _write(self, write: Create | SetData | Delete, token: DelegationToken) -> None:
        await self._store.multi([write, self._notifications.notification(token.token_id.encode())])
        await self._notifications.purge()
