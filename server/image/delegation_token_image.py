"""Delegation tokens of a KRaft cluster (KIP-900), and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...protocol.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ..runtime.loop_sharing import CountBudget
from .map_changes import difference, with_changes


class DelegationTokenData(NamedTuple):
    """A token without its HMAC, which follows from the id and the secret key of the cluster. Times in milliseconds."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


@dataclass(frozen=True, slots=True)
class DelegationTokenImage:
    """All tokens by id."""

    tokens: Mapping[str, DelegationTokenData] = field(default_factory=dict)

    def write(self) -> Iterator[tuple[Any, int]]:
        """Yield the records of all tokens, with their versions."""
        for token_id, token in self.tokens.items():
            record = DelegationTokenRecord(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_timestamp,
                max_timestamp=token.max_timestamp,
                expiration_timestamp=token.expiration_timestamp,
                token_id=token_id,
            )
            yield record, 0


class DelegationTokenDelta:
    """The changes of tokens, None for a removed one. `image` has the tokens before them."""

    def __init__(self, image: DelegationTokenImage) -> None:
        self.image = image
        self.changes: dict[str, DelegationTokenData | None] = {}

    def replay(self, record: DelegationTokenRecord) -> None:
        """Set a token."""
        self.changes[record.token_id] = DelegationTokenData(
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def replay_remove(self, record: RemoveDelegationTokenRecord) -> None:
        """Remove a token."""
        self.changes[record.token_id] = None

    def apply(self) -> DelegationTokenImage:
        """Return the tokens after the changes."""
        return DelegationTokenImage(with_changes(self.image.tokens, self.changes))

    @classmethod
    async def between(
        cls, before: DelegationTokenImage, after: DelegationTokenImage, budget: CountBudget
    ) -> DelegationTokenDelta | None:
        """Return the changes that make `after` of `before`; None without any."""
        delta = cls(before)
        delta.changes = await difference(before.tokens, after.tokens, budget)
        return delta if delta.changes else None
