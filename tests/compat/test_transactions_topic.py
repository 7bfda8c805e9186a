"""`__transaction_state` goes back and forth between Apache Kafka and the broker: the same ids, what is open goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import confluent_kafka
import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.test_transactions import committed, create, rd_producer
from tests.kafka import LAST_WITH_ZOOKEEPER, NEWEST, KafkaServer
from tests.server_process import wait_until

from barnabas.clients import Admin
from barnabas.clients.admin.transactions import TransactionDescription
from barnabas.protocol.errors import KafkaError

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(280)]

NAMES = [f"copier-{number} π" for number in range(12)]
OPEN = "open"
PATIENCE_S = 60


def described(bootstrap: str) -> dict[str, TransactionDescription] | None:
    """All that is known of the ids; None while their coordinator loads them."""

    async def ask() -> dict[str, TransactionDescription | KafkaError]:
        async with Admin(bootstrap) as admin:
            return await admin.describe_transactions([OPEN, *NAMES])

    try:
        found = asyncio.run(ask())
    except KafkaError:
        return None
    return {name: one for name, one in found.items() if not isinstance(one, KafkaError)}


def wait_same(expected: dict[str, TransactionDescription], bootstrap: str) -> None:
    wait_until(lambda: described(bootstrap) == expected, timeout_s=PATIENCE_S, what="the same ids are there")


def rest(bootstrap: str) -> dict[str, TransactionDescription]:
    """What is known once nothing is on its way any more."""

    def have_ended() -> bool:
        found = described(bootstrap) or {}
        states = {one.state for name, one in found.items() if name != OPEN}
        return bool(states) and states <= {"CompleteCommit", "CompleteAbort"}

    wait_until(have_ended, timeout_s=PATIENCE_S, what="all have ended")
    found = described(bootstrap)
    assert found is not None
    return found


class Copies:
    """Producers that go on whoever is the broker, and what they have committed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._open: confluent_kafka.Producer | None = None
        self.committed: list[bytes] = []

    def write_all(self) -> None:
        for number, name in enumerate(NAMES):
            producer = rd_producer(self._bootstrap, name)
            producer.begin_transaction()
            value = b"%d of %d" % (len(self.committed), number)
            producer.produce(self._topic, value, partition=0)
            if number % 3:
                producer.commit_transaction(30)
                self.committed.append(value)
            else:
                producer.flush(30)
                producer.abort_transaction(30)

    def leave_open(self) -> None:
        """A transaction that begins at one broker and ends at another."""
        self._open = rd_producer(self._bootstrap, OPEN, **{"transaction.timeout.ms": 300_000})
        self._open.begin_transaction()
        self._open.produce(self._topic, b"open %d" % len(self.committed), partition=0)
        assert self._open.flush(30) == 0

    def end_open(self) -> None:
        assert self._open is not None
        self._open.commit_transaction(60)

    def check(self) -> None:
        def is_there() -> bool:
            found = committed(self._bootstrap, self._topic)
            return [one for one in found if not one.startswith(b"open")] == self.committed

        wait_until(is_there, timeout_s=PATIENCE_S, what="what is committed can be read")


@pytest.mark.parametrize("version", [LAST_WITH_ZOOKEEPER, NEWEST])
def test_kafkas_folder_and_back(version: str, tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka", version=version, heap="512m") as kafka:
        topic = create(kafka.bootstrap)
        copies = Copies(kafka.bootstrap, topic)
        copies.write_all()
        copies.leave_open()
        before = rest(kafka.bootstrap)
        assert before[OPEN].state == "Ongoing"
        kafka.stop()
        ours = BarnabasServer(tmp_path / "ours", settings=kafka.folder / "server.properties", port=kafka.port)
        with ours:
            wait_same(before, ours.bootstrap)
            copies.end_open()
            copies.write_all()
            copies.check()
            copies.leave_open()
            after = rest(ours.bootstrap)
            assert after[OPEN].state == "Ongoing" and after != before
            ours.stop()
        kafka.start()
        wait_same(after, kafka.bootstrap)
        copies.end_open()
        copies.write_all()
        copies.check()
        assert sum(one.startswith(b"open") for one in committed(kafka.bootstrap, topic)) == 2
