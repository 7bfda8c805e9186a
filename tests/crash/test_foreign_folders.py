"""Folders in a log directory that are not the broker's: it starts, adopts none of them, and deletes nothing in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.server_process import wait_until

from barnabas.server.metadata.cluster_store import ControllerTerm
from barnabas.server.metadata.topic_store import PlannedTopic, TopicStore
from barnabas.testing import Broker


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_backups_beside_the_partitions_stay_as_they_are(tmp_path: Path, how: str) -> None:
    broker = BarnabasServer(tmp_path / "broker", properties={"log.retention.bytes": "0", "log.roll.ms": "1"})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        producer.produce("t", b"kept")
        assert producer.flush(30) == 0
        broker.stop() if how == "clean" else broker.kill()
        data = broker.log_dir
        for name in ("backup-20240101", "t-20240101", "t-00", "backup-7.2024-delete"):
            shutil.copytree(data / "t-0", data / name)
        (data / "backup-20240102").mkdir()
        (data / "backup-20240102" / "precious.txt").write_text("mine")
        foreign = sorted([*data.glob("backup-*"), data / "t-20240101", data / "t-00"])
        before = {folder.name: contents(folder) for folder in foreign}
        broker.start()
        topics = admin.list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 1}
        assert broker.stop() == 0
        assert {folder.name: contents(folder) for folder in foreign} == before
        assert "backup-20240101 is ignored: its topic id is that of t" in broker.log_tail()


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize(
    "topic_id", [None, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACA\n"], ids=["without id", "foreign id"]
)
def test_old_records_of_a_copy_stay_while_those_of_a_topic_expire(
    tmp_path: Path, how: str, topic_id: str | None
) -> None:
    """A backup without a topic id, or with that of a topic elsewhere, is no topic: retention has no say in it."""
    settings = {
        "log.roll.ms": "1",
        "log.retention.ms": "1000",
        "log.initial.task.delay.ms": "86400000",
        "log.retention.check.interval.ms": "500",
    }
    broker = BarnabasServer(tmp_path / "broker", properties=settings)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        for number in range(5):
            producer.produce("t", b"old", timestamp=1_000_000_000_000 + number * 1000)
            assert producer.flush(30) == 0
        broker.stop() if how == "clean" else broker.kill()
        copies = [broker.log_dir / name for name in ("backup-0", "backup-7", "t-1")]
        for copy in copies:
            shutil.copytree(broker.log_dir / "t-0", copy)
            (copy / "partition.metadata").unlink()
            if topic_id is not None:
                (copy / "partition.metadata").write_text(topic_id)
        before = {copy.name: contents(copy) for copy in copies}
        assert all(sum(name.endswith(".log") for name in files) > 3 for files in before.values())
        broker._properties = {**settings, "log.initial.task.delay.ms": "0"}
        broker.start()
        oldest = broker.log_dir / "t-0" / f"{0:020}.log"
        wait_until(lambda: not oldest.exists(), timeout_s=60, what="retention")
        topics = admin.list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 1}
        assert broker.stop() == 0
        assert {copy.name: contents(copy) for copy in copies} == before
        assert "backup-7 is ignored: no checkpoint file names it" in broker.log_tail()


def test_without_its_store_a_killed_broker_knows_its_partitions_from_copies(tmp_path: Path) -> None:
    """Checkpoint files name a partition from its creation on; what somebody names there by hand is adopted, too."""
    broker = BarnabasServer(tmp_path / "broker")
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result()
        broker.kill()
        data = broker.log_dir
        for path in data.glob("metadata.sqlite*"):
            path.unlink()
        for name in ("backup-7", "wanted-1"):
            shutil.copytree(data / "t-0", data / name)
            (data / name / "partition.metadata").unlink()
        checkpoint = data / "replication-offset-checkpoint"
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else ["0", "0"]
        checkpoint.write_text("\n".join([lines[0], str(int(lines[1]) + 1), *lines[2:], "wanted 1 0", ""]))
        before = contents(data / "backup-7")
        broker.start()
        topics = admin.list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 3, "wanted": 2}
        assert broker.stop() == 0
        assert contents(data / "backup-7") == before
        log = broker.log_tail()
        assert "backup-7 is ignored: no checkpoint file names it, and it has no topic id" in log
        assert "adopting 2 topics found in the log directories (t, wanted) with cleanup.policy=delete, " in log


@pytest.mark.parametrize("is_whole", [True, False], ids=["a directory", "a folder of one"])
def test_old_records_of_an_adopted_topic_stay_from_the_first_start_on(tmp_path: Path, is_whole: bool) -> None:
    """Retention takes nothing of a topic whose settings nobody knows, though its log was open before it was a topic."""
    often = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "50", "log.retention.ms": "1000"}
    with Broker(["t", "other"], data_dir=tmp_path / "made") as made:
        producer = Producer({"bootstrap.servers": made.bootstrap, "acks": "all"})
        producer.produce("t", b"old", timestamp=1_000_000_000_000)
        assert producer.flush(30) == 0
    if is_whole:
        shutil.copytree(tmp_path / "made", tmp_path / "brought")
        for path in (tmp_path / "brought").glob("metadata.sqlite*"):
            path.unlink()
        assert "\nt 0 " in (tmp_path / "brought" / "replication-offset-checkpoint").read_text()
    else:
        shutil.copytree(tmp_path / "made" / "t-0", tmp_path / "brought" / "t-0")
        (tmp_path / "brought" / "t-0" / "partition.metadata").unlink()
    with Broker(data_dir=tmp_path / "brought", config=often) as broker:
        assert broker.server.state.replica_manager.get_leader_partition("t", 0).log.config.retention_ms == -1
        broker.expire()
        assert [record.value for record in broker.records("t")] == [b"old"]


def test_a_kill_amid_the_adoption_leaves_no_topic_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the first topic is known must not make copies of the others, which no checkpoint names yet."""
    with Broker(["a", "b", "c"], data_dir=tmp_path / "made") as made:
        for name in "abc":
            made.produce(name, [name])
    for name in "abc":
        shutil.copytree(tmp_path / "made" / f"{name}-0", tmp_path / "brought" / f"{name}-0")
    create_topics = TopicStore.create_topics

    async def create_and_keep(self: TopicStore, topics: Iterable[PlannedTopic], term: ControllerTerm) -> None:
        await create_topics(self, topics, term)
        shutil.copytree(tmp_path / "brought", tmp_path / "killed", dirs_exist_ok=True)
        monkeypatch.setattr(TopicStore, "create_topics", create_topics)

    monkeypatch.setattr(TopicStore, "create_topics", create_and_keep)
    with Broker(data_dir=tmp_path / "brought"):
        pass
    with Broker(data_dir=tmp_path / "killed") as broker:
        assert [record.value for name in "abc" for record in broker.records(name)] == [b"a", b"b", b"c"]


def test_a_topic_whose_only_log_could_not_be_opened_when_it_was_adopted_is_served_once_it_can(tmp_path: Path) -> None:
    """It is adopted with the id and above the leader epoch that its folder says."""
    with Broker(["t"], data_dir=tmp_path) as made:
        made.produce("t", ["kept"])
    for path in tmp_path.glob("metadata.sqlite*"):
        path.unlink()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.rename(tmp_path / "elsewhere")
    log.mkdir()
    with Broker(data_dir=tmp_path) as broker:
        assert broker.server.state.log_manager.held.offline
        (leaderless,) = broker.server.state.metadata.topic("t").partitions.values()
        assert leaderless.leader_epoch >= 7
    log.rmdir()
    (tmp_path / "elsewhere").rename(log)
    with Broker(data_dir=tmp_path) as broker:
        assert [record.value for record in broker.records("t")] == [b"kept"]


def test_gaps_in_a_log_of_which_nobody_knows_whether_it_was_compacted_are_no_losses(tmp_path: Path) -> None:
    """Killed in its first pass over a log, a broker has swapped segments, and no cleaner checkpoint says so."""
    with Broker(data_dir=tmp_path / "made") as made:
        made.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": "1000"})
        for number in range(60):
            made.produce("t", {f"key {number % 3}": "x" * 100})
        made.compact("t")
        for number in range(20):
            made.produce("t", {f"other {number}": "x" * 100})
        kept = [(record.offset, record.key) for record in made.records("t")]
        # A snapshot that is being written gets its name when it is whole.
        shutil.copytree(tmp_path / "made", tmp_path / "brought", ignore=shutil.ignore_patterns("*.tmp"))
    for path in [*(tmp_path / "brought").glob("metadata.sqlite*"), tmp_path / "brought" / "cleaner-offset-checkpoint"]:
        path.unlink()
    (tmp_path / "brought" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    with Broker(data_dir=tmp_path / "brought") as broker:
        assert [(record.offset, record.key) for record in broker.records("t")] == kept
