"""Kafka's ProducerIdManager: unique producer ids, of which each broker claims blocks of 1000.

The controller of a cluster claims the blocks for the brokers, a single broker claims them in its store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from .metadata_store import BadVersionError, MetadataStore, StoreFailedError
from .znodes import PRODUCER_ID_BLOCK, decode_producer_id_block, encode_producer_id_block

BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1


class ProducerIdManager:
    """This broker's supply. Ids of a block that are left at a stop or crash are never used."""

    def __init__(self, next_block: Callable[[], Awaitable[range]]) -> None:
        """`next_block` claims a block of ids; errors as of `generate_producer_id`."""
        self._next_block = next_block
        self._next = 0
        self._end = 0
        self._claim: asyncio.Task[None] | None = None

    async def generate_producer_id(self) -> int:
        """Return an id that was never used.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, which producers retry, while the store cannot be written, and
        UNKNOWN_SERVER_ERROR when all 2**63 ids are used.
        """
        while self._next >= self._end:
            if self._claim is None:
                self._claim = asyncio.get_running_loop().create_task(self._claim_block())
                self._claim.add_done_callback(self._claimed)
            # All requests share the result of one attempt: with an attempt each, one after another, the last of many
            # would wait for the timeouts of all others.
            await asyncio.shield(self._claim)
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _claim_block(self) -> None:
        block = await self._next_block()
        self._next, self._end = block.start, block.stop

    def _claimed(self, claim: asyncio.Task[None]) -> None:
        self._claim = None
        if not claim.cancelled():
            claim.exception()  # without a waiting request asyncio would log it


class ZkProducerIdManager(ProducerIdManager):
    """Kafka's ZkProducerIdManager: a supply that can claim blocks in the metadata tree, also for other brokers."""

    def __init__(
        self, store: MetadataStore, broker_id: int, next_block: Callable[[], Awaitable[range]] | None = None
    ) -> None:
        """`next_block` requests a block from the controller; without it this broker claims its blocks itself."""
        super().__init__(next_block or partial(self.allocate_producer_id_block, broker_id))
        self._store = store

    async def allocate_producer_id_block(self, broker_id: int) -> range:
        """Return a block for a broker; errors as of `generate_producer_id`."""
        while True:
            try:
                data, stat = await self._store.get(PRODUCER_ID_BLOCK)
                first = decode_producer_id_block(data)[1] + 1 if data else 0
                last = first + BLOCK_SIZE - 1
                if last > LAST_PRODUCER_ID:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
                block = encode_producer_id_block(broker_id, first, last)
                await self._store.set(PRODUCER_ID_BLOCK, block, stat.version)
            except BadVersionError:
                continue
            except StoreFailedError as error:
                text = "No block of producer ids could be claimed."
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text) from error
            return range(first, last + 1)
