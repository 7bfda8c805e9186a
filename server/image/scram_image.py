"""SCRAM credentials of a KRaft cluster (KIP-900), and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...protocol.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ..runtime.loop_sharing import CountBudget
from .map_changes import difference, with_changes


class ScramCredentialKey(NamedTuple):
    """A user and the number of a mechanism: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    user: str
    mechanism: int


class ScramCredentialData(NamedTuple):
    """The credential of a user for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        # The keys are secrets: with the stored key a client can log in after it has seen one login.
        return f"ScramCredentialData(iterations={self.iterations})"


@dataclass(frozen=True, slots=True)
class ScramImage:
    """The credentials of all users."""

    credentials: Mapping[ScramCredentialKey, ScramCredentialData] = field(default_factory=dict)

    def write(self) -> Iterator[tuple[Any, int]]:
        """Yield the records of all credentials, with their versions."""
        for (user, mechanism), data in self.credentials.items():
            record = UserScramCredentialRecord(
                name=user,
                mechanism=mechanism,
                salt=data.salt,
                stored_key=data.stored_key,
                server_key=data.server_key,
                iterations=data.iterations,
            )
            yield record, 0


class ScramDelta:
    """The changes of credentials, None for a removed one. `image` has the credentials before them."""

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self.changes: dict[ScramCredentialKey, ScramCredentialData | None] = {}

    def replay(self, record: UserScramCredentialRecord) -> None:
        """Set a credential."""
        self.changes[ScramCredentialKey(record.name, record.mechanism)] = ScramCredentialData(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def replay_remove(self, record: RemoveUserScramCredentialRecord) -> None:
        """Remove a credential."""
        self.changes[ScramCredentialKey(record.name, record.mechanism)] = None

    def apply(self) -> ScramImage:
        """Return the credentials after the changes."""
        return ScramImage(with_changes(self.image.credentials, self.changes))

    @classmethod
    async def between(cls, before: ScramImage, after: ScramImage, budget: CountBudget) -> ScramDelta | None:
        """Return the changes that make `after` of `before`; None without any."""
        delta = cls(before)
        delta.changes = await difference(before.credentials, after.credentials, budget)
        return delta if delta.changes else None
