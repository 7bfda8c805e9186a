"""Partitioners: by the hash of the key, as Kafka's Java clients do, else for large batches.

`murmur2` is the 32-bit hash of `org.apache.kafka.common.utils.Utils`, seed 0x9747b28c. Records without a key use one
partition until it has received a batch's worth of bytes (KIP-480, KIP-794), so that batches are full.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from struct import unpack_from
from typing import Protocol

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


@lru_cache(maxsize=16_384)
def murmur2(key: bytes) -> int:
    """Return the hash as an unsigned 32-bit number."""
    length = len(key)
    h = _SEED ^ length
    for k in unpack_from(f"<{length // 4}I", key):
        k = k * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    tail = length & 3
    if tail:
        h = (h ^ int.from_bytes(key[-tail:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return Java's `toPositive(murmur2(key)) % partition_count`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Partitioner(Protocol):
    """The interface of an application's partitioner; `available` are the partitions with a leader, possibly none."""

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        """Return the partition for the next record of `topic`, 0 to `partition_count` - 1."""

    def appended(self, topic: str, partition: int, size_bytes: int) -> None:
        """Called after a record of that size without a key was appended."""


class DefaultPartitioner:
    """The default: keys by murmur2; other records use a partition for `batch_size` bytes, then another random one."""

    def __init__(self, batch_size: int, rng: Random) -> None:
        self._batch_size = batch_size
        self._rng = rng
        self._sticky: dict[str, int] = {}
        self._bytes_left: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        if key is not None:
            return partition_of_key(key, partition_count)
        partition = self._sticky.get(topic)
        if partition is None:
            partition = self._rng.choice(available or range(partition_count))
            self._sticky[topic] = partition
            self._bytes_left[topic] = self._batch_size
        return partition

    def appended(self, topic: str, partition: int, size_bytes: int) -> None:
        if self._sticky.get(topic) != partition:
            return
        self._bytes_left[topic] -= size_bytes
        if self._bytes_left[topic] <= 0:
            del self._sticky[topic]
