"""Requests leave no reference cycles: the broker's collector runs so seldom that cycles per request add up."""

from __future__ import annotations

import asyncio
import gc
import importlib
import pkgutil
import time
from collections import Counter
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import pytest
import uvloop
from soak.hostile.frame_forge import Frame, FrameForge, Outcome, expect
from soak.hostile.in_process import ACLS, AUTHORIZER_SETTINGS, EVE, SETTINGS, HostileConnection
from tests.frames import request_body

from barnabas.protocol import messages
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.apis.table import SERVED
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import services
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.runtime.host import host_ports
from barnabas.server.security.session import ANONYMOUS, KafkaPrincipal

LEGAL_PER_VERSION, SPOILED_PER_VERSION = 4, 2
NEW_GROUPS = 10
ANSWER_SECONDS = 10.0
TOPICS = ("t", "u")


class CycleCounter:
    """A broker that handles frames while garbage collection is off."""

    def __init__(self, server: BrokerServer, apis: KafkaApis, principal: KafkaPrincipal) -> None:
        self.server = server
        self.apis = apis
        self.principal = principal

    async def play(self, frames: list[Frame]) -> None:
        """Handle the frames and wait until all are decided; parked requests end with their connections."""
        pending = []
        for frame in frames:
            connection = HostileConnection(self.server.listeners[0])
            connection.session.principal = self.principal
            body = bytearray(frame.body)
            try:
                self.apis.handle(connection, memoryview(body), 0, len(body))  # type: ignore[arg-type]
            except ProtocolError:
                connection.is_closed = True
            if frame.outcome is not Outcome.PARK:
                pending.append(connection)
            elif connection.on_close is not None:
                connection.on_close()
            await asyncio.sleep(0)
        deadline = time.monotonic() + ANSWER_SECONDS
        while not all(one.is_decided for one in pending) and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        pending.clear()
        for _ in range(5):
            await asyncio.sleep(0)

    async def cycles_of(self, frames: list[Frame]) -> Counter[str]:
        """By type, the objects that these requests left in reference cycles."""
        gc.collect()
        gc.disable()
        try:
            await self.play(frames)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            return Counter(_described(one) for one in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


def _described(one: Any) -> str:
    if isinstance(one, FrameType):
        return f"frame of {one.f_code.co_qualname}"
    if isinstance(one, TracebackType):
        return "traceback"
    return type(one).__qualname__


def requests_of(key: ApiKey, forge: FrameForge) -> list[Frame]:
    """Forge requests of every version of an API, legal ones and spoiled ones."""
    _, lowest, highest, *_ = SERVED[key]
    forged = [
        forge.of_version(key, version, damage=is_damaged)
        for version in range(lowest, highest + 1)
        for is_damaged in [False] * LEGAL_PER_VERSION + [True] * SPOILED_PER_VERSION
    ]
    return [frame for frame in forged if frame is not None]


def offset_commits_of_new_groups() -> list[Frame]:
    """Forge commits of every version by groups that do not exist, to partitions that do."""
    _, lowest, highest, *_ = SERVED[ApiKey.OFFSET_COMMIT]
    frames = []
    for version in range(lowest, highest + 1):
        for number in range(NEW_GROUPS):
            partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(2)]
            topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in TOPICS]
            request = OffsetCommitRequest(
                group_id=f"g{version}-{number}", generation_id_or_member_epoch=-1, topics=topics
            )
            frame = expect(request_body(ApiKey.OFFSET_COMMIT, version, request, correlation_id=number))
            assert frame is not None
            frames.append(frame)
    return frames


async def cycles_by_api(folder: Path, settings: dict[str, str]) -> dict[str, Counter[str]]:
    # A dataclass with slots leaves the class that it replaces, when a module is first imported.
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        importlib.import_module(module.name)
    loop = asyncio.get_running_loop()
    config = BrokerConfig.from_properties({"log.dirs": str(folder), **SETTINGS, **settings})
    server = BrokerServer(config, host_ports(loop, WorkerPool(loop)), loop)
    await server.start()
    state = server.state
    apis = KafkaApis(
        services(state), loop, quotas=state.quotas, turn_queue=state.turn_queue, authorizer=state.security.authorizer
    )
    try:
        for name in TOPICS:
            await server.create_topic(name, 2, {})
        if state.security.acls is not None:
            await state.security.acls.create(ACLS)
        topics = [(topic.name, topic.topic_id) for topic in state.metadata.topics]
        forge = FrameForge(1, topics, variants=0, with_bombs=False)
        counter = CycleCounter(server, apis, EVE if settings else ANONYMOUS)
        found = {}
        for key in SERVED:
            # The first requests load and create what is kept.
            await counter.play(requests_of(key, forge))
            found[key.name] = await counter.cycles_of(requests_of(key, forge))
        found["OFFSET_COMMIT of new groups"] = await counter.cycles_of(offset_commits_of_new_groups())
        return found
    finally:
        await apis.close()
        await server.stop()


@pytest.mark.timeout(600)  # the largest request of each API, which takes a minute and a half on a busy machine
@pytest.mark.parametrize(
    "settings",
    [pytest.param({}, id="open"), pytest.param(AUTHORIZER_SETTINGS, id="with ACLs", marks=pytest.mark.verify)],
)
def test_no_request_leaves_a_reference_cycle(tmp_path: Path, settings: dict[str, str]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(cycles_by_api(tmp_path, settings))
    assert {name: types for name, types in found.items() if types} == {}
