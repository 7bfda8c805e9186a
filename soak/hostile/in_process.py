"""Hostile frames for `KafkaApis.handle` of a whole broker without sockets, at more than ten thousand per second."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak.hostile.frame_forge import Frame, FrameForge, Outcome

from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.headers import decode_response_header
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.apis.table import SERVED
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import services
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.runtime.host import host_ports
from barnabas.server.security.session import KafkaPrincipal, Session

RESPONSE_SECONDS = 30.0
SLOW_SECONDS = 2.0
TOPICS = ("fuzz-0", "fuzz-1", "fuzz-2")
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.index.size.max.bytes": "4096",
    "log.retention.check.interval.ms": "1000",
    "log.retention.bytes": "1000000",
    "log.segment.bytes": "1000000",
    "log.segment.delete.delay.ms": "0",
    "max.incremental.fetch.session.cache.slots": "100",
}
"""Settings for small logs, so that a million frames do not fill the disk."""
EVE = KafkaPrincipal("User", "eve")
AUTHORIZER_SETTINGS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
ACLS = [
    AclBinding(pattern, AccessControlEntry(str(EVE), "*", operation, AclPermissionType.ALLOW))
    for pattern, operation in (
        (ResourcePattern(AclResourceType.TOPIC, TOPICS[0]), AclOperation.ALL),
        (ResourcePattern(AclResourceType.GROUP, "g", AclPatternType.PREFIXED), AclOperation.READ),
        (ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster"), AclOperation.DESCRIBE),
    )
]


class HostileConnection:
    """A substitute for a connection that records the reaction of the broker to one frame."""

    def __init__(self, listener: Any) -> None:
        self.session = Session("127.0.0.1", listener)
        self.on_close: Callable[[], None] | None = None
        self.answer: bytes | None = None
        self.is_closed = False
        self.is_lost = False
        self.last_request: Any = None
        self.is_skipped = False

    def send(self, parts: list[Any], size: int) -> None:
        assert self.answer is None, "two responses to one request"
        self.answer = b"".join(parts)
        assert len(self.answer) == size, f"{size} bytes announced, {len(self.answer)} sent"
        self.on_close = None

    def skip(self) -> None:
        self.is_skipped = True

    def refuse(self, error: ProtocolError) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self.on_close = None

    def close_after(self, seconds: float) -> None:
        self.close()

    def enlarge_send_buffer(self, size: int) -> None:
        """Do nothing: there is no socket."""

    def keep_memory(self) -> Callable[[], None]:
        """Count nothing: the frames are not received in a pool's memory."""
        return lambda: None

    def keep_request(self) -> None:
        """Do nothing: the bytes of a frame are not in a shared receive buffer."""

    def when_taken(self, callback: Callable[[], None]) -> None:
        callback()

    def out_of_memory(self, what: str) -> None:
        raise AssertionError(what)

    @property
    def is_decided(self) -> bool:
        return self.answer is not None or self.is_closed or self.is_skipped


class InProcessFuzz:
    """A broker on the running event loop, and the frames that a seed generates."""

    def __init__(self, folder: Path, seed: int, *, has_authorizer: bool = False) -> None:
        """Prepare a run. With `has_authorizer`, frames are sent by a user with ACLs for the first topic only."""
        self.seed = seed
        self.has_authorizer = has_authorizer
        self.outcomes: Counter[Outcome] = Counter()
        self.complaints: list[str] = []
        self.slowest = (0.0, b"")
        self._folder = folder
        self._pending: list[tuple[Frame, HostileConnection]] = []

    async def run(self, frames: int) -> float:
        """Handle this number of frames; return the seconds that they took, without the start of the broker."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.complaints.append(f"unhandled: {context}"))
        settings = SETTINGS | (AUTHORIZER_SETTINGS if self.has_authorizer else {})
        config = BrokerConfig.from_properties({"log.dirs": str(self._folder), **settings})
        rng = random.Random(self.seed)
        ports = dataclasses.replace(host_ports(loop, WorkerPool(loop)), random=rng, token_bytes=rng.randbytes)
        server = BrokerServer(config, ports, loop)
        await server.start()
        try:
            for name in TOPICS:
                await server.create_topic(name, 2, {})
            topics = [(topic.name, topic.topic_id) for topic in server.state.metadata.topics]
            forge = FrameForge(self.seed, topics)
            if server.state.security.acls is not None:
                await server.state.security.acls.create(ACLS)
            state = server.state
            apis = KafkaApis(
                services(state),
                loop,
                quotas=state.quotas,
                turn_queue=state.turn_queue,
                authorizer=state.security.authorizer,
            )
            began = time.perf_counter()
            for number in range(frames):
                self._handle(apis, forge.next(), server.listeners[0])
                if number % 50 == 0:
                    await asyncio.sleep(0)
                if len(self._pending) > 200:
                    await self._wait_for_responses()
            await self._wait_for_responses()
            took = time.perf_counter() - began
            if apis.failures:
                self.complaints.append(f"{apis.failures} requests failed inside the broker")
            await apis.close()
        finally:
            await server.stop()
        return took

    def _handle(self, apis: KafkaApis, frame: Frame, listener: Any) -> None:
        connection = HostileConnection(listener)
        if self.has_authorizer:
            connection.session.principal = EVE
        body = bytearray(frame.body)
        began = time.thread_time()
        try:
            apis.handle(connection, memoryview(body), 0, len(body))  # type: ignore[arg-type]
        except ProtocolError:
            connection.is_closed = True
        except Exception as error:
            self._complain(frame, f"raised {error!r}")
            return
        took = time.thread_time() - began
        if took > self.slowest[0]:
            self.slowest = (took, frame.body)
        if took > SLOW_SECONDS:
            self._complain(frame, f"took {took:.1f} s")
        self._note(frame, connection)

    def _note(self, frame: Frame, connection: HostileConnection) -> None:
        if frame.outcome is Outcome.PARK:
            self.outcomes[Outcome.PARK] += 1
            if connection.on_close is not None:
                connection.on_close()
        elif connection.is_decided:
            self._check(frame, connection)
        else:
            self._pending.append((frame, connection))

    async def _wait_for_responses(self) -> None:
        """Wait for delayed responses."""
        pending, self._pending = self._pending, []
        deadline = time.monotonic() + RESPONSE_SECONDS
        for frame, connection in pending:
            while not connection.is_decided and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
            self._check(frame, connection)

    def _check(self, frame: Frame, connection: HostileConnection) -> None:
        self.outcomes[frame.outcome] += 1
        if not connection.is_decided:
            self._complain(frame, f"got no response within {RESPONSE_SECONDS} s")
        elif frame.outcome is Outcome.CLOSE:
            if not connection.is_closed:
                self._complain(frame, "did not close the connection")
        elif frame.outcome is Outcome.QUIET:
            if connection.answer is not None:
                self._complain(frame, "(acks=0) got a response")
        elif connection.answer is None:
            self._complain(frame, "got no response")
        elif (wrong := find_response_error(frame, connection.answer[4:])) is not None:
            self._complain(frame, wrong)

    def _complain(self, frame: Frame, what: str) -> None:
        self.complaints.append(f"key {frame.key} v{frame.version} {what}; frame {frame.body[:2000].hex()}")


def find_response_error(
    frame: Frame, response: bytes, unknown_version: int = ErrorCode.UNSUPPORTED_VERSION
) -> str | None:
    """Return the fault of a response without its length, None for a valid one.

    `unknown_version` is the error that an unknown version of ApiVersions must get.
    """
    version = frame.version
    if frame.key == ApiKey.API_VERSIONS and not 0 <= version <= SERVED[ApiKey.API_VERSIONS].highest:
        if int.from_bytes(response[4:6], "big") != unknown_version:
            return f"an unknown version of ApiVersions did not get error {unknown_version:d}"
        version = 0
    try:
        correlation_id, position = decode_response_header(frame.key, version, response, 0, len(response))
        decode_response(frame.key, version, response, position, len(response))
    except ProtocolError as error:
        return f"got an invalid response: {error}"
    if correlation_id != frame.correlation_id:
        return f"got a response with correlation id {correlation_id} instead of {frame.correlation_id}"
    return None
