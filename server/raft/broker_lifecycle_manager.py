"""The registration of a broker with a KRaft quorum, its heartbeats and its controlled shutdown (KIP-631).

Kafka's BrokerLifecycleManager. The broker begins in STARTING, fenced: the controller lists it as not alive. When its
replica of the metadata has caught up it is in RECOVERY, and prepares its logs. When it is ready to serve clients it
requests to be unfenced, and is RUNNING when the controller has done that. A broker whose heartbeats do not arrive
within `broker.session.timeout.ms` is fenced again, and unfenced with the next heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError, code_of
from ...protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ...protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from .node_to_controller_channel_manager import NodeToControllerChannelManager

logger = room_logger("raft")

STARTING_INTERVAL_S = 0.01
"""Pause between the heartbeats of a broker that has caught up, to begin with the recovery early."""
SHUTDOWN_INTERVAL_S = 0.05
SINCE_ZERO_FEATURES = 4
"""The version of BrokerRegistration from which on features may have the lowest level 0."""


class BrokerLifecycleState(IntEnum):
    """Kafka's BrokerState, with its numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class AdvertisedListener(NamedTuple):
    """A listener for clients and brokers; `security_protocol` is Kafka's number of it."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class LifecycleConfig:
    """Times in milliseconds; the defaults are Kafka's."""

    heartbeat_interval_ms: int = 2000
    """`broker.heartbeat.interval.ms`"""
    initial_registration_timeout_ms: int = 60_000
    """`initial.broker.registration.timeout.ms`"""
    directory_failure_timeout_ms: int = 30_000
    """`log.dir.failure.timeout.ms`"""


class BrokerLifecycleManager:
    """Registers a broker and sends its heartbeats, in a task of its own and over connections of its own.

    Used on the loop's thread only. `start` once, `close` once.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        rack: str | None,
        log_dirs: Sequence[UUID],
        incarnation_id: UUID,
        config: LifecycleConfig,
        loop: asyncio.AbstractEventLoop,
        cordoned_log_dirs: Callable[[], list[UUID] | None] = lambda: None,
        on_registered: Callable[[int], None] = lambda _: None,
        on_shutdown_required: Callable[[], None],
    ) -> None:
        """`log_dirs` are the ids of the directories that are online; `incarnation_id` is new for each process.

        `cordoned_log_dirs` returns the ids of the cordoned directories (KIP-1066), None while `metadata.version` does
        not support them. `on_registered` is called with the broker epoch of each registration.
        `on_shutdown_required` is called if the failure of a log directory cannot be reported in time.
        """
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._rack = rack
        self._log_dirs = sorted(log_dirs)
        self._incarnation_id = incarnation_id
        self._config = config
        self._loop = loop
        self._cordoned_log_dirs = cordoned_log_dirs
        self._on_registered = on_registered
        self._on_shutdown_required = on_shutdown_required
        self.broker_epoch = -1
        """The offset of the registration in the metadata log; -1 before the registration."""
        self.state = BrokerLifecycleState.NOT_RUNNING
        self._channel: NodeToControllerChannelManager | None = None
        self._highest_metadata_offset: Callable[[], int] = lambda: -1
        self._listeners: Sequence[AdvertisedListener] = ()
        self._features: Mapping[str, tuple[int, int]] = {}
        self._previous_broker_epoch = -1
        self._is_registered = self._is_ready_to_unfence = False
        self._last_error = "no active controller is known"
        self._logged_error = ""
        self._offline_dirs: dict[UUID, bool] = {}
        """The failed directories, each with whether a controller has confirmed the failure."""
        self._due = asyncio.Event()
        """Set when the next request must not wait for its time."""
        self._caught_up: asyncio.Future[None] = loop.create_future()
        self._unfenced: asyncio.Future[None] = loop.create_future()
        self._has_left: asyncio.Future[None] = loop.create_future()
        self._got_controlled_shutdown_response = False
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []

    # -- life ------------------------------------------------------------------------------------------------------

    def start(
        self,
        highest_metadata_offset: Callable[[], int],
        channel: NodeToControllerChannelManager,
        listeners: Sequence[AdvertisedListener],
        features: Mapping[str, tuple[int, int]],
        previous_broker_epoch: int,
    ) -> None:
        """Begin to register. `channel` is used by this object only and closed with it.

        Its timeouts are at most half of `broker.session.timeout.ms`: a request without a response must not delay the
        next heartbeat beyond the session.

        `highest_metadata_offset` returns the last offset that the broker has applied, -1 before the first one.
        `features` has the lowest and highest supported level of each feature, `metadata.version` included: the
        controller refuses a broker whose ranges do not contain all finalized levels. `previous_broker_epoch` is that of
        the clean-shutdown markers, -1 after an unclean stop.
        """
        assert self._task is None, "the lifecycle was started before"
        self._highest_metadata_offset = highest_metadata_offset
        self._channel = channel
        self._listeners = listeners
        self._features = features
        self._previous_broker_epoch = previous_broker_epoch
        self.state = BrokerLifecycleState.STARTING
        logger.info(
            "broker %d is STARTING in cluster %s, incarnation %s", self._node_id, self._cluster_id, self._incarnation_id
        )
        self._call_later(self._config.initial_registration_timeout_ms, self._registration_timed_out)
        self._task = self._loop.create_task(self._communicate(channel))

    async def initial_catch_up(self) -> None:
        """Wait until the controller confirms that the metadata have caught up. Raises KafkaError (see `_give_up`)."""
        await asyncio.shield(self._caught_up)

    async def ready_to_unfence(self) -> None:
        """Request to be unfenced, and wait until the controller has done that. Raises KafkaError (see `_give_up`)."""
        self._is_ready_to_unfence = True
        self._due.set()
        await asyncio.shield(self._unfenced)

    async def begin_controlled_shutdown(self, timeout_s: float = 300.0) -> bool:
        """Have the controller move the leaders of this broker to others; return whether it has done that in time.

        Clients must be served in the meantime. A broker that was never unfenced leads nothing, so it does not wait.
        """
        if self.state is not BrokerLifecycleState.RUNNING:
            logger.info("skipping the controlled shutdown in state %s", self.state.name)
            return False
        self.state = BrokerLifecycleState.PENDING_CONTROLLED_SHUTDOWN
        self._due.set()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._has_left)
        except TimeoutError:
            logger.warning("the controller has not moved all leaders of this broker in %.0f s", timeout_s)
            return False
        return True

    def propagate_directory_failure(self, directory_id: UUID) -> None:
        """Report the failure of a log directory with the next heartbeat, which is sent immediately (KIP-858).

        If no controller confirms it in `log.dir.failure.timeout.ms`, the broker has to stop: it would lead partitions
        that it cannot serve.
        """
        self._offline_dirs.setdefault(directory_id, False)
        self._call_later(self._config.directory_failure_timeout_ms, lambda: self._check_directory_failure(directory_id))
        self._due.set()

    def propagate_directory_cordoned(self) -> None:
        """Report the cordoned log directories, which have changed, in a heartbeat that is sent immediately."""
        if self._is_registered:
            self._due.set()

    def resend_registration(self) -> None:
        """Register again, with the same incarnation."""
        self._is_registered = False
        self._due.set()

    async def close(self) -> None:
        """Send no more heartbeats. Waiting calls raise KafkaError."""
        self.state = BrokerLifecycleState.SHUTTING_DOWN
        for timer in self._timers:
            timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._channel is not None:
            self._channel.close()
        self._give_up(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops"))

    # -- requests --------------------------------------------------------------------------------------------------

    async def _communicate(self, channel: NodeToControllerChannelManager) -> None:
        """Register, then send heartbeats until the broker may leave. One request is in flight at a time."""
        while self.state is not BrokerLifecycleState.SHUTTING_DOWN:
            self._due.clear()
            try:
                send = self._send_heartbeat if self._is_registered else self._register
                pause = await send(channel)
            except (KafkaError, ProtocolError) as error:
                self._failed(str(error))
                pause = self._config.heartbeat_interval_ms / 1000
            except Exception as error:
                # Without heartbeats the broker is fenced until a restart: an error of another part must not end them.
                if repr(error) != self._logged_error:
                    logger.exception("cannot send a request of broker %d to the controller", self._node_id)
                self._failed(repr(error))
                pause = self._config.heartbeat_interval_ms / 1000
            if pause:
                try:
                    async with asyncio.timeout(pause):
                        await self._due.wait()
                except TimeoutError:
                    pass

    async def _register(self, channel: NodeToControllerChannelManager) -> float:
        """Send the registration, and return the seconds until the next request."""
        version = await channel.version_for(BrokerRegistrationRequest)
        request = BrokerRegistrationRequest(
            broker_id=self._node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in self._listeners
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in sorted(self._features.items())
                if lowest > 0 or version >= SINCE_ZERO_FEATURES
            ],
            rack=self._rack,
            log_dirs=self._log_dirs,
            previous_broker_epoch=self._previous_broker_epoch,
        )
        response: BrokerRegistrationResponse = await channel.send_request(request, highest=version)
        error = code_of(response.error_code)
        if error is not ErrorCode.NONE:
            # A broker that was killed keeps its id until its session has expired.
            self._failed(f"the controller refuses the registration of broker {self._node_id}: {error.name}")
            if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                # Kafka repeats this until initial.broker.registration.timeout.ms; the cluster remains another one.
                self._give_up(KafkaError(error, f"the cluster of the controller is not {self._cluster_id}"))
            return self._config.heartbeat_interval_ms / 1000
        self.broker_epoch = response.broker_epoch
        self._is_registered = True
        self._succeeded()
        self._on_registered(self.broker_epoch)
        logger.info("registered broker %d with broker epoch %d", self._node_id, self.broker_epoch)
        return 0.0

    async def _send_heartbeat(self, channel: NodeToControllerChannelManager) -> float:
        """Send a heartbeat, and return the seconds until the next one."""
        offline_dirs = list(self._offline_dirs)
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._highest_metadata_offset(),
            want_fence=not self._is_ready_to_unfence,
            want_shut_down=self.state is BrokerLifecycleState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=offline_dirs,
            # As in Kafka: before, the registration of a former incarnation may be the one in the metadata.
            cordoned_log_dirs=None if self.state is BrokerLifecycleState.STARTING else self._cordoned_log_dirs(),
        )
        response: BrokerHeartbeatResponse = await channel.send_request(request)
        error = code_of(response.error_code)
        if error is not ErrorCode.NONE:
            self._failed(f"the controller refuses a heartbeat of broker {self._node_id}: {error.name}")
            return self._config.heartbeat_interval_ms / 1000
        self._succeeded()
        self._offline_dirs.update(dict.fromkeys(offline_dirs, True))
        return self._handle_heartbeat(response)

    def _handle_heartbeat(self, response: BrokerHeartbeatResponse) -> float:
        interval_s = self._config.heartbeat_interval_ms / 1000
        match self.state:
            case BrokerLifecycleState.STARTING:
                if response.is_caught_up:
                    self.state = BrokerLifecycleState.RECOVERY
                    logger.info("the metadata have caught up; broker %d is in RECOVERY", self._node_id)
                    _complete(self._caught_up)
                return STARTING_INTERVAL_S
            case BrokerLifecycleState.RECOVERY:
                if not response.is_fenced:
                    self.state = BrokerLifecycleState.RUNNING
                    logger.info("broker %d was unfenced and is RUNNING", self._node_id)
                    _complete(self._unfenced)
            case BrokerLifecycleState.PENDING_CONTROLLED_SHUTDOWN:
                if response.should_shut_down:
                    self.state = BrokerLifecycleState.SHUTTING_DOWN
                    logger.info("the controller has moved the leaders of broker %d to others", self._node_id)
                    _complete(self._has_left)
                    return 0.0
                is_first = not self._got_controlled_shutdown_response
                self._got_controlled_shutdown_response = True
                return SHUTDOWN_INTERVAL_S if is_first else interval_s
            case _:
                pass
        return interval_s

    # -- failures --------------------------------------------------------------------------------------------------

    def _failed(self, reason: str) -> None:
        self._last_error = reason
        if reason != self._logged_error:
            self._logged_error = reason
            logger.warning("%s; retrying", reason)

    def _succeeded(self) -> None:
        if self._logged_error:
            logger.info("the active controller responds to broker %d again", self._node_id)
            self._logged_error = ""

    def _registration_timed_out(self) -> None:
        if self.broker_epoch < 0:
            message = (
                f"not registered in {self._config.initial_registration_timeout_ms} ms "
                f"(initial.broker.registration.timeout.ms): {self._last_error}"
            )
            logger.error("%s", message)
            self._give_up(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, message))

    def _give_up(self, error: KafkaError) -> None:
        """Fail the waiting calls: the broker was not registered in time, or stops."""
        for future in (self._caught_up, self._unfenced, self._has_left):
            if not future.done():
                future.set_exception(error)
                future.exception()  # without a waiting call asyncio would log it

    def _check_directory_failure(self, directory_id: UUID) -> None:
        if not self._offline_dirs[directory_id]:
            logger.error(
                "no controller has confirmed the failure of log directory %s: the broker has to stop", directory_id
            )
            self._on_shutdown_required()

    def _call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(delay_ms / 1000, callback))


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
