"""Kafka's ControllerChannelManager: sends the controller's requests to the brokers.

Each broker has one request in flight. A request that fails is sent again until it is answered, or the broker is dead or
has restarted: a restarted broker receives everything again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError, UnsupportedVersionError, code_of
from ...protocol.topic_partition import TopicPartition
from ..metadata.znodes import BrokerEndpoint, BrokerInfo
from ..replication.leader_and_isr import LeaderAndIsrState
from ..replication.replica_manager import ReplicaManager
from ..runtime.ports import SendRequest
from .control_requests import (
    LAYOUTS,
    MetadataUpdate,
    RequestVersions,
    SendingController,
    StopReplicaState,
    leader_and_isr_request,
    leader_and_isr_results,
    request_versions,
    stop_replica_request,
    stop_replica_results,
    update_metadata_request,
)
from .controller_request_handler import (
    ControllerRequestHandler,
    PauseCleaning,
    error_of,
    no_cleaner,
    stop_replicas_locally,
)

if TYPE_CHECKING:
    from .kafka_controller import KafkaController

logger = room_logger("controller")

RETRY_SECONDS = 0.1
"""Pause before a request is sent again, as in Kafka."""


class ControllerChannel(Protocol):
    """Requests to brokers: to this broker alone (`LocalControllerChannel`) or to all (`ControllerChannelManager`).

    Each broker carries out its requests in the order of the calls. This broker's result is returned. For other brokers
    the methods return an empty result immediately, and the controller receives each response as a call of its own.
    """

    @property
    def others(self) -> Collection[int]:
        """The other live brokers."""
        ...

    def startup(self, controller_epoch: int, controller: KafkaController) -> None:
        """Begin a term of this broker as controller, which receives the responses."""
        ...

    def shutdown(self) -> None:
        """End the term: send nothing more and ignore responses."""
        ...

    def update_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Replace the live brokers; requests to dead brokers and to earlier runs of live ones are dropped."""
        ...

    async def leader_and_isr(
        self, broker_id: int, partition_states: Sequence[LeaderAndIsrState]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Make a broker leader or follower of partitions."""
        ...

    async def stop_replicas(
        self, broker_id: int, leader_epochs: Mapping[TopicPartition, int], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Make a broker stop replicas; with `delete` their logs are deleted by the time of the response."""
        ...

    def update_metadata(self, broker_ids: Collection[int], update: MetadataUpdate) -> None:
        """Send a part of the cluster's metadata to other brokers."""
        ...

    async def wait_for_responses(self, seconds: float) -> None:
        """Wait until the other brokers have answered all earlier requests or are dead, with a timeout."""
        ...


class LocalControllerChannel:
    """Requests to the broker of a cluster of one."""

    others: Collection[int] = ()

    def __init__(
        self, broker_id: int, replica_manager: ReplicaManager, pause_cleaning: PauseCleaning = no_cleaner
    ) -> None:
        self._broker_id = broker_id
        self._replica_manager = replica_manager
        self._pause_cleaning = pause_cleaning

    def startup(self, controller_epoch: int, controller: KafkaController) -> None:
        """Do nothing: there are no later responses."""

    def shutdown(self) -> None:
        """Do nothing: no request is in flight."""

    def update_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Do nothing: there are no other brokers."""

    async def leader_and_isr(
        self, broker_id: int, partition_states: Sequence[LeaderAndIsrState]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Become leader of partitions."""
        assert broker_id == self._broker_id, f"no connection to broker {broker_id}"
        results = {}
        # A crash during a creation leaves partitions without a folder, which are not new.
        may_create = self._replica_manager.are_log_dirs_online
        await self._replica_manager.prepare_logs(
            {
                partition_state.topic_partition: partition_state.topic_id
                for partition_state in partition_states
                if partition_state.is_new or may_create
            }
        )
        budget = self._replica_manager.new_role_budget()
        for partition_state in partition_states:
            results[partition_state.topic_partition] = error_of(self._replica_manager.become_leader, partition_state)
            await budget.step()
        return results

    async def stop_replicas(
        self, broker_id: int, leader_epochs: Mapping[TopicPartition, int], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Stop replicas."""
        assert broker_id == self._broker_id, f"no connection to broker {broker_id}"
        pause_cleaning = self._pause_cleaning if delete else None
        return await stop_replicas_locally(self._replica_manager, leader_epochs.keys(), pause_cleaning)

    def update_metadata(self, broker_ids: Collection[int], update: MetadataUpdate) -> None:
        """Do nothing: there are no other brokers."""
        assert not broker_ids, f"no connection to brokers {broker_ids}"

    async def wait_for_responses(self, seconds: float) -> None:
        """Do nothing: there are no other brokers."""


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """One request to a broker."""

    build: Callable[[int], Any]
    """Builds the request with the broker's epoch."""
    versions: RequestVersions
    on_response: Callable[[Any], None]
    """Called with the response unless it has a top-level error."""


class BrokerRequestQueue:
    """Kafka's RequestSendThread: the requests for one run of one broker."""

    def __init__(self, broker: BrokerInfo, send_request: SendRequest, on_newer_controller: Callable[[], None]) -> None:
        self.broker = broker
        self._send_request = send_request
        self._on_newer_controller = on_newer_controller
        self._waiting: deque[QueuedRequest | asyncio.Future[None]] = deque()
        """Each future is completed when the requests before it are answered."""
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    def add(self, waiting: QueuedRequest | asyncio.Future[None]) -> None:
        """Send a request after the earlier ones, or complete a future after them."""
        self._waiting.append(waiting)
        if self._sending is None and not self._is_closed:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    def close(self) -> None:
        """Drop the requests that are not answered."""
        self._is_closed = True
        for waiting in self._waiting:
            _complete(waiting)
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        while self._waiting:
            waiting = self._waiting[0]
            if isinstance(waiting, asyncio.Future):
                _complete(self._waiting.popleft())
                continue
            response = await self._send(waiting)
            if self._is_closed:
                return
            self._waiting.popleft()
            error = code_of(response.error_code) if response is not None else ErrorCode.NONE
            if error is ErrorCode.STALE_CONTROLLER_EPOCH:
                self._on_newer_controller()
            elif error is not ErrorCode.NONE:
                # After STALE_BROKER_EPOCH, for example, the restart of the broker is processed as its own event.
                logger.warning("broker %d rejected a request: %s", self.broker.broker_id, error.name)
            elif response is not None:
                waiting.on_response(response)
        self._sending = None

    async def _send(self, waiting: QueuedRequest) -> Any:
        logged = ""
        while True:
            try:
                request = waiting.build(self.broker.broker_epoch)
                return await self._send_request(self.broker.broker_id, request, **waiting.versions._asdict())
            except UnsupportedVersionError as error:
                logger.error("broker %d does not support the controller's requests: %s", self.broker.broker_id, error)
                return None
            except KafkaError as error:
                if logged != str(error):
                    logger.info("broker %d does not respond, retrying the request: %s", self.broker.broker_id, error)
                logged = str(error)
            except Exception:
                # A bug in the controller. Later requests depend on this one, so it is retried, and logged each time.
                logger.exception("a request to broker %d cannot be sent", self.broker.broker_id)
            await asyncio.sleep(RETRY_SECONDS)


def _complete(waiting: QueuedRequest | asyncio.Future[None]) -> None:
    if isinstance(waiting, asyncio.Future) and not waiting.done():
        waiting.set_result(None)


class ControllerChannelManager:
    """A `ControllerChannel` to this broker and others. It runs on the loop thread."""

    def __init__(
        self,
        broker_id: int,
        request_handler: ControllerRequestHandler,
        send_request: SendRequest,
        inter_broker_listener: str,
        inter_broker_protocol: str,
    ) -> None:
        self._broker_id = broker_id
        self._request_handler = request_handler
        self._send_request = send_request
        self._listener = inter_broker_listener
        self._sender = SendingController(broker_id, 0)
        self._controller: KafkaController | None = None
        self._brokers: Mapping[int, BrokerInfo] = {}
        self._queues: dict[int, BrokerRequestQueue] = {}
        self._versions = {api_key: request_versions(api_key, inter_broker_protocol) for api_key in LAYOUTS}

    @property
    def others(self) -> Collection[int]:
        """The other live brokers."""
        return self._queues.keys()

    def startup(self, controller_epoch: int, controller: KafkaController) -> None:
        """Begin a term of this broker as controller, without requests to other brokers yet."""
        self.shutdown()
        self._sender = SendingController(self._broker_id, controller_epoch)
        self._controller = controller
        # Later requests of the former controller are refused.
        self._request_handler.set_controller_epoch(max(self._request_handler.controller_epoch, controller_epoch))

    def shutdown(self) -> None:
        """End the term: send nothing more and ignore responses."""
        self._controller = None
        self.update_brokers({})

    def update_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Replace the live brokers (Kafka: addBroker, removeBroker)."""
        self._brokers = brokers
        for broker_id, queue in list(self._queues.items()):
            broker = brokers.get(broker_id)
            if broker is None or broker.broker_epoch != queue.broker.broker_epoch:
                self._queues.pop(broker_id).close()
            else:
                queue.broker = broker
        for broker_id, broker in brokers.items():
            if broker_id != self._broker_id and broker_id not in self._queues:
                self._queues[broker_id] = BrokerRequestQueue(broker, self._send_request, self._on_newer_controller)

    async def leader_and_isr(
        self, broker_id: int, partition_states: Sequence[LeaderAndIsrState]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Make a broker leader or follower of partitions."""
        if broker_id == self._broker_id:
            return await self._request_handler.leader_and_isr(partition_states, controller_epoch=self._sender.epoch)
        partition_states = list(partition_states)
        leaders = self._endpoints({partition_state.leader for partition_state in partition_states})
        self._send(
            broker_id,
            ApiKey.LEADER_AND_ISR,
            partial(leader_and_isr_request, self._sender, partition_states=partition_states, leaders=leaders),
            lambda response: self._on_leader_and_isr_response(
                broker_id, leader_and_isr_results(response, partition_states)
            ),
        )
        return {}

    async def stop_replicas(
        self, broker_id: int, leader_epochs: Mapping[TopicPartition, int], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Make a broker stop replicas."""
        if broker_id == self._broker_id:
            stops = [StopReplicaState(partition, epoch, delete) for partition, epoch in leader_epochs.items()]
            return await self._request_handler.stop_replicas(stops, controller_epoch=self._sender.epoch)
        leader_epochs = dict(leader_epochs)
        self._send(
            broker_id,
            ApiKey.STOP_REPLICA,
            partial(stop_replica_request, self._sender, leader_epochs=leader_epochs, delete=delete),
            lambda response: self._on_deletion_response(broker_id, stop_replica_results(response)) if delete else None,
        )
        return {}

    def update_metadata(self, broker_ids: Collection[int], update: MetadataUpdate) -> None:
        """Send a part of the cluster's metadata to other brokers."""
        for broker_id in broker_ids:
            self._send(
                broker_id,
                ApiKey.UPDATE_METADATA,
                partial(update_metadata_request, self._sender, update=update),
                lambda response: None,
            )

    async def wait_for_responses(self, seconds: float) -> None:
        """Wait until the other brokers have answered all earlier requests or are dead, with a timeout."""
        answered = [asyncio.get_running_loop().create_future() for _ in self._queues]
        for queue, future in zip(self._queues.values(), answered, strict=True):
            queue.add(future)
        if answered:
            await asyncio.wait(answered, timeout=seconds)

    def _send(
        self, broker_id: int, api_key: ApiKey, build: Callable[..., Any], on_response: Callable[[Any], None]
    ) -> None:
        queue = self._queues.get(broker_id)
        # A dead broker receives the whole state when it is back.
        if queue is not None:
            versions = self._versions[api_key]
            queue.add(QueuedRequest(partial(build, layout=versions.lowest), versions, on_response))

    def _endpoints(self, leaders: Collection[int]) -> dict[int, BrokerEndpoint]:
        return {
            broker.broker_id: endpoint
            for broker in self._brokers.values()
            for endpoint in broker.endpoints
            if broker.broker_id in leaders and endpoint.listener_name == self._listener
        }

    def _on_leader_and_isr_response(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        if self._controller is None:
            return
        failed = [one for one, error in results.items() if error is ErrorCode.KAFKA_STORAGE_ERROR]
        if failed:
            self._controller.on_replicas_offline(broker_id, failed)
        self._controller.on_replicas_created(
            broker_id, (one for one, error in results.items() if error is ErrorCode.NONE)
        )

    def _on_deletion_response(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        if self._controller is not None:
            self._controller.on_replicas_stopped(broker_id, results)

    def _on_newer_controller(self) -> None:
        if self._controller is not None:
            self._controller.resign()
