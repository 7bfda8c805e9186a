"""Orders to all brokers of a cluster: one request in flight to each, in the order given, until it is answered.

What cannot be sent is sent again until the broker is gone, or is another run of it: then it learns everything anew.
Kafka's ControllerChannelManager with its RequestSendThreads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError, UnsupportedVersionError, code_of
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.znodes import BrokerEndpoint, BrokerRegistration
from ..replication.partition_order import PartitionOrder
from ..runtime.ports import Ask
from .control_requests import (
    LAYOUTS,
    SendingController,
    Spoken,
    StopOrder,
    leader_and_isr_request,
    order_results,
    spoken,
    stop_replica_request,
    stop_results,
    update_metadata_request,
)
from .received_orders import ReceivedOrders
from .replica_channel import MetadataUpdate, OrderAnswers

logger = room_logger("controller")

RETRY_SECONDS = 0.1
"""Kafka waits as long before it sends a request once more."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request on its way to a broker."""

    build: Callable[[int], Any]
    """Makes the request, told the broker's epoch."""
    spoken: Spoken
    heed: Callable[[Any], None]
    """Hears the response, if it is not an error as a whole."""


class BrokerQueue:
    """The requests for one run of one broker."""

    def __init__(self, broker: BrokerRegistration, ask: Ask, in_doubt: Callable[[], None]) -> None:
        self.broker = broker
        self._ask = ask
        self._in_doubt = in_doubt
        self._waiting: deque[Waiting | asyncio.Future[None]] = deque()
        """Futures are done when it is their turn: who waits for what was before them."""
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    def add(self, waiting: Waiting | asyncio.Future[None]) -> None:
        """Sends this after what was added before."""
        self._waiting.append(waiting)
        if self._sending is None and not self._is_closed:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    def close(self) -> None:
        """Gives up what is not answered."""
        self._is_closed = True
        for waiting in self._waiting:
            _end(waiting)
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        while self._waiting:
            waiting = self._waiting[0]
            if isinstance(waiting, asyncio.Future):
                _end(self._waiting.popleft())
                continue
            response = await self._answer(waiting)
            if self._is_closed:
                return
            self._waiting.popleft()
            error = code_of(response.error_code) if response is not None else ErrorCode.NONE
            if error is ErrorCode.STALE_CONTROLLER_EPOCH:
                self._in_doubt()
            elif error is not ErrorCode.NONE:
                # STALE_BROKER_EPOCH for one: that the broker has started anew is an event of its own.
                logger.warning("broker %d refuses an order: %s", self.broker.broker_id, error.name)
            elif response is not None:
                waiting.heed(response)
        self._sending = None

    async def _answer(self, waiting: Waiting) -> Any:
        told = ""
        while True:
            try:
                request = waiting.build(self.broker.broker_epoch)
                return await self._ask(self.broker.broker_id, request, **waiting.spoken._asdict())
            except UnsupportedVersionError as error:
                logger.error("broker %d takes no orders from here: %s", self.broker.broker_id, error)
                return None
            except KafkaError as error:
                if told != str(error):
                    logger.info("broker %d does not answer, %s: asking again", self.broker.broker_id, error)
                told = str(error)
            except Exception:
                # The controller's own fault. Orders must not be left out, and it must not be silent.
                logger.exception("an order to broker %d cannot be sent", self.broker.broker_id)
            await asyncio.sleep(RETRY_SECONDS)


def _end(waiting: Waiting | asyncio.Future[None]) -> None:
    if isinstance(waiting, asyncio.Future) and not waiting.done():
        waiting.set_result(None)


class ClusterReplicaChannel:
    """A `ReplicaChannel` to this broker and others. Loop-thread only."""

    def __init__(
        self, broker_id: int, here: ReceivedOrders, ask: Ask, inter_broker_listener: str, protocol: str
    ) -> None:
        """`protocol` is `inter.broker.protocol.version`."""
        self._broker_id = broker_id
        self._here = here
        self._ask = ask
        self._listener = inter_broker_listener
        self._sender = SendingController(broker_id, 0)
        self._answers: OrderAnswers | None = None
        self._brokers: Mapping[int, BrokerRegistration] = {}
        self._queues: dict[int, BrokerQueue] = {}
        self._spoken = {api_key: spoken(api_key, protocol) for api_key in LAYOUTS}

    @property
    def others(self) -> Collection[int]:
        """The other live brokers."""
        return self._queues.keys()

    def begin(self, controller_epoch: int, answers: OrderAnswers) -> None:
        """A term of this broker as controller begins; nobody is told anything yet."""
        self.end()
        self._sender = SendingController(self._broker_id, controller_epoch)
        self._answers = answers
        # What the former controller still has to say does not get in between.
        self._here.controller_epoch = max(self._here.controller_epoch, controller_epoch)

    def end(self) -> None:
        """Nothing is sent any more."""
        self._answers = None
        self.brokers_changed({})

    def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """These are alive."""
        self._brokers = brokers
        for broker_id, queue in list(self._queues.items()):
            broker = brokers.get(broker_id)
            if broker is None or broker.broker_epoch != queue.broker.broker_epoch:
                self._queues.pop(broker_id).close()
            else:
                queue.broker = broker
        for broker_id, broker in brokers.items():
            if broker_id != self._broker_id and broker_id not in self._queues:
                self._queues[broker_id] = BrokerQueue(broker, self._ask, self._doubt)

    async def leader_and_isr(
        self, broker_id: int, orders: Sequence[PartitionOrder]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes a broker leader or follower of partitions."""
        if broker_id == self._broker_id:
            return await self._here.leader_and_isr(orders, controller_epoch=self._sender.epoch)
        orders = list(orders)
        leaders = self._endpoints({order.leader for order in orders})
        self._add(
            broker_id,
            ApiKey.LEADER_AND_ISR,
            partial(leader_and_isr_request, self._sender, orders=orders, leaders=leaders),
            lambda response: self._ordered(broker_id, order_results(response, orders)),
        )
        return {}

    async def stop_replicas(
        self, broker_id: int, leader_epochs: Mapping[TopicPartition, int], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes a broker give up replicas."""
        if broker_id == self._broker_id:
            stops = [StopOrder(partition, epoch, delete) for partition, epoch in leader_epochs.items()]
            return await self._here.stop_replicas(stops, controller_epoch=self._sender.epoch)
        leader_epochs = dict(leader_epochs)
        self._add(
            broker_id,
            ApiKey.STOP_REPLICA,
            partial(stop_replica_request, self._sender, leader_epochs=leader_epochs, delete=delete),
            lambda response: self._stopped(broker_id, stop_results(response)) if delete else None,
        )
        return {}

    def update_metadata(self, broker_ids: Collection[int], update: MetadataUpdate) -> None:
        """Tells other brokers what to believe of the cluster."""
        for broker_id in broker_ids:
            self._add(
                broker_id,
                ApiKey.UPDATE_METADATA,
                partial(update_metadata_request, self._sender, update=update),
                lambda response: None,
            )

    async def heard(self, seconds: float) -> None:
        on_their_way = [asyncio.get_running_loop().create_future() for _ in self._queues]
        for queue, heard in zip(self._queues.values(), on_their_way, strict=True):
            queue.add(heard)
        if on_their_way:
            await asyncio.wait(on_their_way, timeout=seconds)

    def _add(self, broker_id: int, api_key: ApiKey, build: Callable[..., Any], heed: Callable[[Any], None]) -> None:
        queue = self._queues.get(broker_id)
        # One that is gone is none of the controller's business until it is back.
        if queue is not None:
            versions = self._spoken[api_key]
            queue.add(Waiting(partial(build, layout=versions.lowest), versions, heed))

    def _endpoints(self, leaders: Collection[int]) -> dict[int, BrokerEndpoint]:
        return {
            broker.broker_id: endpoint
            for broker in self._brokers.values()
            for endpoint in broker.endpoints
            if broker.broker_id in leaders and endpoint.listener_name == self._listener
        }

    def _ordered(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        failed = [one for one, error in results.items() if error is ErrorCode.KAFKA_STORAGE_ERROR]
        if failed and self._answers is not None:
            self._answers.replicas_failed_at(broker_id, failed)

    def _stopped(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        if self._answers is not None:
            self._answers.replicas_stopped_at(broker_id, results)

    def _doubt(self) -> None:
        if self._answers is not None:
            self._answers.term_in_doubt()
