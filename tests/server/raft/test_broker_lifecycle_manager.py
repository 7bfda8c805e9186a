"""The registration and the heartbeats of a broker against a scripted controller, in simulated time."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.clients.errors import BrokerUnreachableError
from barnabas.protocol.errors import ConnectionLostError, ErrorCode, KafkaError, RequestTimeoutError
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.schema import Versions
from barnabas.server.raft.broker_lifecycle_manager import (
    AdvertisedListener,
    BrokerLifecycleManager,
    BrokerLifecycleState,
    LifecycleConfig,
)
from barnabas.server.raft.node_to_controller_channel_manager import NodeToControllerChannelManager
from barnabas.simulation.loop import SimLoop, run

CLUSTER_ID = "cluster"
FEATURES = {"metadata.version": (7, 33), "group.version": (0, 1)}
DIRECTORY = UUID(int=1 << 100)


class Controller:
    """Stands in for `ControllerConnections`: the active controller, with the rules of Kafka's heartbeats."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.address: tuple[str, int] | None = ("controller1", 9093)
        self.active = ("controller1", 9093)
        self.is_down = False
        self.error: Exception | None = None
        self.version = 4
        self.metadata_offset = 10
        self.refusals: list[ErrorCode] = []
        self.moves_leaders = True
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[tuple[float, BrokerHeartbeatRequest]] = []
        self.disconnected: list[tuple[str, int]] = []
        self.is_fenced = True
        self.is_closed = False

    async def version_for(self, endpoint: tuple[str, int], request: type, **_: int) -> int:
        self._check(endpoint)
        return self.version

    async def send_request(self, endpoint: tuple[str, int], request: Any, **_: int) -> Any:
        await asyncio.sleep(0.001)
        self._check(endpoint)
        response: Any
        if isinstance(request, UnregisterBrokerRequest):
            response = UnregisterBrokerResponse()
        elif isinstance(request, BrokerRegistrationRequest):
            response = self._register(request)
        else:
            response = self._heartbeat(request)
        if endpoint != self.active:
            response.error_code = ErrorCode.NOT_CONTROLLER
        elif self.refusals:
            response.error_code = self.refusals.pop(0)
        return response

    def _check(self, endpoint: tuple[str, int]) -> None:
        if self.error is not None:
            raise self.error
        if self.is_down:
            raise BrokerUnreachableError(f"{endpoint} is down")

    def _register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        self.registrations.append(request)
        return BrokerRegistrationResponse(broker_epoch=40 + len(self.registrations))

    def _heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        self.heartbeats.append((self.loop.time(), request))
        is_caught_up = request.current_metadata_offset >= self.metadata_offset
        self.is_fenced = request.want_fence or not is_caught_up
        return BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=self.is_fenced,
            should_shut_down=request.want_shut_down and self.moves_leaders,
        )

    def disconnect(self, endpoint: tuple[str, int]) -> None:
        self.disconnected.append(endpoint)

    def close(self) -> None:
        self.is_closed = True


class Broker:
    def __init__(self, loop: SimLoop, controller: Controller) -> None:
        self.controller = controller
        self.offset = 10
        self.shutdowns = 0
        self.cordoned: list[UUID] | None = None
        self.epochs: list[int] = []
        self.lifecycle = BrokerLifecycleManager(
            node_id=7,
            cluster_id=CLUSTER_ID,
            rack="r1",
            log_dirs=[UUID(int=5), DIRECTORY, UUID(int=3)],
            incarnation_id=UUID(int=99),
            config=LifecycleConfig(),
            loop=loop,
            cordoned_log_dirs=lambda: self.cordoned,
            on_registered=self.epochs.append,
            on_shutdown_required=self._shut_down,
        )

    def _shut_down(self) -> None:
        self.shutdowns += 1

    def start(self, *, previous_broker_epoch: int = -1) -> None:
        controller: Any = self.controller
        channel = NodeToControllerChannelManager(lambda: controller.address, controller, retry_timeout_ms=4500)
        listeners = [AdvertisedListener("PLAINTEXT", "here", 9092, 0)]
        self.lifecycle.start(lambda: self.offset, channel, listeners, FEATURES, previous_broker_epoch)

    async def run(self) -> None:
        self.start()
        await self.lifecycle.initial_catch_up()
        await self.lifecycle.ready_to_unfence()


def play(story: Callable[[Broker, Controller], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        controller = Controller(loop)
        broker = Broker(loop, controller)
        await story(broker, controller)
        await broker.lifecycle.close()
        assert controller.is_closed

    run(main, 1)


def test_a_broker_registers_catches_up_and_is_unfenced() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        broker.offset = 3
        broker.start(previous_broker_epoch=12)
        await asyncio.sleep(1)
        assert broker.lifecycle.state is BrokerLifecycleState.STARTING
        assert broker.lifecycle.broker_epoch == 41
        (registration,) = controller.registrations
        assert registration.broker_id == 7
        assert registration.cluster_id == CLUSTER_ID
        assert registration.incarnation_id == UUID(int=99)
        assert registration.log_dirs == [UUID(int=3), UUID(int=5), DIRECTORY]
        assert registration.previous_broker_epoch == 12
        assert registration.rack == "r1"
        assert [(one.name, one.host, one.port) for one in registration.listeners] == [("PLAINTEXT", "here", 9092)]
        assert [(one.name, one.min_supported_version, one.max_supported_version) for one in registration.features] == [
            ("group.version", 0, 1),
            ("metadata.version", 7, 33),
        ]
        broker.offset = 10
        await broker.lifecycle.initial_catch_up()
        assert broker.lifecycle.state is BrokerLifecycleState.RECOVERY
        await asyncio.sleep(5)
        assert controller.is_fenced, "the broker has not recovered its logs yet"
        await broker.lifecycle.ready_to_unfence()
        assert broker.lifecycle.state is BrokerLifecycleState.RUNNING
        assert not controller.is_fenced
        assert controller.heartbeats[-1][1].broker_epoch == 41
        controller.heartbeats.clear()
        await asyncio.sleep(20)
        times = [time for time, _ in controller.heartbeats]
        assert all(1.9 < later - earlier < 2.1 for earlier, later in itertools.pairwise(times))
        assert len(times) in (9, 10)

    play(story)


def test_features_from_level_zero_need_a_newer_controller() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        controller.version = 3
        await broker.run()
        assert [one.name for one in controller.registrations[0].features] == ["metadata.version"]

    play(story)


def test_a_registration_is_repeated_until_the_session_of_the_former_broker_ends() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        controller.refusals = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 4
        await broker.run()
        assert len(controller.registrations) == 5

    play(story)


def test_a_refused_registration_ends_the_start_with_its_reason() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        controller.refusals = [ErrorCode.UNSUPPORTED_VERSION] * 1000
        broker.start()
        with pytest.raises(KafkaError, match=r"initial.broker.registration.timeout.ms.*UNSUPPORTED_VERSION"):
            await broker.lifecycle.initial_catch_up()
        with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
            await broker.lifecycle.ready_to_unfence()

    play(story)


def test_another_cluster_id_ends_the_start_immediately() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        controller.refusals = [ErrorCode.INCONSISTENT_CLUSTER_ID]
        broker.start()
        async with asyncio.timeout(1):
            with pytest.raises(KafkaError, match="INCONSISTENT_CLUSTER_ID"):
                await broker.lifecycle.initial_catch_up()

    play(story)


def test_requests_follow_the_active_controller() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        controller.address = None
        broker.start()
        await asyncio.sleep(2)
        controller.address = ("controller2", 9093)
        await asyncio.sleep(2)
        assert broker.lifecycle.broker_epoch == -1
        assert ("controller2", 9093) in controller.disconnected
        controller.address = controller.active
        await broker.lifecycle.initial_catch_up()
        await broker.lifecycle.ready_to_unfence()
        controller.is_down = True
        await asyncio.sleep(30)
        controller.is_down = False
        controller.heartbeats.clear()
        await asyncio.sleep(5)
        assert controller.heartbeats
        assert len({one.broker_epoch for _, one in controller.heartbeats}) == 1

    play(story)


def test_a_controlled_shutdown_waits_until_the_leaders_are_moved() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        await broker.run()
        controller.moves_leaders = False
        leaving = asyncio.ensure_future(broker.lifecycle.begin_controlled_shutdown())
        await asyncio.sleep(5)
        assert not leaving.done()
        assert broker.lifecycle.state is BrokerLifecycleState.PENDING_CONTROLLED_SHUTDOWN
        assert controller.heartbeats[-1][1].want_shut_down
        controller.moves_leaders = True
        assert await leaving
        count = len(controller.heartbeats)
        await asyncio.sleep(5)
        assert len(controller.heartbeats) == count, "no heartbeat follows"

    play(story)


def test_a_controlled_shutdown_ends_without_a_controller() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        await broker.run()
        controller.is_down = True
        assert not await broker.lifecycle.begin_controlled_shutdown(timeout_s=20)

    play(story)


def test_a_broker_that_was_never_unfenced_leaves_without_a_controlled_shutdown() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        broker.start()
        await broker.lifecycle.initial_catch_up()
        assert not await broker.lifecycle.begin_controlled_shutdown()

    play(story)


def test_a_failed_directory_is_reported_immediately() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        await broker.run()
        await asyncio.sleep(0.5)
        controller.heartbeats.clear()
        broker.lifecycle.propagate_directory_failure(DIRECTORY)
        await asyncio.sleep(0.1)
        assert [one.offline_log_dirs for _, one in controller.heartbeats] == [[DIRECTORY]]
        await asyncio.sleep(60)
        assert broker.shutdowns == 0

    play(story)


def test_cordoned_directories_are_reported_after_the_catch_up_and_when_they_change() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        broker.cordoned = [DIRECTORY]
        broker.offset = 0
        broker.start()
        await asyncio.sleep(1)
        assert {one.cordoned_log_dirs for _, one in controller.heartbeats} == {None}
        broker.offset = 10
        await broker.lifecycle.initial_catch_up()
        await broker.lifecycle.ready_to_unfence()
        assert controller.heartbeats[-1][1].cordoned_log_dirs == [DIRECTORY]
        broker.cordoned = []
        began = asyncio.get_running_loop().time()
        broker.lifecycle.propagate_directory_cordoned()
        await asyncio.sleep(0.1)
        time, last = controller.heartbeats[-1]
        assert last.cordoned_log_dirs == []
        assert time - began < 0.1
        # The level of metadata.version was lowered.
        broker.cordoned = None
        broker.lifecycle.propagate_directory_cordoned()
        await asyncio.sleep(0.1)
        assert controller.heartbeats[-1][1].cordoned_log_dirs is None

    play(story)


def test_a_broker_stops_if_no_controller_learns_of_a_failed_directory() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        await broker.run()
        controller.is_down = True
        broker.lifecycle.propagate_directory_failure(DIRECTORY)
        await asyncio.sleep(60)
        assert broker.shutdowns == 1

    play(story)


def test_a_registration_is_sent_again_on_request() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        await broker.run()
        broker.lifecycle.resend_registration()
        await asyncio.sleep(0.1)
        assert len(controller.registrations) == 2
        assert broker.epochs == [41, 42]
        assert broker.lifecycle.state is BrokerLifecycleState.RUNNING

    play(story)


def test_a_request_without_a_controller_fails_after_its_timeout() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        broker.start()
        connections: Any = controller
        channel = NodeToControllerChannelManager(lambda: None, connections, retry_timeout_ms=3000)
        with pytest.raises(RequestTimeoutError, match="no active controller is known"):
            await channel.send_request(UnregisterBrokerRequest(broker_id=1))
        channel = NodeToControllerChannelManager(lambda: ("controller2", 9093), connections, retry_timeout_ms=3000)
        with pytest.raises(RequestTimeoutError, match="controller2:9093 is not the active controller"):
            await channel.send_request(UnregisterBrokerRequest(broker_id=1))
        await broker.lifecycle.initial_catch_up()

    play(story)


def test_an_unexpected_error_does_not_end_the_heartbeats() -> None:
    async def story(broker: Broker, controller: Controller) -> None:
        await broker.run()
        controller.error = ValueError("no such certificate")
        await asyncio.sleep(5)
        controller.error = None
        controller.heartbeats.clear()
        await asyncio.sleep(5)
        assert len(controller.heartbeats) >= 2

    play(story)


def test_the_versions_of_the_controller_are_known_after_the_first_connection() -> None:
    versions: dict[tuple[str, int], dict[int, Versions]] = {}
    connections: Any = SimpleNamespace(api_versions=versions.get)
    address: tuple[str, int] | None = None
    channel = NodeToControllerChannelManager(lambda: address, connections)
    assert channel.controller_api_versions is None
    address = ("controller1", 9093)
    assert channel.controller_api_versions is None
    versions[address] = {19: Versions(2, 7)}
    assert channel.controller_api_versions == {19: Versions(2, 7)}
    versions.clear()
    assert channel.controller_api_versions == {19: Versions(2, 7)}, "a lost connection does not change them"


@pytest.mark.parametrize(("max_losses", "attempts"), [(None, 45), (1, 1), (2, 2)])
def test_a_request_is_repeated_until_its_connection_was_lost_too_often(max_losses: int | None, attempts: int) -> None:
    sent: list[tuple[str, int]] = []

    async def send_request(endpoint: tuple[str, int], request: Any, **_: int) -> Any:
        sent.append(endpoint)
        raise ConnectionLostError("closed")

    async def main(_: SimLoop) -> None:
        connections: Any = SimpleNamespace(send_request=send_request)
        channel = NodeToControllerChannelManager(lambda: ("controller1", 9093), connections, retry_timeout_ms=4450)
        with pytest.raises(KafkaError) as error:
            await channel.send_request(object(), max_losses=max_losses)
        assert isinstance(error.value, RequestTimeoutError if max_losses is None else ConnectionLostError)

    run(main, 1)
    assert len(sent) == attempts


@pytest.mark.parametrize(("attempt_s", "attempts"), [(0.0, 10), (5.0, 1)])
def test_no_attempt_begins_after_the_timeout_of_a_request(attempt_s: float, attempts: int) -> None:
    sent: list[tuple[str, int]] = []

    async def send_request(endpoint: tuple[str, int], request: Any, **_: int) -> Any:
        sent.append(endpoint)
        await asyncio.sleep(attempt_s)
        raise BrokerUnreachableError("the controller is down")

    async def main(loop: SimLoop) -> None:
        connections: Any = SimpleNamespace(send_request=send_request)
        channel = NodeToControllerChannelManager(lambda: ("controller1", 9093), connections, retry_timeout_ms=60_000)
        with pytest.raises(RequestTimeoutError, match="in 950 ms: the controller is down"):
            await channel.send_request(object(), attempts_ms=950)

    run(main, 1)
    assert len(sent) == attempts


def test_the_creation_of_topics_is_repeated_at_the_active_controller() -> None:
    async def send_request(endpoint: tuple[str, int], request: Any, **_: int) -> Any:
        error = ErrorCode.NONE if endpoint == active else ErrorCode.NOT_CONTROLLER
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=error)])

    disconnected: list[tuple[str, int]] = []
    active = ("controller2", 9093)
    known = [("controller1", 9093), active]

    async def main(_: SimLoop) -> None:
        connections: Any = SimpleNamespace(send_request=send_request, disconnect=disconnected.append)
        channel = NodeToControllerChannelManager(lambda: known.pop(0), connections)
        response = await channel.send_request(CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
        assert response.topics[0].error_code == ErrorCode.NONE

    run(main, 1)
    assert disconnected == [("controller1", 9093)]
