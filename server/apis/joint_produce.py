"""Produce requests of several connections, or pipelined requests of one connection, with one append per partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from ...protocol.apis import ApiKey
from ...protocol.frames import LENGTH_SIZE
from ...protocol.joint_produce import KEY_FRONT, group_produces
from ...protocol.produce_entries import SINCE_TOPIC_IDS

if TYPE_CHECKING:
    from ...protocol.joint_produce import JoinedProduces
    from ..network.connection import Connection
    from .services import Services

_length_at = Struct(">i").unpack_from


class JointProduce:
    """Appends the records of small produce requests together. Owned by `KafkaApis`; used on the event loop's thread.

    Only for a broker whose produce requests pass no interceptor, authorizer or quota. The rules and the code of one
    append apply to the records: `ReplicaManager.append_jointly`.
    """

    def __init__(self, services: Services) -> None:
        self._replica_manager = services.replica_manager
        self._metadata = services.metadata_cache
        self._versions = services.served[ApiKey.PRODUCE]
        self._fault = services.fault

    def handle(
        self, connections: Sequence[Connection], buffer: memoryview, parts: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int, bytes]]:
        """Handle requests at the beginning of parts `[start, end)` of the buffer, one part per connection.

        Yields the number of a part, the position after its last handled request, and the responses.
        """
        for key, numbers in group_produces(buffer, parts).items():
            if len(numbers) == 1:
                start, end = parts[numbers[0]]
                if end - start < 2 * (LENGTH_SIZE + _length_at(buffer, start)[0]):
                    continue  # a single request
            # After a refused batch of a producer its later batches must be refused.
            numbers = [number for number in numbers if not connections[number].session.sequence_gap_guard]
            joined = self._append(key, buffer, [parts[number] for number in numbers])
            if joined is not None:
                for number, end, responses in zip(numbers, joined.ends, joined.responses, strict=True):
                    if responses:
                        yield number, end, responses

    def _append(self, key: bytes, buffer: memoryview, parts: list[tuple[int, int]]) -> JoinedProduces | None:
        """Append the batches of one group of requests. Returns None if nothing is appended."""
        version, acks, index = KEY_FRONT.unpack_from(key)
        topic = key[KEY_FRONT.size :]
        name = self._metadata.names.get(topic) if version >= SINCE_TOPIC_IDS else str(topic, "ascii")
        if name is None or not self._versions.lowest <= version <= self._versions.highest:
            return None
        if self._fault("produce-answer-lost"):
            return None  # the handler loses the response of each request
        return self._replica_manager.append_jointly(name, index, acks, buffer, parts, key)
