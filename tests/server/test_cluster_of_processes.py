"""Three brokers as processes, held together by a real ZooKeeper or by one of themselves: kill -9 loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.kafka import ZooKeeperServer
from tests.server_process import free_port, wait_until, wait_until_all_registered
from tests.testing.test_cluster import DEADLINE_S, Numbers, partitions_told, read_all

SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "2000",
}


@pytest.fixture(params=[pytest.param("ZooKeeper", marks=pytest.mark.java), "a broker"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[int, BarnabasServer]]:
    with ExitStack() as stack:
        if request.param == "ZooKeeper":
            joining = {"zookeeper.connect": f"{stack.enter_context(ZooKeeperServer(tmp_path / 'zk')).address}/kafka"}
            first = joining
        else:
            address = f"127.0.0.1:{free_port()}"
            joining, first = {"zookeeper.connect": address}, {"coordinator.listeners": address}
        found = {}
        for number in (1, 2, 3):
            where = first if number == 1 else joining
            properties = {**SETTINGS, **where, "broker.id": str(number)}
            found[number] = stack.enter_context(BarnabasServer(tmp_path / f"broker-{number}", properties=properties))
        yield found


@pytest.mark.verify
@pytest.mark.timeout(300)
def test_a_leader_that_is_killed_is_replaced_and_comes_back(brokers: dict[int, BarnabasServer]) -> None:
    bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until_all_registered(brokers.values())
    (created,) = admin.create_topics([NewTopic("orders", 6, 3)]).values()
    created.result(DEADLINE_S)

    def leaders() -> list[int]:
        return [partition.leader for partition in partitions_told(admin, "orders")]

    def led_by_others() -> bool:
        found = leaders()
        return bool(found) and not {victim, -1} & set(found)

    def in_sync() -> bool:
        found = partitions_told(admin, "orders")
        return bool(found) and all(len(partition.isrs) == 3 for partition in found)

    wait_until(in_sync, timeout_s=DEADLINE_S, what="all replicas are in sync")
    victim = next(leader for leader in leaders() if leader != 1)
    with Numbers(bootstrap, "orders") as load:
        load.grows()
        brokers[victim].kill()
        wait_until(led_by_others, timeout_s=DEADLINE_S, what="others lead")
        load.grows()
        brokers[victim].start()
        wait_until(in_sync, timeout_s=DEADLINE_S, what="all replicas are in sync again")
        load.grows()
    assert load.errors == []
    assert sorted(read_all(bootstrap, "orders", len(load.acknowledged))) == sorted(load.acknowledged)
