"""Commands for operators: user, features, elections, reassign, log-dirs, client-metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.server_process import wait_until
from typer.testing import CliRunner, Result

from barnabas.clients.admin import spread_replicas
from barnabas.clients.admin.configs import group_by_broker
from barnabas.protocol.config_resources import ConfigResource as Resource
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker, Cluster
from barnabas.tools.cli.app import app

Run = Callable[..., Result]
runner = CliRunner()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"orders": 3}, racks=["north", "south", "west"]) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster) -> Run:
    def command(*arguments: str, given: str = "", status: int = 0) -> Result:
        shown = runner.invoke(app, [*arguments, "-b", cluster.bootstrap], input=given)
        assert shown.exit_code == status, shown.output
        return shown

    return command


def rows(result: Result) -> list[dict]:
    return json.loads(result.stdout)


def test_a_user_is_added_and_can_log_in() -> None:
    with Broker(["orders"], sasl={"admin": "secret"}) as broker:
        settings = [
            f"-X{key}={value}" for key, value in broker.client_settings("admin").items() if key != "bootstrap.servers"
        ]

        def command(*arguments: str, given: str = "") -> Result:
            return runner.invoke(app, [*arguments, "-b", broker.bootstrap, *settings], input=given)

        added = command("user", "add", "ann", given="pass word\n")
        assert added.exit_code == 0, added.output
        assert "user ann has a password for SCRAM-SHA-512" in added.output
        command("quota", "set", "producer_byte_rate=1000000", "--user", "ann")
        (row,) = [row for row in rows(command("user", "list", "--json")) if row["user"] == "ann"]
        assert row == {
            "user": "ann",
            "mechanisms": ["SCRAM-SHA-512"],
            "quotas": ["producer_byte_rate=1e+06"],
            "acls": 0,
        }
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "ann",
                "sasl.password": "pass word",
            }
        )
        producer.produce("orders", b"one coffee")
        assert producer.flush(30) == 0
        del producer  # its threads would reconnect after the broker has stopped
        assert command("user", "remove", "ann").exit_code == 0
        missing = command("user", "remove", "ann", "--mechanism", "SCRAM-SHA-512")
        assert missing.exit_code == 1
        assert "RESOURCE_NOT_FOUND" in missing.output
        assert "no password given" in command("user", "add", "bob").output
        assert command("user", "add", "bob", "--mechanism", "PLAIN", given="x\n").exit_code == 2


def test_features(run: Run) -> None:
    levels = {row["feature"]: row for row in rows(run("features", "describe", "--json"))}
    assert levels["transaction.version"]["max"] == 2
    wanted = "transaction.version=1"
    assert "would set transaction.version=1" in run("features", "downgrade", wanted, "--dry-run").output
    before = levels["transaction.version"]["finalized"]
    if before == 2:
        run("features", "downgrade", wanted)
        again = {row["feature"]: row["finalized"] for row in rows(run("features", "describe", "--json"))}
        assert again["transaction.version"] == 1
        run("features", "upgrade", "transaction.version=2")
    run("features", "upgrade", "transaction.version=x", status=2)
    assert "INVALID" in run("features", "upgrade", "no.such.feature=1", status=1).output


def test_elections_and_reassignments(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    run("topic", "create", "moved", "--partitions", "2", "--replication-factor", "2")
    plan = tmp_path / "plan.json"
    plan.write_text(run("reassign", "plan", "moved", "--brokers", "2,3").stdout)
    wanted = {(one["topic"], one["partition"]): one["replicas"] for one in json.loads(plan.read_text())["partitions"]}
    assert sorted(map(sorted, wanted.values())) == [[2, 3], [2, 3]]
    assert {replicas[0] for replicas in wanted.values()} == {2, 3}
    executed = run("reassign", "execute", str(plan), "--throttle", "10000000")
    back = json.loads(executed.stdout.splitlines()[-1])
    assert {one["partition"] for one in back["partitions"]} == {0, 1}
    wait_until(
        lambda: rows(run("reassign", "status", "--json")) == [], timeout_s=60, what="the cluster shows the change"
    )
    for partition, replicas in ((partition, replicas) for (_, partition), replicas in wanted.items()):
        cluster.wait_for_isr("moved", partition, replicas)
    run("reassign", "unthrottle")
    described = rows(run("config", "describe", "topic", "moved", "--json"))
    assert not [one for one in described if "throttled" in one["key"]]

    run("elections", "preferred", "moved")
    wait_until(
        lambda: rows(run("elections", "list", "moved", "--json")) == [],
        timeout_s=60,
        what="the cluster shows the change",
    )
    first, other = wanted["moved", 0]
    cluster.stop(first)
    cluster.start(first)
    cluster.wait_for_isr("moved", 0, (first, other))
    wait_until(
        lambda: rows(run("elections", "list", "moved", "--json")) != [],
        timeout_s=60,
        what="the broker that answers has the new leader",
    )
    (needed,) = rows(run("elections", "list", "moved", "--json"))
    assert (needed["leader"], needed["preferred"], needed["election"]) == (other, first, "preferred")
    elected = rows(run("elections", "preferred", "moved:0,1", "--json"))
    assert [one["result"] for one in elected] == ["elected", "election not needed"]
    assert cluster.leader("moved", 0) == first
    assert "cancelled 0 reassignments" in run("reassign", "cancel").output


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"partitions": 1}',
        '{"partitions": [{"topic": "t"}]}',
        '{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
        '{"version": 2, "partitions": []}',
        "[" * 100_000,
    ],
)
def test_an_invalid_plan_is_one_error(run: Run, text: str) -> None:
    shown = run("reassign", "execute", "-", given=text, status=2)
    assert "invalid plan" in shown.output


def test_unknown_partitions_are_named(run: Run, tmp_path: Path) -> None:
    assert "topic nothing" in run("elections", "list", "nothing", status=1).output
    assert "partition 9 of topic orders" in run("elections", "list", "orders:9", status=1).output
    assert "expected TOPIC" in run("elections", "list", "orders:x", status=2).output
    assert "broker 9 is not live" in run("reassign", "plan", "orders", "--brokers", "1,9", status=2).output
    plan = '{"partitions": [{"topic": "orders", "partition": 7, "replicas": [1]}]}'
    assert "orders-7: the partition does not exist" in run("reassign", "execute", "-", given=plan, status=2).output


def test_replicas_are_moved_between_log_directories(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    with Broker({"orders": 2}, config={"log.dirs": ",".join(map(str, directories))}) as broker:

        def command(*arguments: str) -> Result:
            shown = runner.invoke(app, ["log-dirs", *arguments, "-b", broker.bootstrap])
            assert shown.exit_code == 0, shown.output
            return shown

        broker.produce("orders", ["one coffee"])
        (id_,) = {row["broker"] for row in rows(command("list", "--json"))}
        command("move", "orders", "--broker", str(id_), "--to", str(directories[1]))
        wait_until(
            lambda: {row["path"] for row in rows(command("describe", "orders", "--json"))} == {str(directories[1])},
            timeout_s=60,
            what="the replicas are moved",
        )
        refused = runner.invoke(
            app, ["log-dirs", "move", "orders", "--broker", str(id_), "--to", "/no/where", "-b", broker.bootstrap]
        )
        assert refused.exit_code == 1
        assert "LOG_DIR_NOT_FOUND" in refused.output


def test_client_metrics(run: Run, cluster: Cluster) -> None:
    run("client-metrics", "set", "all", "--metric", "*", "--interval", "10000", "--match", "client_id=app-.*")
    assert rows(run("client-metrics", "list", "--json")) == [
        {"name": "all", "metrics": "*", "interval.ms": "10000", "match": "client_id=app-.*"}
    ]
    run("client-metrics", "set", "all", "--interval", "20000")
    (row,) = rows(run("client-metrics", "list", "--json"))
    assert row["interval.ms"] == "20000"
    run("client-metrics", "remove", "all")
    assert rows(run("client-metrics", "list", "--json")) == []
    assert "RESOURCE_NOT_FOUND" in run("client-metrics", "remove", "all", status=1).output


def test_replicas_are_spread_over_brokers_and_racks() -> None:
    partitions = {TopicPartition("t", index): 2 for index in range(12)}
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    spread = spread_replicas(partitions, [1, 2, 3, 4], racks)
    assert all(racks[first] != racks[second] for first, second in spread.values())
    leads = [replicas[0] for replicas in spread.values()]
    holds = [broker for replicas in spread.values() for broker in replicas]
    assert {leads.count(broker) for broker in racks} == {3}
    assert {holds.count(broker) for broker in racks} == {6}
    with pytest.raises(ValueError, match="t-0: 5 replicas"):
        spread_replicas({TopicPartition("t", 0): 5}, [1, 2, 3, 4], racks)


def test_settings_of_a_group_with_a_number_as_its_name_are_asked_of_any_broker() -> None:
    group, broker = Resource(ConfigResourceType.GROUP, "42"), Resource(ConfigResourceType.BROKER, "42")
    assert group_by_broker([group, broker]) == {None: [group], 42: [broker]}
