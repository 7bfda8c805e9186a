"""LogManager: directories, identity, discovery, creation, deletion, checkpoints, failure, clean and unclean stops."""

import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from tests.storage.crash_world import NOW_MS, SMALL, make_manager
from tests.storage.lanes import checkpoint, delete_due, flush, load, retain, run, shut_down

from barnabas.common.steps import run_to_end
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.record_batch import RecordBatchBuilder, iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import Mode, SimCrash, SimDisk
from barnabas.storage import log_checkpoints
from barnabas.storage.errors import CorruptCheckpointError, LogDirFailedError
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.found_logs import DuplicateLogError, FoundFolder
from barnabas.storage.held_logs import AllLogDirsFailedError
from barnabas.storage.lane_task import MANY_LOGS
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_dir import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from barnabas.storage.log_manager import LOGS_PER_CLOSING_TASK, LogManager
from barnabas.storage.meta_properties import InconsistentMetaPropertiesError
from barnabas.storage.partition_dir import marked_dir_name, parse_partition_dir

A, B = TopicPartition("a", 0), TopicPartition("b.with-dash", 12)
ID_A, ID_B = UUID(int=0xA << 64), UUID(int=0xB << 64)


def batch(*values: bytes) -> memoryview:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(None, value, (), NOW_MS)
    return memoryview(bytearray(builder.build()))


def values(log: Log) -> list[bytes | None]:
    data = log.read(log.log_start_offset, 1 << 20, max_offset=None, min_one_message=True)
    return [record.value for entry in iter_batches(bytes(data.data)) for record in entry.records()]


def started(
    disk: SimDisk | OsFileSystem, *roots: str, config: LogConfig = SMALL, strays: Mapping[str, str] | None = None
) -> LogManager:
    manager = make_manager(disk, roots or ("/data",), config=config)
    manager.open_dirs()
    manager.write_identity(1, "cluster")
    load(manager, strays)
    return manager


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(now_ms=lambda: NOW_MS)


# Names


def test_renamed_strays_are_not_in_the_way_of_their_partition(disk: SimDisk) -> None:
    former = started(disk)
    former.creation.get_or_create_log(A, topic_id=ID_A).append_as_leader(batch(b"old"), leader_epoch=0)
    shut_down(former)
    manager = LogManager(
        ["/data"], fs=disk, config_for=lambda _: SMALL, now_ms=lambda: NOW_MS, rng=Random(1), rename_strays=True
    )
    manager.open_dirs()
    load(manager, {f"/data/{A}": "its topic id is not that of a"})
    log = manager.creation.get_or_create_log(A, topic_id=ID_B)
    assert (log.topic_id, log.log_end_offset) == (ID_B, 0)
    (stray,) = [name for name in disk.list_dir("/data") if name.endswith("-stray")]
    found = parse_partition_dir(stray)
    assert found is not None and found.topic_partition == A


@pytest.mark.parametrize(
    ("name", "topic", "partition", "suffix"),
    [
        ("t-0", "t", 0, ""),
        ("a-b-c-12", "a-b-c", 12, ""),
        ("x.y-delete-3", "x.y-delete", 3, ""),
        ("t-0.0123456789abcdef0123456789abcdef-delete", "t", 0, "-delete"),
        ("a.b-7.0123456789abcdef0123456789abcdef-future", "a.b", 7, "-future"),
        ("t-0.0123456789abcdef0123456789abcdef-stray", "t", 0, "-stray"),
        ("__consumer_offsets-49", "__consumer_offsets", 49, ""),
    ],
)
def test_folder_names_are_understood(name: str, topic: str, partition: int, suffix: str) -> None:
    found = parse_partition_dir(name)
    assert found is not None
    assert (found.topic_partition, found.suffix) == (TopicPartition(topic, partition), suffix)


@pytest.mark.parametrize(
    "name",
    [
        *("__cluster_metadata-0", "remote-log-index-cache", "t", "t-", "-0", "t-x", "t-1x", ""),
        *("t-01", "t-2147483648", "t-99999999999999999999", "t-٣", "t-1.2024-delete", "t-1.00-future"),
    ],
)
def test_other_folder_names_are_no_partitions(name: str) -> None:
    assert parse_partition_dir(name) is None


def test_a_marked_name_is_never_longer_than_a_file_name_may_be() -> None:
    name = marked_dir_name(TopicPartition("t" * 249, 123), "0" * 32, "-delete")
    assert len(name) == 255
    assert name.endswith(f"t-123.{'0' * 32}-delete")


# Identity


def test_a_fresh_directory_gets_an_identity_of_version_1(tmp_path: Path) -> None:
    manager = started(OsFileSystem(), str(tmp_path / "new"))
    text = (tmp_path / "new" / "meta.properties").read_text()
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert lines["version"] == "1"
    assert lines["node.id"] == "1"
    assert lines["cluster.id"] == "cluster"
    assert len(lines["directory.id"]) == 22
    assert manager.stored_identity() == (1, "cluster")
    shut_down(manager)


def test_in_a_cluster_around_zookeeper_a_directory_is_as_kafka_makes_it_there(tmp_path: Path) -> None:
    manager = make_manager(OsFileSystem(), (str(tmp_path),))
    manager.open_dirs()
    manager.write_identity(1, "cluster", version=0)
    assert (tmp_path / "meta.properties").read_text().splitlines() == ["broker.id=1", "cluster.id=cluster", "version=0"]
    manager.close()


@pytest.mark.parametrize(
    "content",
    [
        "#\n#Sat Nov 21 12:00:00 UTC 2026\ncluster.id=cluster\nversion=0\nbroker.id=1\n",
        "#\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nversion=1\ncluster.id=cluster\n",
    ],
)
def test_an_identity_that_kafka_left_is_read_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    manager = make_manager(OsFileSystem(), (str(tmp_path),))
    manager.open_dirs()
    assert manager.stored_identity() == (1, "cluster")
    manager.write_identity(1, "cluster")
    assert (tmp_path / "meta.properties").read_text() == content
    with pytest.raises(InconsistentMetaPropertiesError, match="cluster ids"):
        manager.write_identity(1, "another")
    with pytest.raises(InconsistentMetaPropertiesError, match="broker ids"):
        manager.write_identity(2, "cluster")
    manager.close()


@pytest.mark.parametrize("directory_id", ["", "AAAAAAAAAAAAAAAAAAAAAQ", "not base64 of 16 bytes", "ü"])
def test_a_directory_id_that_identifies_no_directory_is_refused(tmp_path: Path, directory_id: str) -> None:
    (tmp_path / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id=cluster\ndirectory.id={directory_id}\n", encoding="iso-8859-1"
    )
    manager = make_manager(OsFileSystem(), (str(tmp_path),))
    manager.open_dirs()
    with pytest.raises(InconsistentMetaPropertiesError, match=r"meta\.properties: directory\.id '.*' is not the id"):
        manager.directory_ids()
    manager.close()


def test_a_copy_of_a_directory_is_refused(tmp_path: Path) -> None:
    one, copy = str(tmp_path / "one"), str(tmp_path / "copy")
    manager = make_manager(OsFileSystem(), (one,))
    manager.open_dirs()
    manager.write_identity(1, "cluster")
    manager.close()
    shutil.copytree(one, copy)
    manager = make_manager(OsFileSystem(), (one, copy))
    manager.open_dirs()
    with pytest.raises(InconsistentMetaPropertiesError, match=f"{copy} and {one} have the same directory.id"):
        manager.directory_ids()
    manager.close()


def test_directories_of_two_clusters_are_refused(disk: SimDisk) -> None:
    for root, cluster in (("/one", "x"), ("/two", "y")):
        manager = make_manager(disk, (root,))
        manager.open_dirs()
        manager.write_identity(1, cluster)
        manager.close()
    manager = make_manager(disk, ("/one", "/two"))
    manager.open_dirs()
    with pytest.raises(InconsistentMetaPropertiesError, match="cluster ids: x in /one, y in /two"):
        manager.stored_identity()


def test_a_directory_has_one_broker_at_a_time(tmp_path: Path) -> None:
    first = started(OsFileSystem(), str(tmp_path))
    with pytest.raises(BlockingIOError):
        make_manager(OsFileSystem(), (str(tmp_path),)).open_dirs()
    shut_down(first)
    shut_down(started(OsFileSystem(), str(tmp_path)))


def test_a_directory_of_a_newer_version_is_refused_unchanged_and_released(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in ("one", "two")]
    shut_down(started(OsFileSystem(), *roots))
    identity = tmp_path / "two" / "meta.properties"
    supported = identity.read_bytes()
    identity.write_bytes(supported.replace(b"version=1", b"version=2"))
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*") if path.is_file()}
    with pytest.raises(CorruptCheckpointError, match="unknown version '2'"):
        started(OsFileSystem(), *roots)
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*") if path.is_file()} == before
    identity.write_bytes(supported)
    shut_down(started(OsFileSystem(), *roots))


# Stop and start


@pytest.mark.parametrize("marker", [b"", b"[]", b'{"version":0,"brokerEpoch":8}', b'{"brokerEpoch":"7"}', None])
def test_the_broker_epoch_of_a_clean_stop_is_that_of_all_directories(tmp_path: Path, marker: bytes | None) -> None:
    fs, roots = OsFileSystem(), (str(tmp_path / "1"), str(tmp_path / "2"))
    shut_down(started(fs, *roots), broker_epoch=7)
    path = tmp_path / "2" / ".kafka_cleanshutdown"
    if marker is None:
        path.unlink()
    else:
        path.write_bytes(marker)
    again = started(fs, *roots)
    assert again.previous_broker_epoch() == -1
    shut_down(again)


def test_everything_is_there_after_a_clean_stop(tmp_path: Path) -> None:
    fs, roots = OsFileSystem(), (str(tmp_path / "1"), str(tmp_path / "2"))
    manager = started(fs, *roots)
    for topic_partition, topic_id in ((A, ID_A), (B, ID_B)):
        manager.creation.get_or_create_log(topic_partition, topic_id=topic_id, is_new=True)
    manager.logs[A].append_as_leader(batch(b"1", b"2"), leader_epoch=0)
    manager.logs[A].update_high_watermark(1)
    shut_down(manager, broker_epoch=7)
    for root in roots:
        marker = json.loads((Path(root) / ".kafka_cleanshutdown").read_text())
        assert marker == {"version": 0, "brokerEpoch": 7}
    again = started(fs, *roots)
    assert not (Path(roots[0]) / ".kafka_cleanshutdown").exists()
    assert all(log_dir.was_clean_shutdown for log_dir in again.dirs)
    assert again.previous_broker_epoch() == 7
    assert values(again.logs[A]) == [b"1", b"2"]
    assert again.logs[A].high_watermark == 1
    assert again.logs[A].recovery_point == 2
    assert again.logs[A].topic_id == ID_A
    assert again.logs[B].topic_id == ID_B
    assert {again.log_dir_of(A), again.log_dir_of(B)} == set(roots)
    shut_down(again)


def test_loading_is_cut_into_tasks_for_lanes(disk: SimDisk) -> None:
    manager = started(disk, "/one", "/two")
    for partition in range(300):
        manager.creation.get_or_create_log(TopicPartition("t", partition), is_new=True)
    shut_down(manager)
    again = make_manager(disk, ("/one", "/two"))
    again.open_dirs()
    run(again, again.finding_tasks())
    tasks = again.loading_tasks()
    assert len(tasks) == 6
    assert {task.lane for task in tasks} == {"/one", "/two"}
    for task in reversed(tasks):
        task()
    again.finish_loading()
    assert len(again.logs) == 300


def test_only_the_lanes_read_folders_at_a_start(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = started(disk)
    for partition in range(3):
        manager.creation.get_or_create_log(TopicPartition("t", partition), topic_id=ID_A, is_new=True)
    disk.mkdir("/data/t-3")
    manager.close()
    again = make_manager(disk, ("/data",))
    again.open_dirs()
    (task,) = again.finding_tasks()
    assert task.lane == "/data"
    task()
    with monkeypatch.context() as patch:
        for operation in ("exists", "is_dir", "list_dir", "scan_dir", "open", "read_bytes"):
            patch.setattr(disk, operation, lambda *_: pytest.fail("the loop's thread has read from the disk"))
        found: dict[str, FoundFolder] = {}
        tasks = again.loading_tasks(lambda folders: found.update(folders) or {"/data/t-1": "a copy"})
    assert {path: folder.topic_id for path, folder in found.items()} == {f"/data/t-{n}": ID_A for n in range(3)}
    run(again, tasks)
    again.finish_loading()
    assert sorted(again.logs) == [TopicPartition("t", 0), TopicPartition("t", 2)]


def test_what_kafka_keeps_beside_partitions_is_left_alone(disk: SimDisk) -> None:
    manager = started(disk)
    manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    shut_down(manager)
    for name in (
        "__cluster_metadata-0",
        "lost+found",
        "remote-log-index-cache",
        "t-0.00-future",
        f"t-1.{7:032x}-stray",
    ):
        disk.mkdir(f"/data/{name}")
        disk.open(f"/data/{name}/file", create=True).close()
    disk.open("/data/bootstrap.checkpoint", create=True).close()
    before = {path for path in disk.tree() if "/a-0/" not in path}
    again = started(disk)
    assert set(again.logs) == {A}
    shut_down(again)
    assert {path for path in disk.tree() if "/a-0/" not in path} == before


def test_an_unreadable_checkpoint_costs_a_recovery_and_no_data(disk: SimDisk) -> None:
    manager = started(disk)
    manager.creation.get_or_create_log(A, is_new=True).append_as_leader(batch(b"1"), leader_epoch=0)
    manager.logs[A].flush()
    checkpoint(manager)
    manager.close()
    disk.write_atomic(f"/data/{RECOVERY_POINT_CHECKPOINT}", b"0\n5\nonly one 0 1\n")
    assert values(started(disk).logs[A]) == [b"1"]


def test_a_partition_in_two_directories_is_refused(disk: SimDisk) -> None:
    for root in ("/one", "/two"):
        manager = started(disk, root)
        manager.creation.get_or_create_log(A, is_new=True)
        shut_down(manager)
    manager = make_manager(disk, ("/one", "/two"))
    manager.open_dirs()
    with pytest.raises(DuplicateLogError, match="a-0 is in /one and in /two"):
        load(manager)


@pytest.mark.parametrize("root", ["/one", "/two"])
@pytest.mark.parametrize("left_id", [None, ID_A])
@pytest.mark.parametrize("records", [0, 1])
def test_what_a_failing_disk_left_of_a_log_that_was_made_elsewhere_goes(
    disk: SimDisk, root: str, left_id: UUID | None, records: int
) -> None:
    manager = started(disk, "/one" if root == "/two" else "/two")
    log = manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    for _ in range(records):
        log.append_as_leader(batch(b"1"), leader_epoch=0)
    shut_down(manager)
    manager = started(disk, root)
    manager.creation.get_or_create_log(A, topic_id=left_id, is_new=True)
    shut_down(manager)
    again = started(disk, "/one", "/two")
    assert values(again.logs[A]) == [b"1"] * records
    assert disk.exists("/one/a-0") != disk.exists("/two/a-0")
    assert not disk.exists(f"{root}/a-0") or (not records and left_id == ID_A), "of two that are alike either may go"
    again.delete_log(A)
    again.creation.get_or_create_log(A, topic_id=ID_B, is_new=True)
    shut_down(again)


def test_a_folder_that_contradicts_itself_goes_offline_alone(disk: SimDisk) -> None:
    manager = started(disk)
    manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    manager.creation.get_or_create_log(B, topic_id=ID_B, is_new=True).append_as_leader(batch(b"1"), leader_epoch=0)
    shut_down(manager)
    disk.write_atomic("/data/a-0/partition.metadata", b"version: 9\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    again = started(disk)
    assert set(again.logs) == {B}
    with pytest.raises(KafkaError) as raised:
        again.held.get_log(A)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    shut_down(again)


# Creation and deletion


def test_a_log_belongs_to_one_topic_id(disk: SimDisk) -> None:
    manager = started(disk)
    log = manager.creation.get_or_create_log(A, is_new=True)
    assert manager.creation.get_or_create_log(A) is log
    assert manager.creation.get_or_create_log(A, topic_id=ID_A) is log
    assert log.topic_id == ID_A
    with pytest.raises(KafkaError) as raised:
        manager.creation.get_or_create_log(A, topic_id=ID_B)
    assert raised.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_new_logs_go_where_the_fewest_are(disk: SimDisk) -> None:
    manager = started(disk, "/one", "/two", "/three")
    for partition in range(7):
        manager.creation.get_or_create_log(TopicPartition("t", partition), is_new=True)
    holders = [manager.log_dir_of(TopicPartition("t", partition)) for partition in range(7)]
    assert sorted(map(holders.count, ("/one", "/two", "/three"))) == [2, 2, 3]


@pytest.mark.parametrize(
    ("cordoned", "counts"),
    [({"/one"}, [0, 3, 3]), ({"/one", "/three"}, [0, 6, 0]), ({"/one", "/two", "/three"}, [2, 2, 2])],
)
def test_cordoned_directories_get_no_new_logs_unless_all_are_cordoned(
    disk: SimDisk, cordoned: set[str], counts: list[int]
) -> None:
    manager = started(disk, "/one", "/two", "/three")
    manager.held.is_cordoned = cordoned.__contains__
    prepared = {TopicPartition("t", partition): UUID(int=partition) for partition in range(3)}
    for task in manager.creation.preparation_tasks(prepared):
        task()
    for partition in range(6):
        place = TopicPartition("t", partition)
        manager.creation.get_or_create_log(place, topic_id=prepared.get(place), is_new=True)
    holders = [manager.log_dir_of(TopicPartition("t", partition)) for partition in range(6)]
    assert [holders.count(path) for path in ("/one", "/two", "/three")] == counts


def test_deletion_is_a_rename_and_the_files_go_later(disk: SimDisk) -> None:
    now_ms = NOW_MS
    config = replace(SMALL, file_delete_delay_ms=1000)
    manager = make_manager(disk, ("/data",), config=config, now_ms=lambda: now_ms)
    manager.open_dirs()
    load(manager)
    log = manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    log.append_as_leader(batch(b"1"), leader_epoch=0)
    manager.delete_log(A)
    assert manager.held.get_log(A) is None
    (renamed,) = [name for name in disk.list_dir("/data") if name.endswith("-delete")]
    assert renamed.startswith("a-0.")
    assert values(log) == [b"1"], "a reader may finish"
    manager.creation.get_or_create_log(A, topic_id=ID_B, is_new=True)
    now_ms += 999
    delete_due(manager)
    assert disk.exists(f"/data/{renamed}")
    now_ms += 1
    delete_due(manager)
    assert not disk.exists(f"/data/{renamed}")
    assert manager.logs[A].log_end_offset == 0


def test_a_deletion_is_resumed_after_a_restart(disk: SimDisk) -> None:
    manager = started(disk, config=replace(SMALL, file_delete_delay_ms=1_000_000))
    manager.creation.get_or_create_log(A, is_new=True)
    manager.delete_log(A)
    manager.close()
    again = started(disk)
    assert again.logs == {}
    delete_due(again)
    assert [name for name in disk.list_dir("/data") if name.endswith("-delete")] == []


def test_a_new_log_does_not_inherit_the_offsets_of_a_deleted_one(disk: SimDisk) -> None:
    manager = started(disk)
    log = manager.creation.get_or_create_log(A, is_new=True)
    log.append_as_leader(batch(*[b"x"] * 9), leader_epoch=0)
    log.update_high_watermark(9)
    log.flush()
    log.maybe_increment_log_start_offset(7)
    checkpoint(manager)
    manager.delete_log(A)
    manager.close()
    again = started(disk)
    again.creation.get_or_create_log(A, is_new=True).append_as_leader(batch(b"new"), leader_epoch=0)
    again.logs[A].flush()
    again.close()
    assert values(started(disk).logs[A]) == [b"new"]


# Timers


def test_many_segments_go_some_at_a_time(disk: SimDisk) -> None:
    manager = started(disk, config=replace(SMALL, retention_bytes=1, segment_bytes=200))
    logs = [manager.creation.get_or_create_log(one, is_new=True) for one in (A, B)]
    for log in logs:
        for _ in range(10):
            log.append_as_leader(batch(b"x" * 80), leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)
    below = manager.retention.begin([A, B])
    count = sum(len(log.segments) for log in logs)
    for gone in (7, 14):
        assert manager.retention.finish(below, 7)
        assert sum(len(log.segments) for log in logs) == count - gone, "of all logs together"
    retain(manager)
    assert [len(log.segments) for log in logs] == [1, 1]
    assert manager.retention.finish(below, 7) == []


def test_a_late_checkpoint_gives_way_to_one_of_a_later_moment(disk: SimDisk) -> None:
    manager = started(disk)
    log = manager.creation.get_or_create_log(A, is_new=True)
    log.append_as_leader(batch(*[b"x"] * 9), leader_epoch=0)
    log.update_high_watermark(9)
    log.maybe_increment_log_start_offset(3)
    (late,) = run_to_end(manager.checkpoint_steps(LOG_START_OFFSET_CHECKPOINT))
    log.maybe_increment_log_start_offset(7)
    (newer,) = run_to_end(manager.checkpoint_steps(LOG_START_OFFSET_CHECKPOINT, [A]))
    newer()
    late()
    assert disk.read_bytes(f"/data/{LOG_START_OFFSET_CHECKPOINT}") == b"0\n1\na 0 7\n"


def test_a_log_that_is_being_made_is_in_every_checkpoint_of_its_recovery_point(disk: SimDisk) -> None:
    manager = started(disk)
    (preparation,) = manager.creation.preparation_tasks({A: ID_A})
    checkpoint(manager, RECOVERY_POINT_CHECKPOINT)
    assert disk.read_bytes(f"/data/{RECOVERY_POINT_CHECKPOINT}") == b"0\n1\na 0 0\n"
    preparation()
    manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    checkpoint(manager, RECOVERY_POINT_CHECKPOINT)
    assert disk.read_bytes(f"/data/{RECOVERY_POINT_CHECKPOINT}") == b"0\n1\na 0 0\n"


def test_a_checkpoint_keeps_logs_that_are_opened_or_created_between_its_steps(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_checkpoints, "LOGS_PER_STEP", 1)
    manager = started(disk)
    first, deleted, prepared, new = (TopicPartition("t", index) for index in range(4))
    for topic_partition in (first, deleted):
        manager.creation.get_or_create_log(topic_partition, topic_id=ID_A, is_new=True)
    (preparation,) = manager.creation.preparation_tasks({prepared: ID_A})
    preparation()
    steps = manager.checkpoint_steps(RECOVERY_POINT_CHECKPOINT)
    next(steps)
    manager.creation.get_or_create_log(prepared, topic_id=ID_A, is_new=True)
    manager.creation.get_or_create_log(new, topic_id=ID_A, is_new=True)
    manager.delete_log(deleted)
    run(manager, run_to_end(steps))
    assert disk.read_bytes(f"/data/{RECOVERY_POINT_CHECKPOINT}") == b"0\n3\nt 0 0\nt 2 0\nt 3 0\n"


def test_a_checkpoint_reads_a_bounded_number_of_logs_in_a_step(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_checkpoints, "LOGS_PER_STEP", 2)
    manager = started(disk)
    for index in range(7):
        manager.creation.get_or_create_log(TopicPartition("t", index), is_new=True)
    reads = 0

    def read(log: Log) -> int:
        nonlocal reads
        reads += 1
        return log.recovery_point

    monkeypatch.setitem(vars(log_checkpoints)["CHECKPOINTED"], RECOVERY_POINT_CHECKPOINT, read)
    most = 0
    for _ in manager.checkpoint_steps(RECOVERY_POINT_CHECKPOINT):
        most, reads = max(most, reads), 0
    assert most == 2


def test_segments_go_by_size_and_their_files_later(disk: SimDisk) -> None:
    manager = started(disk, config=replace(SMALL, retention_bytes=500, segment_bytes=200))
    log = manager.creation.get_or_create_log(A, is_new=True)
    for _ in range(10):
        log.append_as_leader(batch(b"x" * 80), leader_epoch=0)
    log.update_high_watermark(10)
    retain(manager)
    assert log.log_start_offset > 0
    assert 500 <= log.size < 900
    assert any(path.endswith(".deleted") for path in disk.tree())
    delete_due(manager)
    assert not any(path.endswith(".deleted") for path in disk.tree())


def test_a_truncation_lowers_the_recovery_point_on_disk_at_once(disk: SimDisk) -> None:
    manager = started(disk)
    log = manager.creation.get_or_create_log(A, is_new=True)
    for value in (b"1", b"2", b"3"):
        log.append_as_leader(batch(value), leader_epoch=0)
    log.flush()
    checkpoint(manager)
    manager.truncate_to({A: 1})
    assert b"a 0 1" in disk.read_bytes(f"/data/{RECOVERY_POINT_CHECKPOINT}")
    manager.truncate_fully_and_start_at(A, 50)
    assert b"a 0 50" in disk.read_bytes("/data/log-start-offset-checkpoint")
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


# Failing disks


def test_a_failing_fsync_takes_its_directory_offline_and_no_other(disk: SimDisk) -> None:
    manager = started(disk, "/one", "/two", config=replace(SMALL, flush_ms=0))
    manager.creation.get_or_create_log(A, is_new=True)
    manager.creation.get_or_create_log(B, is_new=True)
    failing, healthy = (A, B) if manager.log_dir_of(A) == "/one" else (B, A)
    for topic_partition in (A, B):
        manager.logs[topic_partition].append_as_leader(batch(b"1"), leader_epoch=0)
    disk.fail("fdatasync", errno.EIO, "/one/")
    flush(manager, list(manager.logs.values()))
    with pytest.raises(KafkaError) as raised:
        manager.held.get_log(failing)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.logs[healthy].recovery_point == 1
    assert [log_dir.path for log_dir in manager.held.online_dirs] == ["/two"]
    assert manager.log_dir_of(failing) == "/one"
    third = TopicPartition("c", 0)
    with pytest.raises(KafkaError):
        manager.creation.get_or_create_log(third)
    manager.creation.get_or_create_log(third, is_new=True)
    assert manager.log_dir_of(third) == "/two"
    shut_down(manager)
    assert disk.exists("/two/.kafka_cleanshutdown")
    assert not disk.exists("/one/.kafka_cleanshutdown"), "its next start is an unclean one"


def test_the_last_directory_failing_is_the_end(disk: SimDisk) -> None:
    manager = started(disk, "/one", "/two")
    manager.creation.get_or_create_log(A, is_new=True)
    holder = manager.log_dir_of(A)
    assert manager.held.fail_log_dir("/one") == ([A] if holder == "/one" else [])
    with pytest.raises(AllLogDirsFailedError):
        manager.held.fail_log_dir("/two")
    assert manager.logs == {}


def test_a_directory_that_cannot_be_read_at_the_start_is_offline(disk: SimDisk) -> None:
    manager = started(disk, "/one", "/two")
    manager.creation.get_or_create_log(A, is_new=True)
    manager.creation.get_or_create_log(B, is_new=True)
    shut_down(manager)
    disk.fail("scan_dir", errno.EIO, "/one", times=None)
    again = started(disk, "/one", "/two")
    assert [log_dir.path for log_dir in again.held.online_dirs] == ["/two"]
    assert len(again.logs) == 1


def test_a_full_disk_refuses_appends_and_heals(disk: SimDisk) -> None:
    manager = started(disk)
    log = manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    log.append_as_leader(batch(b"before"), leader_epoch=0)
    log.flush()
    disk.capacity = disk._used + 30
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(batch(b"does not fit"), leader_epoch=0)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert values(log) == [b"before"]
    assert manager.held.online_dirs
    checkpoint(manager)
    assert manager.held.online_dirs, "an older checkpoint is no reason to stop"
    disk.capacity = None
    log.append_as_leader(batch(b"after"), leader_epoch=0)
    log.flush()
    checkpoint(manager)
    assert values(log) == [b"before", b"after"]
    manager.close()
    assert values(started(disk).logs[A]) == [b"before", b"after"]


def test_a_full_disk_does_not_stop_the_deletion_that_frees_it(disk: SimDisk) -> None:
    manager = started(disk, config=replace(SMALL, retention_bytes=300, segment_bytes=200))
    log = manager.creation.get_or_create_log(A, is_new=True)
    for _ in range(8):
        log.append_as_leader(batch(b"x" * 80), leader_epoch=0)
    log.update_high_watermark(8)
    disk.capacity = disk._used
    free = disk.free_bytes("/data")
    retain(manager)
    delete_due(manager)
    assert disk.free_bytes("/data") > free
    assert manager.held.online_dirs
    log.append_as_leader(batch(b"fits again"), leader_epoch=0)


def test_a_disk_that_fails_while_loading_takes_all_its_partitions_offline(disk: SimDisk) -> None:
    manager = started(disk, "/one", "/two")
    partitions = [TopicPartition("t", index) for index in range(20)]
    for topic_partition in partitions:
        manager.creation.get_or_create_log(topic_partition, is_new=True)
    lost = {topic_partition for topic_partition in partitions if manager.log_dir_of(topic_partition) == "/one"}
    shut_down(manager)
    disk.fail("scan_dir", errno.EIO, "/one/", skip=3, times=None)
    again = started(disk, "/one", "/two")
    assert set(again.held.offline) == lost
    assert set(again.logs) == set(partitions) - lost


LARGE_RECORD = bytes(SMALL.index_interval_bytes)
"""A log with this record is larger than an index interval, so the epochs have a file after its recovery."""


def killed_with_records(disk: SimDisk, count: int, value: bytes = b"record") -> SimDisk:
    """A disk with one unflushed record in each of `count` partitions, as a kill of the broker leaves it."""
    manager = started(disk)
    for partition in range(count):
        log = manager.creation.get_or_create_log(TopicPartition("t", partition), topic_id=ID_A, is_new=True)
        log.append_as_leader(batch(value), leader_epoch=4)
    return disk.survivor(1, "kill")


@pytest.mark.parametrize("mode", ["A", "B"])
@pytest.mark.parametrize("value", [b"record", LARGE_RECORD], ids=["small", "large"])
@pytest.mark.parametrize("count", [MANY_LOGS - 1, MANY_LOGS, 2 * MANY_LOGS + 1])
def test_recovered_logs_are_on_disk_when_the_start_is_over(disk: SimDisk, count: int, value: bytes, mode: Mode) -> None:
    killed = killed_with_records(disk, count, value)
    manager = started(killed)
    is_many, has_epochs = count >= MANY_LOGS, value == LARGE_RECORD
    assert sum(" sync_disk " in entry for entry in killed.log) == (1 + has_epochs if is_many else 0)
    syncs = sum("sync /data/t-" in entry for entry in killed.log)
    assert syncs == 0 if is_many else syncs >= (1 + has_epochs) * count, "the log and the epochs of each"
    assert sum("leader-epoch-checkpoint" in entry for entry in killed.log if " rename " in entry) == has_epochs * count
    checkpoint(manager)
    survivor = killed.survivor(2, mode)
    again = started(survivor)
    assert len(again.logs) == count and not again.held.offline
    for log in again.logs.values():
        assert (values(log), log.leader_epochs.latest_epoch, log.recovery_point) == ([value], 4, 1)
    shut_down(again)
    for partition in range(count):
        assert survivor.read_bytes(f"/data/t-{partition}/leader-epoch-checkpoint") == b"0\n1\n4 0\n"


def test_epochs_of_a_small_recovered_log_are_known_after_a_roll_and_another_kill(disk: SimDisk) -> None:
    manager = started(disk)
    log = manager.creation.get_or_create_log(TopicPartition("t", 0), topic_id=ID_A, is_new=True)
    log.append_as_leader(batch(b"1"), leader_epoch=4)
    log.flush()
    log.append_as_leader(batch(b"2"), leader_epoch=5)
    killed = disk.survivor(1, "kill")
    manager = started(killed)
    [log] = manager.logs.values()
    assert log.size <= SMALL.index_interval_bytes
    checkpoint(manager)
    log.append_as_leader(batch(bytes(600)), leader_epoch=6)
    assert log.segments.base_offsets == [0, 2]
    survivor = killed.survivor(2, "B")
    assert survivor.read_bytes("/data/t-0/leader-epoch-checkpoint") == b"0\n2\n4 0\n5 1\n", "Kafka could continue"
    [log] = started(survivor).logs.values()
    assert log.leader_epochs.entries[:2] == [(4, 0), (5, 1)]


def test_epochs_of_a_small_recovered_log_are_read_again_after_each_kill(
    disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    manager = started(disk)
    log = manager.creation.get_or_create_log(TopicPartition("t", 0), topic_id=ID_A, is_new=True)
    log.append_as_leader(batch(b"1"), leader_epoch=4)
    shut_down(manager)  # the index files exist from now on
    manager = started(disk)
    [log] = manager.logs.values()
    log.append_as_leader(batch(b"2"), leader_epoch=5)
    for number in range(3):
        disk = disk.survivor(number, "kill")
        manager = started(disk)
        [log] = manager.logs.values()
        assert (log.leader_epochs.entries, log.recovery_point) == ([(4, 0), (5, 1)], 2)
        checkpoint(manager)
    assert not caplog.records
    shut_down(manager)
    assert disk.read_bytes("/data/t-0/leader-epoch-checkpoint") == b"0\n2\n4 0\n5 1\n"


@pytest.mark.parametrize("mode", ["A", "B"])
def test_power_may_fail_at_any_step_of_the_recovery_of_many_logs(disk: SimDisk, mode: Mode) -> None:
    killed = killed_with_records(disk, MANY_LOGS)
    killed.make_everything_durable()
    measured = killed.survivor(1, "kill")
    started(measured)
    for call in range(1, measured.calls, 23):
        crashing = killed.survivor(call, "kill")
        crashing.crash_at(call)
        with pytest.raises(SimCrash):
            started(crashing)
        again = started(crashing.survivor(call, mode))
        assert len(again.logs) == MANY_LOGS and not again.held.offline
        for log in again.logs.values():
            assert (values(log), log.leader_epochs.latest_epoch) == ([b"record"], 4)


def served_with_records(disk: SimDisk, count: int) -> LogManager:
    """A manager with one unflushed record in each of `count` partitions."""
    manager = started(disk)
    for partition in range(count):
        log = manager.creation.get_or_create_log(TopicPartition("t", partition), topic_id=ID_A, is_new=True)
        log.append_as_leader(batch(b"record"), leader_epoch=4)
    return manager


@pytest.mark.parametrize("mode", ["A", "B"])
@pytest.mark.parametrize(
    ("count", "alone"), [(MANY_LOGS - 1, MANY_LOGS - 1), (MANY_LOGS, 0), (LOGS_PER_CLOSING_TASK + 1, 1)]
)
def test_closed_logs_are_on_disk_before_the_marker(disk: SimDisk, count: int, alone: int, mode: Mode) -> None:
    manager = served_with_records(disk, count)
    before = len(disk.log)
    run(manager, manager.closing_tasks())
    log = disk.log[before:]
    assert sum(" sync_disk " in entry for entry in log) == (2 if count >= MANY_LOGS else 0)
    syncs = sum("sync /data/t-" in entry for entry in log)
    assert syncs >= 3 * alone, "the log, the epochs and the producers of each"
    assert alone or not syncs
    survivor = disk.survivor(2, mode)
    again = started(survivor)
    assert len(again.logs) == count and not again.held.offline
    for one in again.logs.values():
        assert (values(one), one.leader_epochs.latest_epoch) == ([b"record"], 4)


@pytest.mark.parametrize("mode", ["A", "B"])
def test_power_may_fail_at_any_step_of_closing_many_logs(disk: SimDisk, mode: Mode) -> None:
    served_with_records(disk, MANY_LOGS)
    killed = disk.survivor(1, "kill")
    start = started(killed)
    for log in start.logs.values():
        log.append_as_leader(batch(b"more"), leader_epoch=5)
    before = killed.calls
    shut_down(start)
    steps = killed.calls - before
    for step in range(1, steps, 29):
        crashing = disk.survivor(1, "kill")
        manager = started(crashing)
        for log in manager.logs.values():
            log.append_as_leader(batch(b"more"), leader_epoch=5)
        crashing.crash_at(step)
        with pytest.raises(SimCrash):
            shut_down(manager)
        again = started(crashing.survivor(step, mode))
        assert len(again.logs) == MANY_LOGS and not again.held.offline
        for log in again.logs.values():
            assert values(log)[:1] == [b"record"], "recovered at the last start, and synced"


def test_a_write_that_the_disk_lost_fails_the_directory_at_the_end(disk: SimDisk) -> None:
    manager = served_with_records(disk, MANY_LOGS)
    disk.fail("check_writeback", errno.EIO, "t-7/")
    with pytest.raises(LogDirFailedError):
        for task in manager.closing_tasks():
            task()


@pytest.mark.parametrize(
    ("operation", "error", "path"),
    [
        ("rename", errno.ENOENT, "t-7/leader-epoch-checkpoint"),
        ("open", errno.EACCES, "t-7/leader-epoch-checkpoint.tmp"),
    ],
)
def test_a_recovered_log_whose_files_fail_at_the_sync_goes_offline_alone(
    disk: SimDisk, operation: str, error: int, path: str
) -> None:
    killed = killed_with_records(disk, MANY_LOGS, LARGE_RECORD)
    manager = make_manager(killed, ("/data",), config=SMALL)
    manager.open_dirs()
    manager.write_identity(1, "cluster")
    run(manager, manager.finding_tasks())
    tasks = manager.loading_tasks()
    assert len(tasks) == 1
    killed.fail(operation, error, path)
    tasks[0]()
    manager.finish_loading()
    assert list(manager.held.offline) == [TopicPartition("t", 7)]
    assert os.strerror(error) in str(manager.held.offline[TopicPartition("t", 7)]), "the cause"
    assert len(manager.logs) == MANY_LOGS - 1
