"""kafka-verifiable-producer, -consumer and -share-consumer 4.4.0: what one acknowledges, a group of the other reads."""

import json
import signal
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.java import JVM_FLAGS, java_command, require_java
from tests.kafka import NEWEST, TOOL_CLASSES, kafka_jars, logging_flags
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

PARTITIONS = 4
PATIENCE_S = 60

Event = dict[str, Any]


class Client:
    """A running tool and the events it prints, one JSON object a line."""

    def __init__(self, tool: str, *args: str) -> None:
        require_java()
        flags = [*JVM_FLAGS, *logging_flags(NEWEST, "error")]
        command = java_command(TOOL_CLASSES[tool], kafka_jars(NEWEST), args, flags)
        self.events: list[Event] = []
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._noise: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                self._noise.append(line)

    def named(self, name: str) -> list[Event]:
        """Its events of one kind."""
        return [event for event in list(self.events) if event["name"] == name]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so while it runs."""

        def holds() -> bool:
            if condition():
                return True
            assert self._process.poll() is None, self._noise[-20:]
            return False

        wait_until(holds, timeout_s=PATIENCE_S, what=what)

    def end(self, signal_number: int | None = None) -> int:
        """Wait for its end, after a signal if there is one; the exit status."""
        if signal_number is not None:
            self._process.send_signal(signal_number)
        status = self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        return status

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def assigned(self) -> set[int]:
        """What it has by its last word."""
        last = [event for event in list(self.events) if event["name"] in ("partitions_assigned", "partitions_revoked")]
        if not last or last[-1]["name"] == "partitions_revoked":
            return set()
        return {place["partition"] for place in last[-1]["partitions"]}  # type: ignore[attr-defined]

    @property
    def consumed(self) -> Counter[tuple[int, int]]:
        """Partition and offset of all it read: within a partition without gaps, as it says itself."""
        places: Counter[tuple[int, int]] = Counter()
        for event in self.named("records_consumed"):
            for one in event["partitions"]:  # type: ignore[attr-defined]
                assert one["maxOffset"] - one["minOffset"] + 1 == one["count"], one
                places.update((one["partition"], offset) for offset in range(one["minOffset"], one["maxOffset"] + 1))
        return places


class Stage:
    """A topic and a group of its own, and the tools at work on them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic, self.group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("topic", "group"))
        self.clients: list[Client] = []
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)

    def _started(self, tool: str, *args: str) -> Client:
        client = Client(tool, "--bootstrap-server", self.bootstrap, "--topic", self.topic, *args)
        self.clients.append(client)
        return client

    def produce(self, count: int, *args: str) -> Client:
        """Have a producer write so many records; returns it when it is done."""
        producer = self._started("kafka-verifiable-producer", "--max-messages", str(count), *args)
        assert producer.end() == 0
        assert not producer.named("producer_send_error")
        return producer

    def consumer(self, *args: str) -> Client:
        """A consumer of the group that has started."""
        client = self._started("kafka-verifiable-consumer", "--group-id", self.group, "--verbose", *args)
        client.wait_for(lambda: bool(client.named("startup_complete")), "it starts")
        return client

    def share_consumer(self, *args: str) -> Client:
        """A member of a share group that has started."""
        options = ("--group-id", self.group, "--offset-reset-strategy", "earliest")
        client = self._started("kafka-verifiable-share-consumer", *options, *args)
        client.wait_for(lambda: bool(client.named("startup_complete")), "it starts")
        return client


def shared(client: Client, event: str) -> Counter[tuple[int, int]]:
    """Partition and offset of all records in the events of a share consumer."""
    return Counter(
        (part["partition"], offset)
        for one in client.named(event)
        for part in one["partitions"]  # type: ignore[attr-defined]
        for offset in part["offsets"]
    )


@pytest.fixture
def stage(group_broker: str) -> Iterator[Stage]:
    made = Stage(group_broker)
    yield made
    for client in made.clients:
        client.kill()


def acknowledged(*producers: Client) -> Counter[tuple[int, int]]:
    """Partition and offset of all that was acknowledged."""
    events = [event for producer in producers for event in producer.named("producer_send_success")]
    return Counter((int(str(event["partition"])), int(str(event["offset"]))) for event in events)


@pytest.mark.parametrize("acks", ["-1", "1"])
def test_producer(acks: str, stage: Stage) -> None:
    producer = stage.produce(500, "--acks", acks, "--value-prefix", "7", "--repeating-keys", "5")
    values = [event["value"] for event in producer.named("producer_send_success")]
    assert sorted(map(str, values)) == sorted(f"7.{number}" for number in range(500))
    data = producer.named("tool_data")[-1]
    assert data["sent"] == data["acked"] == 500
    assert producer.named("shutdown_complete")


@pytest.mark.verify
def test_group_of_consumers(stage: Stage) -> None:
    """Two share, one ends by itself, one is killed, one comes with a static id: everything is read, nothing twice."""
    written = [stage.produce(1000)]
    # Whoever is not killed is to be believed alive on a busy machine, too.
    options = ("--session-timeout", "10000", "--reset-policy", "earliest")
    first = stage.consumer(*options)
    first.wait_for(lambda: sum(first.consumed.values()) == 1000, "the first reads everything")
    assert first.consumed == acknowledged(*written)
    assert all(event["success"] for event in first.named("offsets_committed"))
    second = stage.consumer(*options)
    second.wait_for(lambda: len(first.assigned) == len(second.assigned) == PARTITIONS // 2, "both share")
    assert not first.assigned & second.assigned
    written.append(stage.produce(1000))
    second.wait_for(lambda: (first.consumed + second.consumed).total() == 2000, "both read everything")
    assert first.end(signal.SIGTERM) in (0, 143)
    assert first.named("shutdown_complete")
    second.wait_for(lambda: len(second.assigned) == PARTITIONS, "one has all of it")
    second.kill()
    third = stage.consumer(*options, "--group-instance-id", "third", "--max-messages", "500")
    written.append(stage.produce(500))
    assert third.end() == 0
    assert first.consumed + second.consumed + third.consumed == acknowledged(*written)


@pytest.mark.verify
def test_consumer_with_automatic_commits(stage: Stage) -> None:
    strategy = ("--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    written = stage.produce(100)
    first = stage.consumer("--enable-autocommit", "--reset-policy", "earliest", *strategy)
    first.wait_for(lambda: first.consumed == acknowledged(written), "it reads everything")
    assert first.end(signal.SIGTERM) in (0, 143)
    more = stage.produce(100)
    second = stage.consumer("--enable-autocommit", "--reset-policy", "latest", *strategy, "--max-messages", "100")
    assert second.end() == 0
    assert second.consumed == acknowledged(more)


@pytest.mark.verify
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("auto",), marks=pytest.mark.nightly),
        ("sync", "--ack-pattern", "accept,reject,renew,accept"),
        ("async",),
    ],
)
def test_share_consumers(options: tuple[str, ...], stage: Stage) -> None:
    """Two members receive and acknowledge each record once; after one is killed, the other receives all records."""
    members = [stage.share_consumer("--acknowledgement-mode", *options) for _ in range(2)]
    written = [stage.produce(500)]

    def acknowledged_by_both() -> Counter[tuple[int, int]]:
        return shared(members[0], "offsets_acknowledged") + shared(members[1], "offsets_acknowledged")

    members[0].wait_for(lambda: acknowledged_by_both().keys() == acknowledged(*written).keys(), "all is acknowledged")
    members[0].kill()
    written.append(stage.produce(200))
    members[1].wait_for(lambda: acknowledged_by_both().keys() == acknowledged(*written).keys(), "one has all of it")
    for event in members[1].named("offsets_acknowledged"):
        assert event["success"]
    assert members[1].end(signal.SIGTERM) in (0, 143)
