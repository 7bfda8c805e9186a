"""The acknowledgements of one partition in one request, and their result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from enum import IntEnum
from itertools import pairwise
from math import inf
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicIdPartition


class AcknowledgeType(IntEnum):
    """The result of processing a record, with its number in the protocol."""

    ACCEPT = 1
    """Processed: the record is not delivered again."""
    RELEASE = 2
    """The record was not processed and is delivered again, until its delivery count reaches the group's limit."""
    REJECT = 3
    """Cannot be processed: the record is not delivered again."""
    RENEW = 4
    """Still in processing: the acquisition lock starts again (KIP-1222, brokers since 4.2)."""


GAP = 0
"""Acknowledge type of an acquired offset without a record."""
_LONG_RUN = 10
"""A run of this length is a batch with a single type, as in Kafka's client, instead of one type per offset."""


class AcknowledgementBatch(NamedTuple):
    """Consecutive offsets, with one type for all of them or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class Acknowledgements:
    """Acknowledgements of records that one broker delivered.

    Records are added until a request sends the object. The broker accepts or rejects all of them together, so all have
    one result. Awaiting the object sends it without delay, and raises KafkaError if the broker rejected it.
    """

    __slots__ = (
        "_error",
        "_flush",
        "_ranges",
        "_waiter",
        "has_renewals",
        "is_complete",
        "is_sent",
        "partition",
        "send_until",
        "types",
    )

    def __init__(self, partition: TopicIdPartition, send_until: float, flush: Callable[[], None]) -> None:
        self.partition = partition
        self.send_until = send_until
        """Loop time after which the acknowledgements are not sent any more."""
        self.types: dict[int, AcknowledgeType] = {}
        """The acknowledge type of each record, by offset."""
        self.has_renewals = False
        """Whether a renewal was among the acknowledgements."""
        self.is_sent = False
        self.is_complete = False
        self._flush = flush
        self._ranges: list[tuple[int, int, int]] = []
        self._error: KafkaError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @classmethod
    def failed(cls, partition: TopicIdPartition, error: KafkaError) -> Acknowledgements:
        """Return acknowledgements that are not sent, because the broker would reject them with this error."""
        failed = cls(partition, -inf, lambda: None)
        failed.complete(error)
        return failed

    def add(self, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge one record; a later acknowledgement of the same record replaces an earlier one."""
        self.types[offset] = kind
        self.has_renewals |= kind is AcknowledgeType.RENEW

    def add_range(self, first_offset: int, last_offset: int, kind: int) -> None:
        """Acknowledge offsets whose records the application has not received, or offsets without a record (GAP)."""
        assert first_offset <= last_offset
        self._ranges.append((first_offset, last_offset, kind))

    def __bool__(self) -> bool:
        return bool(self.types or self._ranges)

    @property
    def error(self) -> KafkaError | None:
        """Return the broker's error; None after success, and while there is no result."""
        return self._error

    def batches(self) -> list[AcknowledgementBatch]:
        """Return the acknowledgements in the order of their offsets, in few batches."""
        offsets = [(offset, offset, int(kind)) for offset, kind in self.types.items()]
        runs = _joined(sorted([*self._ranges, *offsets]))
        assert all(one[1] < other[0] for one, other in pairwise(runs)), "an offset is acknowledged twice"
        batches: list[AcknowledgementBatch] = []
        is_extensible = False
        for first, last, kind in runs:
            count = last - first + 1
            if is_extensible and count < _LONG_RUN and batches[-1].last_offset + 1 == first:
                types = [*batches[-1].acknowledge_types, *([kind] * count)]
                batches[-1] = AcknowledgementBatch(batches[-1].first_offset, last, types)
            else:
                is_extensible = count < _LONG_RUN
                batches.append(AcknowledgementBatch(first, last, [kind] * count if is_extensible else [kind]))
        return [
            AcknowledgementBatch(first, last, types[:1] if len(set(types)) == 1 else types)
            for first, last, types in batches
        ]

    def complete(self, error: KafkaError | None) -> None:
        """Set the result, None for success, and wake the waiters."""
        assert not self.is_complete
        self.is_complete = True
        self.is_sent = True  # no record joins acknowledgements that were given up before a request took them
        self._error = None if error is None else error.as_result()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def send_soon(self) -> None:
        """Send the acknowledgements without waiting for the next fetch."""
        if not self.is_sent:
            self._flush()

    async def wait(self) -> None:
        """Wait for the result; a cancelled caller does not cancel the acknowledgements."""
        if not self.is_complete:
            self.send_soon()
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiter)

    def __await__(self) -> Generator[None, None, None]:
        yield from self.wait().__await__()
        if self._error is not None:
            # Several callers may wait for the same error; each receives an exception with its own traceback.
            raise KafkaError(self._error.code, self._error.message)


def _joined(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join adjacent offsets of the same type."""
    joined: list[tuple[int, int, int]] = []
    for first, last, kind in runs:
        if joined and joined[-1][1] + 1 == first and joined[-1][2] == kind:
            joined[-1] = (joined[-1][0], last, kind)
        else:
            joined.append((first, last, kind))
    return joined
