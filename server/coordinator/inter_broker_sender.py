"""Batched requests to other brokers (Kafka: InterBrokerSendThread).

One request is in flight to each broker; the items that are added in between are sent with the next request. Without a
response, all items for the broker fail: another broker may lead their partitions by now.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..runtime.ports import SendRequest

logger = room_logger("coordinator")

Item = TypeVar("Item")


class InterBrokerSender(Generic[Item]):
    """A queue of items for each broker.

    Owned by the component that sends the items, and used on the loop's thread only.
    """

    def __init__(
        self,
        send_request: SendRequest,
        loop: asyncio.AbstractEventLoop,
        *,
        lowest: int,
        request: Callable[[deque[Item]], tuple[list[Item], Any]],
        answered: Callable[[Sequence[Item], Any | KafkaError], None],
    ) -> None:
        """Take the functions of the owner: `request` removes the items of one request from the queue and builds it.

        `lowest` is the lowest version of the request; `answered` gets the items with the response or the error.
        """
        self._send_request = send_request
        self._loop = loop
        self._lowest = lowest
        self._request = request
        self._answered = answered
        self._waiting: dict[int, deque[Item]] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._is_closed = False

    def add(self, broker_id: int, item: Item) -> None:
        """Send an item to a broker."""
        if self._is_closed:
            return
        self._waiting.setdefault(broker_id, deque()).append(item)
        if broker_id not in self._sending:
            self._sending[broker_id] = self._loop.create_task(self._send_all(broker_id))

    async def close(self) -> None:
        """Stop sending; `answered` is not called any more."""
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
                    logger.info("broker %d does not respond: %s", broker_id, response)
                    items.extend(waiting)
                    waiting.clear()
                self._answered(items, response)
        finally:
            del self._sending[broker_id]
            self._waiting.pop(broker_id, None)

    async def _response(self, broker_id: int, request: Any) -> Any | KafkaError:
        try:
            return await self._send_request(broker_id, request, lowest=self._lowest)
        except KafkaError as error:
            return error.as_result()
        except ProtocolError as error:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
