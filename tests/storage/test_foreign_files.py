"""What else may lie in log directories and in partitions' folders: it stops nobody, and it is not deleted."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.crash_world import SMALL
from tests.storage.lanes import delete_due, shut_down
from tests.storage.test_log_manager import ID_A, ID_B, A, B, batch, started, values

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.cleaning.log_to_clean import CleanerSettings
from barnabas.storage.cleaning.offline import NoPartitionFolderError, OfflineCleaner
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log_manager import LogManager

SEGMENT = "00000000000000000005"


def folder_with(name: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / name).mkdir()
        (root / name / "precious").write_bytes(b"x")

    return make


def file_named(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(b"x")


def replaced(name: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        folder_with(name)(root)

    return make


HARMLESS = {
    "foo.log": file_named("a-0/foo.log"),
    "foo.index": file_named("a-0/foo.index"),
    "foo.snapshot": file_named("a-0/foo.snapshot"),
    "foo.log.swap": file_named("a-0/foo.log.swap"),
    "foo.cleaned": file_named("a-0/foo.cleaned"),
    "foo.deleted": file_named("a-0/foo.deleted"),
    "foo.tmp": file_named("a-0/foo.tmp"),
    "an offset of 64 bits and more": file_named("a-0/99999999999999999999.log"),
    "an offset of 25 digits": file_named(f"a-0/00000{SEGMENT}.log"),
    "a folder that ends in .deleted": folder_with("a-0/x.deleted"),
    "a folder in the way of .deleted": folder_with("a-0/00000000000000000000.log.deleted"),
    "a folder in the way of .swap": folder_with("a-0/00000000000000000000.index.swap"),
    "a folder for an index": replaced("a-0/00000000000000000000.index"),
    "a folder for a snapshot": replaced("a-0/00000000000000000003.snapshot"),
    "a folder for the epochs": replaced("a-0/leader-epoch-checkpoint"),
    "a folder for the topic id": replaced("a-0/partition.metadata"),
    "a folder for aborted transactions": folder_with("a-0/00000000000000000000.txnindex"),
    "a link to elsewhere": lambda root: (root / "a-0" / "link").symlink_to("/"),
    "no topic id": lambda root: (root / "a-0" / "partition.metadata").write_bytes(b""),
    "noise for a topic id": lambda root: (root / "a-0" / "partition.metadata").write_bytes(bytes(range(256))),
    "a folder for a checkpoint": replaced("recovery-point-offset-checkpoint"),
    "a folder in the way of a checkpoint": folder_with("replication-offset-checkpoint.tmp"),
    "a folder for the marker": replaced(".kafka_cleanshutdown"),
    "a file with a partition's name": file_named("c-0"),
    "an empty folder": lambda root: (root / "backup-7").mkdir(),
    "a folder without a log": folder_with("backup-20240101"),
    "a folder that is no deletion of ours": folder_with("backup-1.2024-delete"),
    "an index with leading zeros": lambda root: shutil.copytree(root / "a-0", root / "a-01"),
    "an index of more than 32 bits": lambda root: shutil.copytree(root / "a-0", root / "a-99999999999"),
}
FATAL = {
    "a folder for a segment": folder_with(f"a-0/{SEGMENT}.log"),
    "a link for a segment": lambda root: (root / "a-0" / f"{SEGMENT}.log").symlink_to("/etc/passwd"),
    "a pipe for a segment": lambda root: os.mkfifo(root / "a-0" / f"{SEGMENT}.log"),
}


def written(root: Path) -> LogManager:
    manager = started(OsFileSystem(), str(root))
    for topic_partition, topic_id in ((A, ID_A), (B, ID_B)):
        log = manager.creation.get_or_create_log(topic_partition, topic_id=topic_id, is_new=True)
        log.append_as_leader(batch(b"1", b"2", b"3"), leader_epoch=0)
        log.flush()
    return manager


def end(manager: LogManager, how: str) -> None:
    shut_down(manager) if how == "clean" else manager.close()


def foreign_bytes(root: Path) -> int:
    """Bytes in files that are no log's, wherever they are now."""
    return sum(path.read_bytes() == b"x" for path in root.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("oddity", HARMLESS)
def test_it_is_in_nobodys_way_and_stays(tmp_path: Path, oddity: str, how: str) -> None:
    end(written(tmp_path), how)
    HARMLESS[oddity](tmp_path)
    kept = foreign_bytes(tmp_path)
    for _ in range(2):
        again = started(OsFileSystem(), str(tmp_path), config=replace(SMALL, retention_bytes=1))
        assert set(again.logs) == {A, B}
        assert values(again.logs[A]) == [b"1", b"2", b"3"]
        again.creation.get_or_create_log(A, topic_id=ID_A)
        shut_down(again)
        assert foreign_bytes(tmp_path) == kept


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("oddity", FATAL)
def test_a_log_without_its_records_is_offline_alone(tmp_path: Path, oddity: str, how: str) -> None:
    end(written(tmp_path), how)
    FATAL[oddity](tmp_path)
    again = started(OsFileSystem(), str(tmp_path))
    assert set(again.logs) == {B}
    assert set(again.held.offline) == {A}
    assert again.held.online_dirs
    shut_down(again)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_takes_its_partition_offline_and_no_other(tmp_path: Path) -> None:
    written(tmp_path).close()
    (tmp_path / "a-0" / "00000000000000000000.log").chmod(0)
    again = started(OsFileSystem(), str(tmp_path))
    assert set(again.logs) == {B}
    shut_down(again)


def test_a_deleted_log_leaves_behind_what_was_never_its_own(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "00000000000000000000.log").write_bytes(b"x")
    root = tmp_path / "data"
    manager = written(root)
    (root / "a-0" / "notes").write_bytes(b"x")
    (root / "a-0" / "link").symlink_to(elsewhere)
    manager.delete_log(A)
    manager.delete_log(B)
    delete_due(manager)
    (left,) = [path for path in root.iterdir() if path.name.endswith("-delete")]
    assert sorted(path.name for path in left.iterdir()) == ["link", "notes"]
    assert (elsewhere / "00000000000000000000.log").read_bytes() == b"x"
    shut_down(manager)
    again = started(OsFileSystem(), str(root))
    delete_due(again)
    assert again.held.online_dirs
    assert (left / "notes").exists()
    shut_down(again)


def test_a_linked_folder_of_a_partition_is_served_and_deleted(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    end(written(root), "clean")
    (root / "a-0").rename(elsewhere)
    (root / "a-0").symlink_to(elsewhere)
    manager = started(OsFileSystem(), str(root))
    assert values(manager.logs[A]) == [b"1", b"2", b"3"]
    manager.delete_log(A)
    delete_due(manager)
    assert manager.held.online_dirs
    assert not [path for path in root.iterdir() if path.name.endswith("-delete")]
    shut_down(manager)


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_stray_is_not_opened_nor_changed_nor_taken(tmp_path: Path, how: str) -> None:
    end(written(tmp_path), how)
    with (tmp_path / "a-0" / "00000000000000000000.log").open("ab") as log:
        log.write(b"a torn tail that recovery would cut")
    before = {path: path.read_bytes() for path in (tmp_path / "a-0").iterdir()}
    manager = started(OsFileSystem(), str(tmp_path), strays={str(tmp_path / "a-0"): "it is somebody's copy"})
    assert set(manager.logs) == {B}
    assert manager.log_dir_of(A) is None
    with pytest.raises(KafkaError, match="somebody's copy") as raised:
        manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    assert raised.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    shut_down(manager)
    assert {path: path.read_bytes() for path in (tmp_path / "a-0").iterdir()} == before


def test_a_file_with_a_partitions_name_is_no_reason_to_give_up_a_directory(tmp_path: Path) -> None:
    manager = written(tmp_path)
    (tmp_path / "c-0").write_bytes(b"x")
    for task in manager.creation.preparation_tasks({TopicPartition("c", 0): ID_A}):
        task()
    with pytest.raises(KafkaError) as raised:
        manager.creation.get_or_create_log(TopicPartition("c", 0), is_new=True)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.held.online_dirs
    shut_down(manager)


def test_a_folder_of_somebody_elses_logs_is_not_compacted(tmp_path: Path) -> None:
    folder = tmp_path / "nginx-0"
    folder.mkdir()
    (folder / "access.log").write_bytes(b"x")
    cleaner = OfflineCleaner(
        OsFileSystem(), now_ms=lambda: 0, rng=random.Random(7), config=SMALL, settings=CleanerSettings()
    )
    with pytest.raises(NoPartitionFolderError):
        cleaner.compact(str(folder), lambda progress: None)
    assert [path.name for path in folder.iterdir()] == ["access.log"]
