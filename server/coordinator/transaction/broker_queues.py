"""Questions to other brokers, many in one: one request in flight to each, and what comes meanwhile goes with the next.

Kafka's InterBrokerSendThread, as its TransactionMarkerChannelManager and AddPartitionsToTxnManager use it. If there is
no answer, all that waits for the same broker is told so: another broker may lead by now.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ....protocol.errors import ErrorCode, KafkaError, ProtocolError
from ....protocol.room_logger import room_logger
from ...runtime.ports import Ask

logger = room_logger("transactions")

Item = TypeVar("Item")


class BrokerQueues(Generic[Item]):
    """One queue a broker, as long as there is something in it. Loop-thread only."""

    def __init__(
        self,
        ask: Ask,
        loop: asyncio.AbstractEventLoop,
        *,
        lowest: int,
        request: Callable[[deque[Item]], tuple[list[Item], Any]],
        answered: Callable[[Sequence[Item], Any | KafkaError], None],
    ) -> None:
        """`request` takes from the queue what goes into one request, `lowest` is the version that it needs; `answered`
        is called with the response, or with why there is none.
        """
        self._ask = ask
        self._loop = loop
        self._lowest = lowest
        self._request = request
        self._answered = answered
        self._waiting: dict[int, deque[Item]] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._is_closed = False

    def add(self, broker_id: int, item: Item) -> None:
        """Ask that broker."""
        if self._is_closed:
            return
        self._waiting.setdefault(broker_id, deque()).append(item)
        if broker_id not in self._sending:
            self._sending[broker_id] = self._loop.create_task(self._send_all(broker_id))

    async def close(self) -> None:
        """Nothing is asked any more, and nobody told."""
        self._is_closed = True
        self._waiting.clear()
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_all(self, broker_id: int) -> None:
        waiting = self._waiting[broker_id]
        try:
            while waiting:
                items, request = self._request(waiting)
                response = await self._response(broker_id, request)
                if isinstance(response, KafkaError):
                    logger.info("broker %d does not answer: %s", broker_id, response)
                    items.extend(waiting)
                    waiting.clear()
                self._answered(items, response)
        finally:
            del self._sending[broker_id]
            self._waiting.pop(broker_id, None)

    async def _response(self, broker_id: int, request: Any) -> Any | KafkaError:
        try:
            return await self._ask(broker_id, request, lowest=self._lowest)
        except KafkaError as error:
            return error
        except ProtocolError as error:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
