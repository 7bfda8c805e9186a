"""The observer of the metadata log against scripted controllers, on a simulated disk and in simulated time."""

import asyncio
import errno
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.server.raft.scripted_quorum import CLUSTER_ID, ScriptedQuorum

from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VoterEndpoint,
    VotersRecord,
    VotersRecordVoter,
    decode_metadata_record,
    encode_metadata_record,
)
from barnabas.protocol.record_batch import iter_batches
from barnabas.server.image.metadata_batch_loader import CommittedBatch
from barnabas.server.image.metadata_loader import LoadedSnapshot, MetadataLoader
from barnabas.server.raft import kafka_raft_client, kafka_raft_log
from barnabas.server.raft.kafka_raft_client import KafkaRaftClient
from barnabas.server.raft.kafka_raft_log import DivergentLogError, KafkaRaftLog, MetadataLogConfig, control_records_of
from barnabas.server.raft.observer_state import ForeignClusterError, QuorumConfig, parse_bootstrap_servers
from barnabas.server.raft.snapshot_batches import SnapshotBatches
from barnabas.server.raft.snapshot_generator import SnapshotGenerator
from barnabas.simulation.disk import SimDisk
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import SimWork, WorkDelays
from barnabas.storage.metadata_snapshot import OffsetAndEpoch

NODE_ID = 7
DIRECTORY_ID = UUID(int=70)
FOLDER = "/data/__cluster_metadata-0"


class Settings:
    """A listener that keeps the settings of brokers, as the metadata contain them."""

    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}
        self.history: list[tuple[str, str | None]] = []
        self.next_offset = 0
        self.snapshots: list[tuple[int, int, int]] = []
        self.batches: list[CommittedBatch] = []

    def _apply(self, value: bytes) -> None:
        record = decode_metadata_record(value)
        if isinstance(record, ConfigRecord):
            self.values[record.name] = record.value
            self.history.append((record.name, record.value))

    async def handle_commit(self, batch: CommittedBatch) -> None:
        assert batch.base_offset == self.next_offset, "the batches follow each other without a gap"
        self.next_offset = batch.last_offset + 1
        self.batches.append(batch)
        for value in batch.records:
            self._apply(value)

    async def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.snapshots.append(snapshot[:3])
        self.values.clear()
        async for values in snapshot.batches:
            for value in values:
                self._apply(value)
        self.next_offset = snapshot.last_contained_offset + 1


class Observer:
    """An observer with its disk. `restart` replaces it by one that continues from the disk."""

    def __init__(self, loop: SimLoop, quorum: ScriptedQuorum, *, cluster_id: str = CLUSTER_ID) -> None:
        self.loop = loop
        self.quorum = quorum
        self.disk = SimDisk()
        self.disk.make_dirs("/data")
        self.errors: list[BaseException] = []
        self.log_config = MetadataLogConfig()
        self.fetch_snapshot_max_bytes = 64
        self.cluster_id = cluster_id
        self.bootstrap = quorum.bootstrap
        self.work = SimWork(loop, random.Random(2), WorkDelays())
        self.client: KafkaRaftClient
        self.settings: Settings

    async def start(self) -> None:
        self.settings = Settings()
        self.client = KafkaRaftClient(
            node_id=NODE_ID,
            cluster_id=self.cluster_id,
            directory_id=DIRECTORY_ID,
            config=QuorumConfig(self.bootstrap, fetch_snapshot_max_bytes=self.fetch_snapshot_max_bytes),
            open_log=lambda: KafkaRaftLog.open(
                "/data", config=self.log_config, fs=self.disk, now_ms=lambda: 0, rng=random.Random(1)
            ),
            send_request=self.quorum.send_request,
            work=self.work,
            loop=self.loop,
            rng=random.Random(4),
            now_ms=lambda: 0,
            on_fatal=self.errors.append,
        )
        self.client.register(self.settings)
        await self.client.start()

    async def restart(self) -> None:
        await self.client.close()
        await self.start()

    async def crash(self) -> None:
        """Lose everything that is not on the disk yet."""
        for task in self.client._tasks:
            task.cancel()
        await asyncio.gather(*self.client._tasks, return_exceptions=True)
        self.disk = self.disk.survivor(5, "A")
        await self.start()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    async def caught_up(self) -> None:
        await self.until(lambda: self.settings.next_offset == self.quorum.high_watermark == self.client.high_watermark)


def play(story: Callable[[Observer, ScriptedQuorum], Awaitable[None]], seed: int = 1, **more: str) -> None:
    async def main(loop: SimLoop) -> None:
        quorum = ScriptedQuorum()
        quorum.elect(1)
        observer = Observer(loop, quorum, **more)
        await observer.start()
        await story(observer, quorum)
        assert observer.errors == []
        await observer.client.close()

    run(main, seed)


def config_record(name: str, value: str) -> bytes:
    return encode_metadata_record(ConfigRecord(resource_type=4, resource_name="", name=name, value=value))


@pytest.mark.parametrize("seed", range(4))
def test_an_observer_finds_the_leader_and_delivers_the_committed_records(seed: int) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        for number in range(20):
            quorum.set("a", str(number))
        await observer.caught_up()
        assert [value for _, value in observer.settings.history] == [str(number) for number in range(20)]
        assert observer.client.leader_and_epoch == (1, 2)
        assert observer.client.leader_endpoint == ("controller1", 9093)
        batch = observer.settings.batches[-1]
        assert (batch.last_offset, batch.epoch, batch.append_timestamp) == (20, 2, 1020)
        quorum.set("a", "later")
        await observer.caught_up()
        assert observer.settings.values == {"a": "later"}
        first = quorum.requests[0][1]
        assert first.replica_state.replica_id == NODE_ID
        assert first.topics[0].partitions[0].replica_directory_id == DIRECTORY_ID

    play(story, seed)


def test_uncommitted_records_are_stored_and_not_delivered() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        quorum.set("a", "2", commit=False)
        end = quorum.end
        await observer.until(lambda: quorum.fetched_from == end)
        await asyncio.sleep(2)
        assert observer.settings.values == {"a": "1"}
        quorum.commit()
        await observer.caught_up()
        assert observer.settings.values == {"a": "2"}

    play(story)


def test_uncommitted_records_that_a_new_leader_lacks_are_replaced() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        kept = quorum.end
        quorum.set("a", "lost", commit=False)
        quorum.set("a", "lost, too", commit=False)
        end = quorum.end
        await observer.until(lambda: quorum.fetched_from == end)
        quorum.elect(2, keep=kept)
        quorum.set("b", "2")
        await observer.caught_up()
        assert observer.settings.history == [("a", "1"), ("b", "2")]
        assert observer.client.leader_and_epoch == (2, 3)

    play(story)


def test_divergent_records_on_the_disk_are_truncated_after_a_restart() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        kept = quorum.end
        quorum.set("a", "lost", commit=False)
        end = quorum.end
        await observer.until(lambda: quorum.fetched_from == end)
        await observer.client.close()
        quorum.elect(3, keep=kept)
        quorum.set("b", "2")
        await observer.start()
        await observer.caught_up()
        assert observer.settings.history == [("a", "1"), ("b", "2")]

    play(story)


def test_the_removal_of_committed_records_is_fatal() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        quorum.set("a", "2")
        await observer.caught_up()
        quorum.high_watermark = 2
        quorum.elect(2, keep=2)
        await observer.until(lambda: bool(observer.errors))
        assert isinstance(observer.errors.pop(), DivergentLogError)

    play(story)


def test_a_restart_continues_from_the_disk() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        await observer.caught_up()
        end = quorum.end
        await observer.client.close()
        quorum.requests.clear()
        quorum.set("b", "2")
        await observer.start()
        await observer.caught_up()
        assert observer.settings.history == [("a", "1"), ("b", "2")]
        assert min(one.topics[0].partitions[0].fetch_offset for _, one in quorum.requests) == end
        stored = json.loads(observer.disk.read_bytes(f"{FOLDER}/quorum-state"))
        assert (stored["leaderId"], stored["leaderEpoch"], stored["data_version"]) == (1, 2, 1)

    play(story)


def test_records_that_a_crash_loses_are_fetched_again() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        for number in range(50):
            quorum.set("a", str(number))
        await observer.caught_up()
        await observer.crash()
        await observer.caught_up()
        assert observer.settings.values == {"a": "49"}

    play(story)


def test_another_leader_is_found_after_the_failure_of_the_leader() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        await observer.caught_up()
        quorum.down = {1}
        quorum.elect(3)
        quorum.set("a", "2")
        await observer.caught_up()
        assert observer.client.leader_endpoint == ("controller3", 9093)
        quorum.down = {3}
        quorum.elect(None)
        await asyncio.sleep(5)
        assert observer.client.leader_and_epoch == (None, 4)
        assert observer.client.leader_endpoint is None
        quorum.elect(1)
        await observer.caught_up()
        assert observer.client.leader_and_epoch == (1, 5)

    play(story)


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_the_voters_in_the_metadata_replace_bootstrap_servers_that_are_gone(is_snapshot: bool) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        voters = [
            VotersRecordVoter(
                voter_id=number,
                endpoints=[
                    VoterEndpoint(name="OTHER", host="controller8", port=9093),
                    VoterEndpoint(name="CONTROLLER", host=f"controller{number}", port=9093),
                ],
            )
            for number in (1, 2, 3)
        ]
        quorum.append_control(VotersRecord(version=0, voters=voters))
        await observer.caught_up()
        if is_snapshot:
            # The snapshot of the replica contains the record, which is not in its log any more.
            batch = observer.settings.batches[-1] if observer.settings.batches else None
            assert batch is not None
            snapshot_id = OffsetAndEpoch(quorum.high_watermark, quorum.epoch)
            assert await observer.client.create_snapshot(snapshot_id, 0, no_values())
        observer.bootstrap = (("controller9", 9093),)
        quorum.down = {8, 9}
        await observer.restart()
        quorum.set("b", "2")
        await observer.caught_up()
        assert observer.settings.values["b"] == "2"
        # Another leader is found by the addresses of the voters, too.
        quorum.down = {1, 8, 9}
        quorum.elect(3)
        quorum.set("c", "3")
        await observer.caught_up()
        assert observer.settings.values["c"] == "3"
        assert 8 not in {node for node, _ in quorum.requests}

    play(story)


async def no_values() -> AsyncIterator[bytes]:
    """Yield no record of the metadata."""
    no_records: tuple[bytes, ...] = ()
    for value in no_records:
        yield value


def test_a_leader_that_has_resigned_in_its_epoch_is_not_asked_without_a_pause() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        await observer.caught_up()
        quorum.leader = None
        quorum.changed.set()
        await asyncio.sleep(1)
        quorum.requests.clear()
        await asyncio.sleep(1)
        assert len(quorum.requests) <= 1 / 0.02
        assert {node for node, _ in quorum.requests} == {1, 2, 3}, "others may know a newer leader"

    play(story)


def test_a_resigned_leader_that_is_cut_off_does_not_hide_the_next_leader() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        await observer.caught_up()
        quorum.cut_off[1] = (None, quorum.epoch)
        quorum.elect(2)
        quorum.set("a", "2")
        await observer.caught_up()
        assert observer.client.leader_and_epoch == (2, 3)

    play(story)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_snapshot_that_cannot_be_fetched_is_requested_with_pauses(is_stored: bool) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        quorum.set("a", "1")
        snapshot_id = quorum.take_snapshot(config_record("a", "1"))
        if is_stored:
            await observer.start()
            await observer.caught_up()
            quorum.log_start = quorum.end + 5  # the leader names this snapshot for each fetch
        else:
            quorum.snapshots = {OffsetAndEpoch(snapshot_id.offset, snapshot_id.epoch): b""}
            quorum.is_without_snapshots = True
            await observer.start()
        await asyncio.sleep(1)
        quorum.requests.clear()
        await asyncio.sleep(1)
        assert 0 < len(quorum.requests) <= 2 / 0.02

    play(story)


def test_a_broker_among_the_bootstrap_servers_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        quorum.cut_off = dict.fromkeys((1, 2, 3), (None, -1))
        await observer.start()
        await asyncio.sleep(30)
        assert len(quorum.requests) < 40
        lines = [one for one in caplog.records if "is it a controller?" in one.getMessage()]
        assert len(lines) == 3, "one for each server"

    play(story)


def test_records_below_the_leaders_log_are_fetched_as_a_snapshot() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.caught_up()
        await observer.client.close()
        quorum.set("a", "1")
        quorum.set("b", "2")
        snapshot_id = quorum.take_snapshot(config_record("a", "1"), config_record("b", "2"))
        quorum.set("c", "3")
        await observer.start()
        await observer.caught_up()
        assert observer.settings.values == {"a": "1", "b": "2", "c": "3"}
        assert observer.settings.snapshots == [(snapshot_id.offset - 1, snapshot_id.epoch, 777)]
        parts = [one for _, one in quorum.requests if isinstance(one, FetchSnapshotRequest)]
        content = quorum.snapshots[snapshot_id]
        assert [one.topics[0].partitions[0].position for one in parts] == list(range(0, len(content), 64))
        name = f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"
        assert observer.disk.read_bytes(f"{FOLDER}/{name}") == content
        # A restart delivers the stored snapshot and the log after it.
        quorum.requests.clear()
        await observer.restart()
        await observer.caught_up()
        assert observer.settings.values == {"a": "1", "b": "2", "c": "3"}
        assert not [one for _, one in quorum.requests if isinstance(one, FetchSnapshotRequest)]

    play(story)


def test_a_snapshot_replaces_what_was_delivered_before() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        await observer.caught_up()
        quorum.down = {1, 2, 3}
        await asyncio.sleep(1)
        quorum.set("b", "2")
        quorum.take_snapshot(config_record("b", "2"))
        quorum.down = set()
        await observer.caught_up()
        assert observer.settings.values == {"b": "2"}
        quorum.set("c", "3")
        await observer.caught_up()
        assert observer.settings.values == {"b": "2", "c": "3"}

    play(story)


def test_a_snapshot_that_the_leader_deletes_is_replaced_by_a_newer_one() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        quorum.set("a", "1")
        first = quorum.take_snapshot(config_record("a", "1"))
        observer.fetch_snapshot_max_bytes = 4
        await observer.start()
        await observer.until(lambda: quorum.is_fetching_snapshot)
        quorum.set("a", "2")
        second = quorum.take_snapshot(config_record("a", "2"))
        await observer.caught_up()
        assert observer.settings.snapshots == [(second.offset - 1, second.epoch, 777)]
        names = [name for name in observer.disk.list_dir(FOLDER) if ".checkpoint" in name]
        assert names == [f"{second.offset:020d}-{second.epoch:010d}.checkpoint"]
        assert first != second

    play(story)


def test_a_leader_change_during_a_snapshot_begins_it_again() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        quorum.set("a", "1")
        quorum.take_snapshot(config_record("a", "1"))
        observer.fetch_snapshot_max_bytes = 4
        await observer.start()
        await observer.until(lambda: quorum.is_fetching_snapshot)
        quorum.elect(2)
        assert observer.settings.snapshots == []
        await observer.caught_up()
        assert observer.settings.values == {"a": "1"}

    play(story)


def test_the_log_has_segments_of_the_configured_size() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        observer.log_config = replace(observer.log_config, segment_bytes=400)
        await observer.start()
        for number in range(30):
            quorum.set("a", str(number))
            await observer.caught_up()
        segments = [name for name in observer.disk.list_dir(FOLDER) if name.endswith(".log")]
        assert len(segments) > 5
        await observer.restart()
        await observer.caught_up()
        assert len(observer.settings.history) == 30

    play(story)


def test_controllers_with_an_older_epoch_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Controllers that were formatted again with the same cluster id begin with the first epoch."""

    def lines() -> list[str]:
        return [one.getMessage() for one in caplog.records if "have leader epoch" in one.getMessage()]

    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.caught_up()
        quorum.elect(2)
        await observer.caught_up()
        await observer.client.close()
        epoch, quorum.epoch = quorum.epoch, 1
        await observer.start()
        await asyncio.sleep(1)
        assert lines() == [], "a controller may not know of an election yet"
        await asyncio.sleep(60)
        assert len(lines()) == 1
        assert f"epoch 1, below epoch {epoch}" in lines()[0]
        quorum.epoch = epoch
        await observer.caught_up()

    play(story)


def test_controllers_of_another_cluster_end_the_start() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        await observer.until(lambda: bool(observer.errors))
        assert {node for node, _ in quorum.requests} == {1, 2, 3}
        assert len(quorum.requests) < 20, "it pauses after an error"
        (error,) = observer.errors
        assert isinstance(error, ForeignClusterError)
        assert "not another" in str(error)
        observer.errors.clear()
        assert observer.settings.history == []

    play(story, cluster_id="another")


def test_a_controller_of_another_cluster_among_the_bootstrap_servers_is_not_used() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        quorum.foreign = {2, 3}
        quorum.set("a", "1")
        await observer.start()
        await observer.caught_up()
        quorum.foreign = {1, 2, 3}
        await asyncio.sleep(10)
        assert observer.errors == [], "it has followed a leader of its cluster"

    play(story)


def test_a_damaged_response_is_fetched_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.caught_up()
        quorum.damage = True
        quorum.set("a", "1")
        await asyncio.sleep(2)
        assert observer.errors == []
        assert observer.settings.values == {}
        quorum.damage = False
        await observer.caught_up()
        assert observer.settings.values == {"a": "1"}
        lines = [one for one in caplog.records if "a damaged response" in one.getMessage()]
        assert len(lines) == 1

    play(story)


@pytest.mark.parametrize("damage", ["bytes", "footer"])
def test_a_damaged_snapshot_of_the_leader_does_not_replace_the_log(damage: str) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.set("a", "1")
        await observer.caught_up()
        await observer.client.close()
        quorum.set("a", "2")
        snapshot_id = quorum.take_snapshot(config_record("a", "2"))
        content = quorum.snapshots[snapshot_id]
        *_, footer = iter_batches(content)
        wrong = content[: footer.position] if damage == "footer" else content[:90] + b"\xff\xff" + content[92:]
        quorum.snapshots[snapshot_id] = wrong
        await observer.start()
        await asyncio.sleep(2)
        assert observer.errors == []
        assert not [name for name in observer.disk.list_dir(FOLDER) if ".checkpoint" in name]
        quorum.snapshots[snapshot_id] = content
        await observer.caught_up()
        assert observer.settings.values == {"a": "2"}

    play(story)


def test_a_damaged_snapshot_on_the_disk_is_fetched_again_at_the_start() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        quorum.set("a", "1")
        quorum.take_snapshot(config_record("a", "1"))
        quorum.set("b", "2")
        await observer.start()
        await observer.caught_up()
        await observer.client.close()
        (name,) = [name for name in observer.disk.list_dir(FOLDER) if ".checkpoint" in name]
        observer.disk.overwrite(f"{FOLDER}/{name}", 90, b"\xff\xff")
        await observer.start()
        await observer.caught_up()
        assert observer.settings.values == {"a": "1", "b": "2"}
        assert observer.settings.snapshots, "the snapshot was fetched again"

    play(story)


def files(disk: SimDisk, suffix: str) -> list[str]:
    """Return the paths of the replica's files with a suffix, oldest first."""
    return [f"{FOLDER}/{name}" for name in disk.list_dir(FOLDER) if name.endswith(suffix)]


def remove(disk: SimDisk, paths: list[str]) -> None:
    assert paths
    for path in paths:
        disk.unlink(path)


def create(disk: SimDisk, *names: str) -> None:
    for name in names:
        disk.open(f"{FOLDER}/{name}", create=True).close()


def keep_a_snapshot_from_before_the_log(disk: SimDisk) -> None:
    *older, newest = files(disk, ".checkpoint")
    remove(disk, older)
    disk.rename(newest, f"{FOLDER}/{5:020}-{1:010}.checkpoint")


DAMAGES: dict[str, Callable[[SimDisk], None]] = {
    "no snapshot": lambda disk: remove(disk, files(disk, ".checkpoint")),
    "no newest snapshot": lambda disk: remove(disk, files(disk, ".checkpoint")[-1:]),
    "no older snapshot": lambda disk: remove(disk, files(disk, ".checkpoint")[:-1]),
    "torn newest snapshot": lambda disk: disk.cut(files(disk, ".checkpoint")[-1], 150),
    "empty newest snapshot": lambda disk: disk.cut(files(disk, ".checkpoint")[-1], 0),
    "unreadable newest snapshot": lambda disk: disk.fail_read(files(disk, ".checkpoint")[-1], 0, 100),
    "torn older snapshot": lambda disk: disk.cut(files(disk, ".checkpoint")[0], 50),
    "unreadable older snapshot": lambda disk: disk.fail_read(files(disk, ".checkpoint")[0], 0, 100),
    "a snapshot from before the log": keep_a_snapshot_from_before_the_log,
    "unfinished and deleted snapshots": lambda disk: create(
        disk,
        *(
            f"{900:020}-{2:010}{suffix}"
            for suffix in (".checkpoint.part", "-3784567.checkpoint.part", ".checkpoint.deleted")
        ),
    ),
    "no segment": lambda disk: remove(disk, files(disk, ".log")),
    "no first segment": lambda disk: remove(disk, files(disk, ".log")[:1]),
    "a log that ends before the newest snapshot": lambda disk: remove(disk, files(disk, ".log")[1:]),
    "torn first segment": lambda disk: disk.cut(files(disk, ".log")[0], 100),
    "rotten last segment": lambda disk: disk.overwrite(files(disk, ".log")[-1], 70, b"\xff\xff"),
    "no indexes": lambda disk: remove(disk, files(disk, "index")),
    "no leader epochs": lambda disk: remove(disk, files(disk, "leader-epoch-checkpoint")),
    "torn leader epochs": lambda disk: disk.cut(files(disk, "leader-epoch-checkpoint")[0], 3),
    "no quorum state": lambda disk: remove(disk, files(disk, "quorum-state")),
    "torn quorum state": lambda disk: disk.cut(files(disk, "quorum-state")[0], 20),
    "empty quorum state": lambda disk: disk.cut(files(disk, "quorum-state")[0], 0),
    "no partition metadata": lambda disk: remove(disk, files(disk, "partition.metadata")),
    "torn partition metadata": lambda disk: disk.cut(files(disk, "partition.metadata")[0], 12),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_missing_file_is_made_again_from_the_records_of_the_controllers(damage: str) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        observer.log_config = MetadataLogConfig(segment_bytes=400, retention_bytes=1000)
        await observer.start()
        loader = MetadataLoader(high_watermark=lambda: observer.client.high_watermark, lock=asyncio.Lock())
        generator = SnapshotGenerator(
            observer.client, observer.loop, max_record_bytes=500, on_fatal=observer.errors.append
        )
        await loader.install_publishers(generator)
        observer.client.register(loader)
        for number in range(100):
            if number == 80:
                await asyncio.sleep(25)  # the log begins after the first records, which snapshots have
            quorum.set(f"a{number % 30}", str(number))
            await observer.caught_up()
        expected = dict(observer.settings.values)
        await generator.close()
        await observer.client.close()
        assert int(files(observer.disk, ".log")[0][-24:-4]) > 0
        assert len(files(observer.disk, ".checkpoint")) > 1
        DAMAGES[damage](observer.disk)
        for _ in range(2):
            await observer.start()
            await observer.caught_up()
            assert observer.settings.values == expected
            await asyncio.sleep(25)  # old snapshots are deleted
            assert observer.errors == []
            await observer.client.close()
        assert not [name for name in observer.disk.list_dir(FOLDER) if name.endswith((".part", ".deleted"))]
        await observer.start()

    play(story)


def test_a_flush_without_space_is_repeated() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.caught_up()
        fault = observer.disk.fail("pwrite", errno.ENOSPC, "leader-epoch-checkpoint", times=1000)
        quorum.elect(2)
        quorum.set("a", "1")
        await observer.caught_up()
        await asyncio.sleep(30)
        assert 960 < fault.times < 999, "it is tried again, with pauses"
        assert observer.errors == []
        observer.disk.heal()
        await asyncio.sleep(15)
        end = quorum.end
        quorum.requests.clear()
        await observer.crash()
        await observer.caught_up()
        assert min(one.topics[0].partitions[0].fetch_offset for _, one in quorum.requests) == end

    play(story)


def test_a_lack_of_file_handles_delays_the_metadata() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.caught_up()
        fault = observer.disk.fail("pread", errno.EMFILE, ".log", times=3)
        quorum.set("a", "1")
        await observer.caught_up()
        assert (fault.times, observer.errors) == (0, [])
        assert observer.settings.values == {"a": "1"}

    play(story)


@pytest.mark.parametrize(("operation", "path"), [("pwrite", ".log"), ("pwrite", "quorum-state"), ("pwrite", ".part")])
def test_a_full_disk_delays_the_metadata(operation: str, path: str) -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.caught_up()
        await observer.client.close()
        if path == ".part":
            quorum.set("a", "0")
            quorum.take_snapshot(config_record("a", "0"))
        await observer.start()
        fault = observer.disk.fail(operation, errno.ENOSPC, path, times=1000)
        quorum.elect(2)
        quorum.set("a", "1")
        await asyncio.sleep(5)
        assert 900 < fault.times < 1000, "it is tried again, with pauses"
        assert observer.errors == []
        assert observer.settings.values != {"a": "1"}
        observer.disk.heal()
        await observer.caught_up()
        assert observer.settings.values == {"a": "1"}

    play(story)


def test_an_unexpected_error_of_a_connection_does_not_end_the_fetches() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.error = ValueError("no such certificate")
        await asyncio.sleep(3)
        quorum.error = None
        quorum.set("a", "1")
        await observer.caught_up()

    play(story)


def test_records_are_decoded_on_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    is_on_lane, decoded = False, 0

    def values_of(batch: Any, **more: Any) -> list[bytes]:
        nonlocal decoded
        assert is_on_lane, "a batch of 100 000 records would delay the heartbeats"
        decoded += 1
        return kafka_raft_log.values_of(batch, **more)

    class Lane(SimWork):
        async def run(self, lane: str, job: Callable[[], Any]) -> Any:
            def on_lane() -> Any:
                nonlocal is_on_lane
                is_on_lane = True
                try:
                    return job()
                finally:
                    is_on_lane = False

            return await super().run(lane, on_lane)

    monkeypatch.setattr(kafka_raft_client, "values_of", values_of)

    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        quorum.set("a", "1")
        quorum.take_snapshot(config_record("a", "1"))
        observer.work = Lane(observer.loop, random.Random(2), WorkDelays())
        await observer.start()
        quorum.set("b", "2")
        await observer.caught_up()
        assert observer.settings.values == {"a": "1", "b": "2"}
        assert decoded >= 2

    play(story)


def test_an_error_of_a_listener_is_fatal() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        quorum.append(b"\x01\x7f\x00")
        await observer.until(lambda: bool(observer.errors))
        observer.errors.clear()

    play(story)


def test_old_snapshots_and_the_records_below_them_are_deleted() -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    config = MetadataLogConfig(segment_bytes=200, retention_bytes=1000)
    replica = KafkaRaftLog.open("/data", config=config, fs=disk, now_ms=lambda: 0, rng=random.Random(1))
    quorum = ScriptedQuorum()
    for number in range(10):
        quorum.set("a", str(number))
        replica.append_as_follower(memoryview(quorum.batches[-1][3]), 1)
        replica.update_high_watermark(replica.end_offset)
        if number in (3, 6):
            batches = SnapshotBatches(1, 100 * number)
            header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=100 * number)
            writer = replica.create_new_snapshot(replica.end)
            replica.append_to_snapshot(writer, memoryview(batches.control_batch([header])))
            assert batches.append(b"x" * 400) is None
            replica.append_to_snapshot(writer, memoryview(batches.rest()))
            footer = SnapshotFooterRecord(version=0)
            replica.append_to_snapshot(writer, memoryview(batches.control_batch([footer])))
            replica.freeze_snapshot(writer)
            assert replica.latest_snapshot_id == OffsetAndEpoch(number + 1, 1)
    assert replica.create_new_snapshot(OffsetAndEpoch(7, 1)) is None
    assert replica.maybe_clean(0)
    assert replica._snapshots == [OffsetAndEpoch(7, 1)]
    assert replica.start_offset == 7
    assert not replica.maybe_clean(0)
    assert replica.create_new_snapshot(OffsetAndEpoch(4, 1)) is None, "the log begins after it"
    replica.close()
    again = KafkaRaftLog.open("/data", config=config, fs=disk, now_ms=lambda: 0, rng=random.Random(1))
    assert (again.start_offset <= 7, again.end) == (True, OffsetAndEpoch(10, 1))
    assert not [name for name in disk.list_dir(FOLDER) if name.endswith(".deleted")]


def test_old_snapshots_are_deleted_by_age() -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    config = MetadataLogConfig(retention_ms=1000)
    replica = KafkaRaftLog.open("/data", config=config, fs=disk, now_ms=lambda: 0, rng=random.Random(1))
    quorum = ScriptedQuorum()
    for number in range(3):
        quorum.set("a", str(number))
        replica.append_as_follower(memoryview(quorum.batches[-1][3]), 1)
        replica.update_high_watermark(replica.end_offset)
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=100 * number)
        writer = replica.create_new_snapshot(replica.end)
        replica.append_to_snapshot(writer, memoryview(SnapshotBatches(1, 0).control_batch([header])))
        replica.freeze_snapshot(writer)
    assert not replica.maybe_clean(1000)
    assert replica.maybe_clean(1001)
    assert replica._snapshots == [OffsetAndEpoch(2, 1), OffsetAndEpoch(3, 1)]
    fault = disk.fail("open", errno.EMFILE, ".checkpoint")
    assert not replica.maybe_clean(5000)
    assert fault.times == 0
    disk.cut(f"{FOLDER}/{2:020}-{1:010}.checkpoint", 10)
    assert replica.maybe_clean(0), "a damaged one is deleted"
    assert replica._snapshots == [OffsetAndEpoch(3, 1)], "the newest snapshot is kept"


def test_a_replica_makes_snapshots_and_deletes_the_records_before_them() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        observer.log_config = MetadataLogConfig(segment_bytes=400, retention_bytes=1000)

        async def start() -> tuple[MetadataLoader, SnapshotGenerator]:
            await observer.start()
            loader = MetadataLoader(high_watermark=lambda: observer.client.high_watermark, lock=asyncio.Lock())
            generator = SnapshotGenerator(
                observer.client, observer.loop, max_record_bytes=500, on_fatal=observer.errors.append
            )
            await loader.install_publishers(generator)
            observer.client.register(loader)
            return loader, generator

        loader, generator = await start()
        voters = VotersRecord(version=0, voters=[VotersRecordVoter(voter_id=1)])
        quorum.append_control(KRaftVersionRecord(version=0, kraft_version=1), voters)
        for number in range(100):
            quorum.set(f"a{number % 30}", str(number))
            await observer.caught_up()
        await asyncio.sleep(25)
        snapshots = [name for name in observer.disk.list_dir(FOLDER) if name.endswith(".checkpoint")]
        segments = [name for name in observer.disk.list_dir(FOLDER) if name.endswith(".log")]
        assert len(snapshots) == 1, "older ones are deleted"
        assert int(min(segments)[:20]) > 50
        data = observer.disk.read_bytes(f"{FOLDER}/{snapshots[0]}")
        first, *_, last = list(iter_batches(data))
        assert [type(one) for one in control_records_of(first)] == [
            SnapshotHeaderRecord,
            KRaftVersionRecord,
            VotersRecord,
        ]
        assert [type(one) for one in control_records_of(last)] == [SnapshotFooterRecord]
        image = loader.image
        await generator.close()
        await observer.client.close()
        quorum.requests.clear()
        loader, generator = await start()
        await observer.until(lambda: loader.image.provenance == image.provenance)
        assert loader.image.configs == image.configs
        assert list(observer.settings.values.values()) == list(next(iter(image.configs.configs.values())).values())
        assert observer.settings.snapshots
        assert not [one for _, one in quorum.requests if isinstance(one, FetchSnapshotRequest)]
        await generator.close()

    play(story)


def test_a_snapshot_without_space_is_stored_after_the_next_interval() -> None:
    async def story(observer: Observer, quorum: ScriptedQuorum) -> None:
        await observer.client.close()
        await observer.start()
        loader = MetadataLoader(high_watermark=lambda: observer.client.high_watermark, lock=asyncio.Lock())
        generator = SnapshotGenerator(
            observer.client, observer.loop, max_record_bytes=500, on_fatal=observer.errors.append
        )
        await loader.install_publishers(generator)
        observer.client.register(loader)
        fault = observer.disk.fail("pwrite", errno.ENOSPC, ".part", times=1000)
        for number in range(60):
            if number == 30:
                assert fault.times < 1000
                observer.disk.heal()
            quorum.set("a", str(number))
            await observer.caught_up()
        assert observer.errors == []
        await observer.until(lambda: any(one.endswith(".checkpoint") for one in observer.disk.list_dir(FOLDER)))
        await generator.close()

    play(story)


def test_bootstrap_servers_are_addresses_or_voters() -> None:
    assert parse_bootstrap_servers(["a:1", "3@b:2", "[::1]:3"]) == (("a", 1), ("b", 2), ("::1", 3))
    for wrong in ("a", "a:", ":1", "a:0", "a:x", "a:65536"):
        with pytest.raises(ValueError, match="must be host:port"):
            parse_bootstrap_servers([wrong])
