"""`barnabas backup` and `barnabas restore` with a broker in a process of its own."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer, cli_command
from tests.server_process import wait_until
from tests.tools.cli.running import Run, run_command

from barnabas.protocol.record_batch_builder import batch_of_pairs
from barnabas.tools.cli.backup.batch_check import BatchCheck
from barnabas.tools.cli.backup.manifest import BackupManifest, new_backup_id
from barnabas.tools.cli.backup.restore import verify_backups
from barnabas.tools.cli.backup.source import HeldFiles, partition_folder
from barnabas.tools.cli.backup.take import delete_old_backups, take_backup
from barnabas.tools.cli.backup.target import BackupError, FolderTarget, UrlTarget, open_target
from barnabas.tools.cli.local_broker import LocalBroker
from barnabas.tools.cli.session import run as run_on_loop

SETTINGS = {
    "log.segment.bytes": "20000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "num.partitions": "2",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=SETTINGS) as running:
        yield running


@pytest.fixture
def run(server: BarnabasServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", server.bootstrap)
    return lambda *arguments: run_command(capfd, list(arguments))


def document(result: tuple[int, str, str]) -> Any:
    status, out, err = result
    assert status == 0, err
    return json.loads(out)


def produce(bootstrap: str, topic: str, values: range, size: int = 100) -> None:
    """Write numbers that are padded to a size, in batches that fit in a segment."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in values:
        producer.produce(topic, b"%d" % number + b" " * size, partition=0)
        if number % max(1, 15_000 // (size + 50)) == 0:
            producer.flush(30)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str, count: int, group: str = "reader", *, commit: bool = False) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=30)
            assert messages, f"{len(found)} of {count} records"
            found += [int(message.value() or b"") for message in messages]
        if commit:
            consumer.commit(offsets=[TopicPartition(topic, 0, count)], asynchronous=False)
        return found
    finally:
        consumer.close()


def start_restored(folder: Path) -> BarnabasServer:
    return BarnabasServer(folder, properties=SETTINGS)


def test_a_restored_broker_has_records_offsets_settings_and_users(
    run: Run, server: BarnabasServer, tmp_path: Path
) -> None:
    assert run("topic", "create", "orders", "--config", "retention.ms=123456789")[0] == 0
    subprocess.run(cli_command("user", "add", "anna", "-b", server.bootstrap), input=b"secret\n", check=True)
    produce(server.bootstrap, "orders", range(500))
    assert read(server.bootstrap, "orders", 300, commit=True) == list(range(300))
    taken = document(run("backup", str(tmp_path / "backups"), "--json"))
    produce(server.bootstrap, "orders", range(500, 600))
    assert taken["state"] == "complete"
    status, out, err = run("restore", str(tmp_path / "backups"), "--to", str(tmp_path / "broker" / "data"))
    assert (status, err) == (0, "")
    assert out.startswith(f"restored backup {taken['backup']} to ")
    with start_restored(tmp_path / "broker") as restored:
        assert read(restored.bootstrap, "orders", 500) == list(range(500))
        consumer = Consumer({"bootstrap.servers": restored.bootstrap, "group.id": "reader"})
        (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
        assert committed.offset == 300
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30) == (0, 500)
        consumer.close()
        produce(restored.bootstrap, "orders", range(500, 510))
        assert read(restored.bootstrap, "orders", 510) == list(range(510))
        shown = run("config", "describe", "topic", "orders", "-b", restored.bootstrap)
        assert "123456789" in shown[1], shown
        assert "anna" in run("user", "list", "-b", restored.bootstrap)[1]
        assert restored.stop() == 0
        restored.start()
        assert read(restored.bootstrap, "orders", 510) == list(range(510))


def test_the_next_backup_copies_only_new_content(run: Run, server: BarnabasServer, tmp_path: Path) -> None:
    produce(server.bootstrap, "growing", range(1000))
    target = str(tmp_path / "backups")
    first = document(run("backup", target, "--json"))
    size = first["bytes"]
    assert size > 110_000
    unchanged = document(run("backup", target, "--json"))
    assert unchanged["new_bytes"] < 40_000, "no more than the metadata store"
    produce(server.bootstrap, "growing", range(1000, 1100))
    third = document(run("backup", target, "--json"))
    assert 10_000 < third["new_bytes"] < 60_000
    listed = document(run("backup", "list", target, "--json"))
    assert [row["backup"] for row in listed] == [one["backup"] for one in (first, unchanged, third)]
    verified = document(run("backup", "verify", target, "--json"))
    assert [one["state"] for one in verified["backups"]] == ["complete"] * 3
    last = document(run("backup", "create", target, "--keep", "2", "--json"))
    assert last["deleted"] == [first["backup"], unchanged["backup"]]
    assert document(run("backup", "verify", target, "--json"))["problems"] == []


def objects_of(target: Path) -> list[Path]:
    return sorted(path for path in (target / "objects").rglob("*") if path.is_file())


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda target: flip_a_bit(max(objects_of(target), key=lambda one: one.stat().st_size)), "is damaged"),
        (lambda target: max(objects_of(target), key=lambda one: one.stat().st_size).unlink(), "is missing"),
        (lambda target: flip_a_bit(next((target / "backups").iterdir())), ""),
        (lambda target: shorten(next((target / "backups").iterdir())), "is damaged"),
    ],
)
def test_damage_is_named_and_not_restored(
    damage: Callable[[Path], None], text: str, run: Run, server: BarnabasServer, tmp_path: Path
) -> None:
    produce(server.bootstrap, "damaged", range(100))
    target = tmp_path / "backups"
    document(run("backup", str(target), "--json"))
    damage(target)
    status, _, err = run("backup", "verify", str(target))
    assert status == 1
    assert text in err
    assert str(target) in err
    status, _, err = run("restore", str(target), "--to", str(tmp_path / "data"))
    assert status == 1
    assert len(err.splitlines()) == 1
    assert text in err
    assert not (tmp_path / "data").exists()
    if text == "is missing":
        again = document(run("backup", str(target), "--json"))
        assert again["new_bytes"] > 10_000
        document(run("backup", "verify", str(target), "--backup", again["backup"], "--json"))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def test_a_damaged_manifest_is_listed_and_the_backup_before_it_restored(
    run: Run, server: BarnabasServer, tmp_path: Path
) -> None:
    produce(server.bootstrap, "twice", range(100))
    target = tmp_path / "backups"
    first = document(run("backup", str(target), "--json"))
    second = document(run("backup", str(target), "--json"))
    shorten(target / "backups" / f"{second['backup']}.json")
    status, out, err = run("backup", "list", str(target), "--json")
    assert status == 0
    assert [row["state"] for row in json.loads(out)] == ["complete", "damaged"]
    assert second["backup"] in err
    assert run("restore", str(target), "--to", str(tmp_path / "data"))[0] == 1
    document(run("restore", str(target), "--to", str(tmp_path / "data"), "--backup", first["backup"], "--json"))
    third = document(run("backup", str(target), "--json"))
    assert third["new_bytes"] < 40_000
    status, _, err = run("backup", str(target), "--keep", "3")
    assert status == 1, "the objects of a damaged backup are not known, so that none is deleted"
    assert second["backup"] in err


def test_a_directory_with_files_is_not_restored_to(run: Run, server: BarnabasServer, tmp_path: Path) -> None:
    document(run("backup", str(tmp_path / "backups"), "--json"))
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    assert run("restore", str(tmp_path / "backups"), "--to", str(full))[2] == (
        f"barnabas: {full} is not an empty directory. Choose a new directory\n"
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    document(run("restore", str(tmp_path / "backups"), "--to", str(empty), "--json"))
    assert (empty / "metadata.sqlite").stat().st_mode & 0o777 == 0o600
    assert not (empty / ".restoring").exists()


def test_a_deleted_topic_with_the_same_name_is_not_mixed_with_the_new_one(
    run: Run, server: BarnabasServer, tmp_path: Path
) -> None:
    target = str(tmp_path / "backups")
    produce(server.bootstrap, "again", range(300))
    document(run("backup", target, "--json"))
    assert run("topic", "delete", "again", "--yes")[0] == 0
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("again", 1)])["again"].result(30)
    produce(server.bootstrap, "again", range(1000, 1010))
    document(run("backup", target, "--json"))
    document(run("restore", target, "--to", str(tmp_path / "broker" / "data"), "--json"))
    with start_restored(tmp_path / "broker") as restored:
        assert read(restored.bootstrap, "again", 10) == list(range(1000, 1010))


def test_targets_by_url(run: Run, server: BarnabasServer, tmp_path: Path) -> None:
    produce(server.bootstrap, "by-url", range(100))
    for target in (f"memory://{tmp_path.name}/backups", f"file://{tmp_path}/backups"):
        first = document(run("backup", target, "--json"))
        second = document(run("backup", target, "--keep", "1", "--json"))
        assert second["deleted"] == [first["backup"]]
        assert document(run("backup", "verify", target, "--json"))["problems"] == []
        folder = tmp_path / target.partition(":")[0]
        document(run("restore", target, "--to", str(folder), "--json"))
        assert (folder / "by-url-0").is_dir()
    assert isinstance(open_target(f"file://{tmp_path}"), FolderTarget)
    status, _, err = run("backup", "list", "nothing://a/b")
    assert (status, len(err.splitlines())) == (1, 1)


def test_a_url_target_is_empty_before_its_first_backup(tmp_path: Path) -> None:
    target = UrlTarget(f"memory://{tmp_path.name}/empty")
    assert target.sizes("backups") == {}
    target.write("backups/x.json", b"{}")
    assert target.sizes("backups") == {"backups/x.json": 2}
    assert target.sizes("temporary") == {}


def test_errors_are_one_line(run: Run, server: BarnabasServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def error_of(*arguments: str) -> str:
        status, out, err = run(*arguments)
        assert (status, out) == (1, "")
        assert len(err.splitlines()) == 1, err
        return err

    assert "there is no backup" in error_of("restore", str(tmp_path / "none"), "--to", str(tmp_path / "data"))
    assert "there is no backup" in error_of("backup", "verify", str(tmp_path / "none"))
    assert "does not respond" in error_of("backup", str(tmp_path / "a"), "--url", "http://127.0.0.1:1")
    (tmp_path / "file").touch()
    assert "file" in error_of("backup", str(tmp_path / "file"))
    other = tmp_path / "backups"
    document(run("backup", str(other), "--json"))
    (manifest,) = (other / "backups").iterdir()
    owner = BackupManifest.decode(manifest.read_bytes(), manifest.stem)
    owner.cluster_id = "another"
    manifest.write_bytes(owner.encode())
    assert "has backups of cluster another" in error_of("backup", str(other))
    assert not any((other / "temporary").iterdir())
    with FolderTarget(tmp_path / "busy").writing():
        assert "another backup is in progress there" in error_of("backup", str(tmp_path / "busy"))


def test_a_member_of_a_cluster_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "broker", properties={"coordinator.listeners": "127.0.0.1:0"}) as member:
        status, _, err = run_command(capfd, ["backup", str(tmp_path / "b"), "-b", member.bootstrap])
        assert status == 1
        assert "a backup requires a single broker" in err


@pytest.mark.verify
def test_damage_on_the_brokers_disk_is_copied_and_named_and_offline_partitions_are_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    target, restored = str(tmp_path / "backups"), tmp_path / "restored" / "data"
    properties = {**SETTINGS, "log.dirs": ",".join(map(str, directories)), "num.partitions": "4"}
    with BarnabasServer(tmp_path / "broker", properties=properties) as server:
        produce(server.bootstrap, "sound", range(400))
        produce(server.bootstrap, "unsound", range(400))
        assert all(list(directory.glob("*sound-*")) for directory in directories)
        (first,) = (path for one in directories for path in one.glob(f"unsound-0/{0:020d}.log"))
        flip_a_bit(first)
        status, out, err = run_command(capfd, ["backup", target, "-b", server.bootstrap])
        assert status == 1
        assert out.startswith("backup 20")
        assert f"unsound-0/{0:020d}.log: the batch at position" in err
        assert len(err.splitlines()) == 1
        status, out, err = run_command(capfd, ["restore", target, "--to", str(restored)])
        assert status == 0, err
        assert "(the broker's file was damaged)" in err
        assert run_command(capfd, ["backup", "verify", target])[0] == 1
        assert server.stop() == 0
        first.unlink()
        first.mkdir()
        server.start()
        status, _, err = run_command(capfd, ["backup", target, "-b", server.bootstrap])
        assert status == 1
        assert "unsound-0 is offline" in err
    with start_restored(tmp_path / "restored") as again:
        assert read(again.bootstrap, "sound", 400) == list(range(400))


class ForgetfulBroker(LocalBroker):
    """A broker that is started again during the first backup."""

    holds = 0

    def request(self, method: str, path: str, query: Mapping[str, str]) -> Any:
        """Lose the first hold."""
        if path == "/backup/end":
            self.holds += 1
            if self.holds == 1:
                super().request(method, path, query)
        return super().request(method, path, query)


def test_a_backup_is_repeated_if_the_broker_has_released_its_files(server: BarnabasServer, tmp_path: Path) -> None:
    broker = ForgetfulBroker(run_on_loop(LocalBroker.find(server.bootstrap)))
    manifest = take_backup(FolderTarget(tmp_path), broker)
    assert broker.holds == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.rglob("*") if path.is_file())
    assert verify_backups(FolderTarget(tmp_path), [manifest.id])[1] == []


def test_a_full_target_keeps_the_last_backup(run: Run, server: BarnabasServer, tmp_path: Path) -> None:
    target = tmp_path / "small"
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(target)], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        first = document(run("backup", str(target), "--json"))
        produce(server.bootstrap, "large", range(350), size=10_000)
        status, _, err = run("backup", str(target))
        assert (status, len(err.splitlines())) == (1, 1)
        assert "no space left on device" in err.lower()
        assert str(target) in err
        assert not any((target / "temporary").iterdir())
        assert [row["backup"] for row in document(run("backup", "list", str(target), "--json"))] == [first["backup"]]
        (target / "temporary" / "left").touch()
        assert run("topic", "delete", "large", "--yes")[0] == 0
        document(run("backup", str(target), "--keep", "1", "--json"))
        assert not any((target / "temporary").iterdir())
        assert document(run("backup", "verify", str(target), "--json"))["problems"] == []
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)


def test_ids_rise_when_the_clock_is_set_back() -> None:
    first = new_backup_id(1_700_000_000_999, [])
    assert first == "20231114T221320.999Z"
    assert new_backup_id(1_600_000_000_000, [first]) == "20231114T221321.000Z"


@pytest.mark.parametrize("name", ["../x", "a/b", "00000000000000000000.log/..", "metadata.sqlite"])
def test_a_manifest_cannot_name_other_files(name: str, tmp_path: Path, run: Run, server: BarnabasServer) -> None:
    target = tmp_path / "backups"
    document(run("backup", str(target), "--json"))
    (manifest,) = (target / "backups").iterdir()
    found = BackupManifest.decode(manifest.read_bytes(), manifest.stem)
    found.partitions[0].files[0].name = name
    with pytest.raises(BackupError, match="unexpected file"):
        BackupManifest.decode(found.encode(), found.id)


def segment(count: int) -> bytes:
    batches = []
    for number in range(count):
        batch = bytearray(batch_of_pairs([(None, b"value")] * 2, 0))
        batch[:8] = (2 * number).to_bytes(8, "big")
        batches.append(bytes(batch))
    return b"".join(batches)


def test_backups_that_cannot_be_listed_are_not_taken_for_deleted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = FolderTarget(tmp_path)
    with target.writing():
        target.write("objects/00/0", b"content")
    scandir = os.scandir

    def failing(path: str) -> Any:
        if Path(path).name == "backups":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", failing)
    with pytest.raises(OSError, match="Input/output error"):
        delete_old_backups(target, 1)
    monkeypatch.undo()
    assert target.sizes("objects") == {"objects/00/0": 7}


@pytest.mark.parametrize("step", [1, 7, 60, 61, 200, 100_000])
def test_batches_are_checked_in_pieces_of_any_size(step: int) -> None:
    data = segment(20)
    check = BatchCheck(0, len(data))
    for start in range(0, len(data), step):
        check.feed(data[start : start + step])
    check.finish()
    assert (check.damage, check.next_offset) == (None, 40)


def test_damaged_batches_are_found() -> None:
    data = segment(3)
    size = len(data) // 3

    def damage_of(changed: bytes, total: int = len(data), first: int = 0) -> str:
        check = BatchCheck(first, total)
        check.feed(changed)
        check.finish()
        return check.damage or ""

    assert damage_of(data) == ""
    assert "position 0 is damaged: CRC" in damage_of(flipped(data, size - 1))
    assert f"position {size} is damaged: CRC" in damage_of(flipped(data, 2 * size - 1))
    assert f"position {2 * size} is cut off" in damage_of(data[:-1])
    assert "exceeds the rest of the segment" in damage_of(data[:-1], len(data) - 1)
    assert "offsets 0 to 1 after offset 4" in damage_of(data, first=5)
    assert "magic" in damage_of(flipped(data, 16, 0x70))


def flipped(data: bytes, position: int, mask: int = 1) -> bytes:
    changed = bytearray(data)
    changed[position] ^= mask
    return bytes(changed)


def test_the_broker_holds_files_while_it_is_backed_up(run: Run, server: BarnabasServer) -> None:
    """The files of a deleted topic remain until the hold ends, also next to a new topic of the same name."""
    produce(server.bootstrap, "held", range(10))
    assert run("topic", "create", "compacted", "--config", "cleanup.policy=compact")[0] == 0
    produce(server.bootstrap, "compacted", range(10))
    assert run("topic", "alter", "held", "--config", "file.delete.delay.ms=0")[0] == 0
    broker = LocalBroker(run_on_loop(LocalBroker.find(server.bootstrap)))
    with HeldFiles(broker) as held:
        (facts,) = (one for one in held.facts["partitions"] if (one["topic"], one["partition"]) == ("held", 0))
        copy = Path(held.facts["metadata"])
        assert copy.stat().st_mode & 0o777 == 0o600
        assert run("topic", "delete", "held", "--yes")[0] == 0
        assert run("topic", "create", "held")[0] == 0
        with partition_folder(str(server.log_dir), facts) as folder, folder.open(f"{0:020d}.log") as source:
            assert source.size == facts["segments"][-1][1] > 0
        status, _, err = run("compact", "compacted")
        assert (status, "cannot be cleaned" in err) == (1, True), err
        held.end()
    wait_until(lambda: not copy.exists(), timeout_s=30, what="the copy of the metadata is deleted")
    assert "cannot be cleaned" not in run("compact", "compacted")[2]
