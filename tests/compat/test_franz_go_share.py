"""franz-go's share consumer with Barnabas and with Apache Kafka 4.4.0: acknowledgements, renewals, expired locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.go_clients import go_client
from tests.compat.test_share_consumers import LOCK_MS, SETTINGS, ShareMemberProcess, World
from tests.kafka import KafkaServer

pytestmark = [pytest.mark.verify, pytest.mark.golang, pytest.mark.timeout(300)]

LOCK_S = LOCK_MS / 1000
ONE_BROKER = {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}
KAFKA = pytest.param("kafka", marks=pytest.mark.java)


@pytest.fixture(scope="module", params=["barnabas", KAFKA])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, settings = tmp_path_factory.mktemp(request.param), SETTINGS | ONE_BROKER
    barnabas = request.param == "barnabas"
    with (BarnabasServer if barnabas else KafkaServer)(folder, properties=settings) as server:
        yield server.bootstrap


@pytest.fixture
def world(bootstrap: str, tmp_path: Path) -> Iterator[World]:
    made = World(bootstrap, tmp_path)
    yield made
    made.close()


def join(world: World, *most: str) -> ShareMemberProcess:
    """A member of franz-go joins, with a strict limit of records per fetch if given."""
    return world.start([str(go_client("franzgo")), "share", world.bootstrap, world.group, world.topic, *most])


@pytest.mark.parametrize("most", [(), ("5",)], ids=["batch_optimized", "record_limit"])
def test_records_are_accepted_released_and_rejected(world: World, most: tuple[str, ...]) -> None:
    world.produce(20)
    member = join(world, *most)
    delivered: dict[int, list[int]] = {offset: [] for offset in range(20)}
    while sum(map(len, delivered.values())) < 24:
        found = member.poll()
        assert found and len(found) <= (5 if most else 20), delivered
        for place, count in found.items():
            offset = int(place.split(":")[1])
            delivered[offset].append(count)
            first = {0: "RELEASE", 1: "REJECT"}.get(offset % 5, "ACCEPT")
            member.acknowledge(first if count == 1 else "ACCEPT", place)
        assert member.commit() == "committed 0=ok"
    assert delivered == {offset: [1, 2] if offset % 5 == 0 else [1] for offset in range(20)}
    assert member.poll(2.0) == {}


def test_renewed_locks_do_not_expire_and_others_do(world: World) -> None:
    world.produce(2)
    # Without a strict limit, franz-go fetches while the application does not poll, and gets its own records again.
    first = join(world, "5")
    assert first.poll() == {"0:0": 1, "0:1": 1}
    other = join(world, "5")
    found: dict[str, int] = {}
    for _ in range(3):  # longer than one lock
        first.acknowledge("RENEW", "0:0")
        assert first.commit() == "committed 0=ok"
        found |= other.poll(LOCK_S / 2)
        assert "0:0" not in found, "its lock was renewed"
    while len(found) < 2:  # the next poll accepts the records of a poll
        some = other.poll(3 * LOCK_S)
        assert some, found
        found |= some
    assert found == {"0:0": 2, "0:1": 2}
    first.acknowledge("ACCEPT", "0:0")
    assert first.commit() == "committed 0=INVALID_RECORD_STATE"
    other.acknowledge("ACCEPT", "0:0")
    assert other.commit() == "committed 0=ok"
    assert other.poll(2.0) == {}


def test_records_of_a_member_that_leaves_are_delivered_again(world: World) -> None:
    world.set_group({"share.record.lock.duration.ms": "30000"})
    world.produce(10)
    first = join(world)
    held = first.poll()
    assert held
    first.close()
    other = join(world)
    found: dict[str, int] = {}
    while len(found) < 10:
        some = other.poll()
        assert some, found
        found |= some
    assert {place: found[place] for place in held} == dict.fromkeys(held, 2)
