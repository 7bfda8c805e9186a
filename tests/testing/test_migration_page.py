"""What docs/migrating-tests.md gives for other kits' functions is there, and none of them is passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from tests.server_process import wait_until
from tests.testing.test_pytest_plugin import run_pytest

from barnabas.testing import Broker, Cluster
from barnabas.testing.cluster import Coordinated

PATIENCE_S = 60
COORDINATED: tuple[tuple[str, Coordinated], ...] = (("g", "group"), ("tx", "transaction"))
PAGE = (Path(__file__).parents[2] / "docs" / "migrating-tests.md").read_text()
CODE = re.compile(r"`([^`]+)`")
WORD = re.compile(r"\w+")
WITH_THE_EXAMPLES = """
import pytest
from confluent_kafka import Producer
from barnabas.testing import Broker

def produce_with_my_code(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"hello")
    assert producer.flush(60) == 0

def test_the_fixture(bootstrap):
    produce_with_my_code(bootstrap, "made-by-asking")
"""
OF_LIBRDKAFKA = """
broker_add broker_decommission broker_error_stack_cnt broker_push_request_error_rtts broker_remove_from_metadata
broker_set_down broker_set_host_port broker_set_rack broker_set_rtt cgrp_consumer_target_assignment
clear_request_errors clear_requests cluster_bootstraps cluster_new coordinator_set get_requests
group_initial_rebalance_delay_ms partition_delete_records partition_push_leader_response
partition_push_request_errors partition_set_follower partition_set_follower_wmarks partition_set_leader
push_request_errors request_api_key request_destroy request_id request_timestamp set_apiversion
set_group_consumer_heartbeat_interval_ms set_group_consumer_session_timeout_ms sharegroup_ start_request_tracking
stop_request_tracking telemetry_set_push_interval telemetry_set_requested_metrics topic_create topic_delete
topic_set_error
"""
"""Functions of rdkafka_mock.h in 2.15, those aside that undo one of these or do it for an array."""
OF_KFAKE = """
NewCluster MustCluster ListenAddrs Close Control ControlKey KeepControl DropControl SleepControl CurrentNode
MoveTopicPartition CoordinatorFor LeaderFor RehashCoordinators AddNode RemoveNode ShufflePartitionLeaders
SetFollowers Compact ApplyRetention AddFault Fired Remove TopicInfo PartitionInfo NumBrokers Ports
AllowAutoTopicCreation DefaultNumPartitions GroupMinSessionTimeout GroupMaxSessionTimeout EnableSASL Superuser User
TLS SeedTopics SleepOutOfOrder MaxVersions EnableACLs BrokerConfigs DataDir SyncWrites
"""


def rows() -> Iterator[tuple[str, list[str]]]:
    """What was called, and the expressions that take its place."""
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            before, after = line.strip("|").split("|")
            yield before, [one for one in CODE.findall(after) if "(" in one or one.startswith(("broker.", "cluster."))]


def test_every_function_of_librdkafkas_mock_has_its_place() -> None:
    named = " ".join(before for before, _ in rows())
    assert [one for one in WORD.findall(OF_LIBRDKAFKA) if not re.search(rf"\brd_kafka_mock_{one}(\b|…)", named)] == []


def test_every_function_that_kfake_is_steered_by_has_its_place() -> None:
    named = " ".join(before for before, _ in rows())
    assert [one for one in WORD.findall(OF_KFAKE) if not re.search(rf"\b{one}\b", named)] == []


def test_the_examples_pass_as_they_stand_there(tmp_path: Path) -> None:
    afters = [block.split("# after\n")[1] for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)]
    assert len(afters) == 3
    (tmp_path / "test_afterwards.py").write_text("\n".join([WITH_THE_EXAMPLES, *afters]))
    result = run_pytest(tmp_path)
    assert "2 passed" in result.stdout, result.stdout + result.stderr


def test_what_takes_their_place_is_there(tmp_path: Path) -> None:
    """Row by row as it stands there; what is broken by one is mended for the next."""
    with (
        Broker({"t": 2}, config={"log.cleanup.policy": "compact,delete"}) as broker,
        Cluster(3, {"t": 1}) as cluster,
    ):
        broker.produce("t", {str(number): "v" for number in range(17)}, partition=0)
        have_coordinators(cluster)
        for before, expressions in rows():
            assert expressions or "sharegroup" in before or "request_api_key" in before, before
            names: dict[str, Any] = {
                "broker": broker,
                "cluster": cluster,
                "Broker": Broker,
                "Cluster": Cluster,
                "err": "NOT_LEADER_OR_FOLLOWER",
                "function": lambda request, response: response,
                "answer": lambda request: None,
                "fault": broker.faults.watch(),
                "dir": tmp_path,
            }
            for one in expressions:
                eval(one, names)
            broker.faults.clear()
            as_it_was(cluster)


def have_coordinators(cluster: Cluster) -> None:
    """A group and a transactional id that were asked for."""
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    Producer({**settings, "transactional.id": "tx"}).init_transactions(PATIENCE_S)
    consumer = Consumer({**settings, "group.id": "g"})
    wait_until(lambda: has_committed_offsets(consumer), timeout_s=PATIENCE_S, what="a group coordinator")
    consumer.close()
    as_it_was(cluster)


def has_committed_offsets(consumer: Consumer) -> bool:
    """Whether the coordinator answers: librdkafka gives up where a broker does not know yet that it leads."""
    try:
        consumer.committed([Place("t", 0)], timeout=PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.NOT_COORDINATOR:
            raise
        return False
    return True


def as_it_was(cluster: Cluster) -> None:
    """Nothing goes wrong, all run, and the first leads."""
    for broker_id in set(range(1, 4)) - set(cluster.brokers):
        cluster.start(broker_id)
    for broker_id in cluster.brokers:
        cluster.faults(broker_id).clear()
    cluster.wait_for_isr("t", brokers=3, timeout=PATIENCE_S)
    if cluster.leader("t") != 1:
        cluster.move_leader("t", to=1)
    for name, of in COORDINATED:
        if cluster.coordinator(name, of) != 1:
            cluster.move_coordinator(name, to=1, of=of)
