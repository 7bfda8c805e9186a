"""Partitions move between log directories while they are written and read, the broker dies, and topics go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.server.data_plane import DataPlane
from tests.waiting import until

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication import replica_alter_log_dirs_manager
from barnabas.simulation.disk import Mode
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import BOOTSTRAP, WorkDelays, World

NAME = TopicPartition("t", 0)
DIRS = {"log.dirs": "/one,/two", "log.segment.bytes": "20000", "log.segment.delete.delay.ms": "1000"}


class Scene:
    """A broker with two log directories and a topic `t` of one partition."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.plane = DataPlane(world)
        self.loop = world.loop

    @property
    def place(self) -> str:
        """Where the partition is."""
        place = self.plane.state.log_manager.log_dir_of(NAME)
        assert place is not None
        return place

    @property
    def elsewhere(self) -> str:
        return {"/one": "/two", "/two": "/one"}[self.place]

    async def ask(self, request: object, version: int) -> Any:
        host, _, port = BOOTSTRAP.partition(":")
        connection = await BrokerConnection.open(host, int(port), ConnectionOptions())
        try:
            return await connection.send(request, version)
        finally:
            connection.close()

    async def move(self, path: str, *, topic: str = "t", partition: int = 0, version: int = 2) -> ErrorCode:
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        answer = await self.ask(request, version)
        (result,) = answer.results
        (told,) = result.partitions
        assert (result.topic_name, told.partition_index) == (topic, partition)
        return ErrorCode(told.error_code)

    async def described(self) -> dict[tuple[str, bool], tuple[int, int]]:
        """(directory, is future) -> (size, lag) of the partition."""
        answer = await self.ask(DescribeLogDirsRequest(topics=None), 4)
        return {
            (result.log_dir, one.is_future_key): (one.partition_size, one.offset_lag)
            for result in answer.results
            for topic in result.topics
            if topic.name == "t"
            for one in topic.partitions
        }

    async def produce(self, values: list[bytes], acknowledged: list[bytes], *, acks: int = -1) -> None:
        """Send values; those that are acknowledged are noted."""
        producer = Producer(BOOTSTRAP, acks=cast(Any, acks), linger_ms=1, rng=random.Random(1), request_timeout_ms=2000)
        await producer.start()
        try:
            for value in values:
                await (await producer.send("t", value, partition=0))
                acknowledged.append(value)
        finally:
            await producer.close()

    def stored(self) -> list[bytes]:
        """Every value in the log, read from its files."""
        log = self.plane.state.log_manager.logs[NAME]
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            for batch in iter_batches(log.read(offset, 100_000, min_one_message=True).data):
                found += [bytes(record.value or b"") for record in batch.records()]
                offset = batch.last_offset + 1
        return found

    def folders(self) -> dict[str, list[str]]:
        """The partition folders of each directory."""
        disk = self.world.broker.disk
        return {path: [name for name in disk.list_dir(path) if name.startswith("t-")] for path in ("/one", "/two")}


Talk = Callable[[Scene], Awaitable[None]]


def play(talk: Talk, *, slow: float = 0.001, seed: int = 7, log_dirs: str = DIRS["log.dirs"]) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, seed, {**DIRS, "log.dirs": log_dirs}, delays=WorkDelays(usual=slow))
        await world.broker.start()
        scene = Scene(world)
        await world.create_topic("t")
        await talk(scene)
        await world.broker.stop()

    run(main, seed)


def values(count: int, prefix: str = "v") -> list[bytes]:
    return [f"{prefix}-{number}/".encode() + b"x" * 500 for number in range(count)]


@pytest.mark.parametrize("what", ["a damaged length", "nothing where the log should go on"])
def test_a_move_that_cannot_get_on_ends(what: str) -> None:
    async def talk(scene: Scene) -> None:
        await scene.produce(values(50), [])
        before = scene.place
        log = scene.plane.state.log_manager.logs[NAME]
        if what == "a damaged length":
            scene.world.broker.disk.overwrite(log.active_segment.records.path, 8, (-12).to_bytes(4, "big", signed=True))
        else:
            log.roll(expected_next_offset=60)
            log.log_end_offset = 60
            log.update_high_watermark(60)
        assert await scene.move(scene.elsewhere) is ErrorCode.NONE
        await until(lambda: not scene.plane.state.log_manager.future_logs.copies)
        await until(lambda: scene.folders() == {before: ["t-0"], scene.elsewhere: []})
        assert scene.place == before

    play(talk)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_partition_moves_with_all_its_records(version: int) -> None:
    async def talk(scene: Scene) -> None:
        sent: list[bytes] = []
        await scene.produce(values(200), sent)
        before, after = scene.place, scene.elsewhere
        assert await scene.move(after, version=version) is ErrorCode.NONE
        await until(lambda: scene.place == after)
        assert scene.stored() == sent == values(200)
        await scene.produce(values(10, "later"), sent)
        assert scene.stored() == sent
        assert list(await scene.described()) == [(after, False)]
        assert scene.folders()[after] == ["t-0"]
        await until(lambda: not scene.folders()[before])
        await scene.world.broker.stop()
        await scene.world.broker.start()
        assert scene.place == after and scene.stored() == sent

    play(talk)


@pytest.mark.parametrize("acks", [1, -1])
def test_it_moves_while_it_is_written(acks: int) -> None:
    async def talk(scene: Scene) -> None:
        sent: list[bytes] = []
        after, count = scene.elsewhere, 400 if acks == -1 else 2500
        writing = asyncio.ensure_future(scene.produce(values(count), sent, acks=acks))
        await until(lambda: len(sent) > 50)
        assert await scene.move(after) is ErrorCode.NONE
        await until(lambda: scene.place == after)
        assert not writing.done()
        await writing
        assert scene.stored() == sent == values(count)

    play(talk, slow=0.01 if acks == -1 else 0.05)


def test_a_copy_is_described_with_how_far_it_is_behind() -> None:
    async def talk(scene: Scene) -> None:
        await scene.produce(values(100), [])
        before, after = scene.place, scene.elsewhere
        assert await scene.move(after) is ErrorCode.NONE
        await until(lambda: scene.plane.state.log_manager.future_logs.copies[NAME].log is not None)
        described = await scene.described()
        size, lag = described[before, False]
        assert size > 0 and lag == 0
        assert described[after, True] == (0, 100)
        assert await scene.move(before) is ErrorCode.NONE  # and all is as before
        await until(lambda: not any("future" in name for name in scene.folders()[after]))
        assert list(await scene.described()) == [(before, False)]

    play(talk, slow=2.0)


def test_relative_log_dirs_are_described_and_accepted_as_absolute_paths() -> None:
    async def talk(scene: Scene) -> None:
        (before, _), *others = await scene.described()
        assert not others
        directories = {str(Path(name).absolute()) for name in ("one", "two")}
        assert before in directories
        (after,) = directories - {before}
        assert await scene.move("one") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await scene.move(after) is ErrorCode.NONE
        await until(lambda: scene.place == after)
        assert list(await scene.described()) == [(after, False)]

    play(talk, log_dirs="one,two")


def test_what_cannot_be_moved() -> None:
    async def talk(scene: Scene) -> None:
        assert await scene.move("/three") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await scene.move("one") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await scene.move("/one", topic="nobody") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await scene.move("/one", partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await scene.move("/one", topic="x" * 240) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await scene.move(scene.place) is ErrorCode.NONE
        scene.plane.state.log_manager.held.fail_log_dir(scene.elsewhere)
        assert await scene.move(scene.elsewhere) is ErrorCode.KAFKA_STORAGE_ERROR

    play(talk)


def test_a_topic_is_deleted_in_the_middle_of_a_move() -> None:
    async def talk(scene: Scene) -> None:
        await scene.produce(values(100), [])
        assert await scene.move(scene.elsewhere) is ErrorCode.NONE
        await scene.world.delete_topic("t")
        assert NAME not in scene.plane.state.log_manager.future_logs.copies
        await scene.world.create_topic("t")
        sent: list[bytes] = []
        await scene.produce(values(5, "new"), sent)
        await until(lambda: sum(map(len, scene.folders().values())) == 1)
        assert scene.stored() == sent

    play(talk, slow=0.5)


def test_records_deleted_meanwhile_stay_deleted() -> None:
    async def talk(scene: Scene) -> None:
        await scene.produce(values(200), [])
        after = scene.elsewhere
        assert await scene.move(after) is ErrorCode.NONE
        partition = scene.plane.state.replica_manager.get_leader_partition("t", 0)
        partition.delete_records(120)
        await until(lambda: scene.place == after)
        assert partition.log.log_start_offset == 120
        await scene.world.broker.stop()
        await scene.world.broker.start()
        assert scene.plane.state.log_manager.logs[NAME].log_start_offset == 120
        with pytest.raises(KafkaError):
            scene.plane.state.log_manager.logs[NAME].read(119, 1000)

    play(talk, slow=0.05)


@pytest.mark.parametrize("mode", ["kill", "A", "B"])
@pytest.mark.parametrize("first", range(0, 40, 20))
def test_a_move_outlives_the_broker_wherever_it_dies(mode: Mode, first: int) -> None:
    for seed in range(first, first + 20):

        async def talk(scene: Scene, seed: int = seed) -> None:
            rng = random.Random(seed)
            sent: list[bytes] = []
            await scene.produce(values(60), sent)
            after = scene.elsewhere
            assert await scene.move(after) is ErrorCode.NONE
            writing = asyncio.ensure_future(scene.produce(values(1000, "more"), sent))
            await asyncio.sleep(rng.uniform(0, 0.4))
            scene.world.broker.crash(mode)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await scene.world.broker.start()
            assert scene.stored()[: len(sent)] == sent, "an acknowledged record is lost"
            # Whether it was moved, on its way, or had not got far enough to be remembered: it can go there now.
            if scene.place != after:
                assert await scene.move(after) is ErrorCode.NONE
            await until(lambda: scene.place == after)
            stored = scene.stored()
            assert stored[: len(sent)] == sent
            await scene.produce(values(5, "last"), stored)
            assert scene.stored() == stored

        play(talk, slow=0.05, seed=seed)


def test_a_move_takes_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_alter_log_dirs_manager, "PIECE_BYTES", 500)

    async def talk(scene: Scene) -> None:
        await scene.produce(values(200), [])
        size = scene.plane.partition().log.size
        rate = {"replica.alter.log.dirs.io.max.bytes.per.second": str(size // 20)}
        scene.plane.state.dynamic_config.broker_config_changed(rate, per_broker=True)
        after, began = scene.elsewhere, scene.world.loop.time()
        assert await scene.move(after) is ErrorCode.NONE
        await asyncio.sleep(5)
        assert scene.place != after
        scene.plane.state.dynamic_config.broker_config_changed({}, per_broker=True)
        await until(lambda: scene.place == after)
        assert scene.world.loop.time() - began < 10, "and the limit may be lifted"

    play(talk)
