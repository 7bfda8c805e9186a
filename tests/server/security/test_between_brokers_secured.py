"""Brokers that prove to each other who they are: passwords, certificates, rules, what goes wrong and how it is told."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.server_process import free_port
from tests.testing.test_cluster import Numbers, read_all
from tests.waiting import until

from barnabas.clients.certificates import Authority
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.errors import BrokerUnreachableError
from barnabas.clients.security import security_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.network.broker_connections import BrokerConnections
from barnabas.server.security.inter_broker_security import InterBrokerSecurity
from barnabas.testing import Broker, Cluster

PATIENCE = 60
DEADLINE = 60.0
PASSWORDS = {"anna": "a", "eve": "e"}
WITH_RULES = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:anna"}


async def connect(cluster: Cluster, broker_id: int, user: str) -> BrokerConnection:
    host, _, port = cluster.address(broker_id).rpartition(":")
    options = ConnectionOptions(security=security_of(cluster.client_settings(user)))
    return await BrokerConnection.open(host, int(port), options)


def librdkafka(settings: dict[str, str], user: str) -> dict[str, Any]:
    """The same for clients that have names and passwords in settings of their own."""
    return {
        "security.protocol": settings["security.protocol"],
        "ssl.ca.location": settings["ssl.truststore.location"],
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


async def test_brokers_replicate_by_name_and_nobody_else_may() -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Cluster(brokers=3, topics={"t": 1}, sasl=PASSWORDS, tls=True, config=WITH_RULES) as cluster,
    ):
        assert await cluster.await_isr("t", timeout=DEADLINE) == (1, 2, 3)
        security = librdkafka(cluster.client_settings("anna"), "anna")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **security})
        producer.produce("t", b"x")
        assert await asyncio.to_thread(producer.flush, DEADLINE) == 0
        leader = cluster.leader("t")

        def names() -> set[str]:
            servers = map(cluster.server, cluster.brokers)
            return {str(one.session.principal) for server in servers for one in server.sockets._connections}

        assert "User:broker" in names()
        # The producer may still be about to prove who it is, at a broker that it does not write to.
        await until(lambda: "User:ANONYMOUS" not in names())
        eve = await connect(cluster, leader, "eve")
        topic_id = cluster.server(leader).state.metadata.topic("t").topic_id  # type: ignore[union-attr]
        wanted = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_max_bytes=1000)])]
        as_replica = FetchRequest(replica_state=ReplicaState(replica_id=2, replica_epoch=-1), topics=wanted)
        answer = await eve.send(as_replica, 15)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        order = await eve.send(LeaderAndIsrRequest(controller_id=2, controller_epoch=99), 5)
        assert order.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        eve.close()


async def test_a_wrong_password_is_told_once_and_a_right_one_is_used_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(PATIENCE), Cluster(brokers=2, topics={"t": 1}, sasl=PASSWORDS) as cluster:
        await cluster.await_isr("t", brokers=2, timeout=DEADLINE)
        led, follower = cluster.leader("t"), 3 - cluster.leader("t")
        settings = cluster._members[follower].settings
        key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        right = cluster._access.settings()[key]
        await cluster.astop(follower)
        settings[key] = right.replace("username=broker password=", "username=broker password=x")
        with caplog.at_level(logging.DEBUG, "barnabas.security"):
            await cluster.astart(follower)
            # It is tried again and again.
            tried = "failed to authenticate by PLAIN"
            await until(lambda: len([line for line in caplog.messages if tried in line]) > 3)
            (line,) = [one for one in caplog.records if "cannot connect to broker" in one.message]
            assert line.levelno == logging.ERROR
            assert f"broker {led} " in line.message and "Invalid username or password" in line.message
        server = cluster.server(follower)
        server.state.dynamic_config.broker_config_changed({key: right}, per_broker=True)
        await cluster.await_isr("t", brokers=2, timeout=DEADLINE)


class Refusing:
    """A broker with TLS whose certificate is for other hosts than where it is reached."""

    def __init__(self, folder: Path, host: str) -> None:
        authority = Authority.new("test CA")
        authority.write(folder / "ca.pem")
        authority.issue("broker", [host]).write(folder / "broker.pem")
        self.settings = {
            "listeners": "SSL://127.0.0.1:0",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "ssl.client.auth": "required",
        }

    def outgoing(self, **more: str) -> InterBrokerSecurity:
        named = {name.replace("_", "."): value for name, value in more.items()}
        config = BrokerConfig.from_properties(self.settings | named)
        return InterBrokerSecurity(config, config.inter_broker_listener)


async def ask(broker: Broker, outgoing: InterBrokerSecurity) -> Any:
    connections = BrokerConnections(
        7, lambda _: ("127.0.0.1", broker.port), random.Random(1), timeout_ms=20_000, outgoing=outgoing
    )
    try:
        return await connections.send_request(1, MetadataRequest(topics=None))
    finally:
        connections.close()


async def test_a_certificate_has_to_name_the_host(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = Refusing(tmp_path, "elsewhere.example")
    async with asyncio.timeout(PATIENCE), Broker(config=dict(other.settings)) as broker:
        outgoing = other.outgoing()
        for _ in range(2):
            with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1"):
                await ask(broker, outgoing)
        assert (
            len([line for line in caplog.messages if "cannot connect to broker" in line and "on listener SSL" in line])
            == 1
        )
        unchecked = other.outgoing(ssl_endpoint_identification_algorithm="")
        assert (await ask(broker, unchecked)).brokers
        # As Kafka has it for one listener alone.
        alone = "listener.name.ssl.ssl.endpoint.identification.algorithm"
        config = BrokerConfig.from_properties(other.settings | {alone: ""})
        assert (await ask(broker, InterBrokerSecurity(config, config.inter_broker_listener))).brokers


async def test_a_broker_that_is_away_is_not_told_of_as_one_that_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outgoing = Refusing(tmp_path, "127.0.0.1").outgoing()
    port = free_port()
    connections = BrokerConnections(
        7, lambda _: ("127.0.0.1", port), random.Random(1), timeout_ms=1000, outgoing=outgoing
    )
    with pytest.raises(BrokerUnreachableError):
        await connections.send_request(1, MetadataRequest(topics=None))
    connections.close()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


BASE = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
JAAS = "listener.name.inside.scram-sha-512.sasl.jaas.config"
USER = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="p";'


def between(properties: dict[str, str]) -> InterBrokerSecurity:
    config = BrokerConfig.from_properties(BASE | {JAAS: USER} | properties)
    return InterBrokerSecurity(config, config.inter_broker_listener)


def test_a_listener_is_named_by_itself_or_by_its_protocol() -> None:
    named = between({"inter.broker.listener.name": "INSIDE", "sasl.mechanism.inter.broker.protocol": "scram-sha-512"})
    assert named.security.exchange("b") is not None
    assert (named.security.mechanism, named.security.username) == ("SCRAM-SHA-512", "b")
    protocols = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "listener.security.protocol.map": ""}
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        between(protocols)
    assert between({"security.inter.broker.protocol": "PLAINTEXT"} | plain()).security.tls is None


def plain() -> dict[str, str]:
    default = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    return default | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"inter.broker.listener.name": "NONE"}, "it must be the name of a listener: INSIDE, OUTSIDE"),
        ({"inter.broker.listener.name": "INSIDE", "security.inter.broker.protocol": "SSL"}, "cannot be combined with"),
        ({"inter.broker.listener.name": "INSIDE"}, r"one of sasl\.enabled\.mechanisms"),  # GSSAPI
        (
            {"inter.broker.listener.name": "INSIDE", "sasl.mechanism.inter.broker.protocol": "PLAIN"},
            r"one of sasl\.enabled\.mechanisms of listener INSIDE",
        ),
        (
            {
                "inter.broker.listener.name": "INSIDE",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                JAAS: USER.replace("username", "name"),
            },
            "no username and password",
        ),
    ],
)
def test_what_could_never_work_is_refused_before_a_start(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        between(properties)


def test_orders_may_have_a_listener_of_their_own() -> None:
    config = BrokerConfig.from_properties(BASE | {"inter.broker.listener.name": "OUTSIDE"})
    assert config.control_plane_listener is None
    apart = BASE | {"inter.broker.listener.name": "OUTSIDE", "control.plane.listener.name": "INSIDE"}
    control = BrokerConfig.from_properties(apart).control_plane_listener
    assert control is not None and control.name == "INSIDE"
    with pytest.raises(ConfigError, match=r"must differ from inter\.broker\.listener\.name"):
        _ = BrokerConfig.from_properties(apart | {"control.plane.listener.name": "OUTSIDE"}).control_plane_listener


async def test_the_controller_gives_orders_by_the_listener_that_is_for_them() -> None:
    config = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "OUTSIDE",
        "control.plane.listener.name": "INSIDE",
    }
    async with asyncio.timeout(PATIENCE), Cluster(brokers=2, topics={"t": 1}, config=config) as cluster:
        await cluster.await_isr("t", brokers=2, timeout=DEADLINE)
        active = cluster.controller
        ordered = {
            one.session.listener.name
            for broker_id in cluster.brokers
            if broker_id != active
            for one in cluster.server(broker_id).sockets._connections
        }
        assert "INSIDE" in ordered
        sockets = cluster.server(cluster.leader("t")).sockets
        await until(lambda: any(one.session.listener.name == "OUTSIDE" for one in sockets._connections))


@pytest.mark.verify
def test_a_cluster_goes_from_plaintext_to_sasl_over_tls_under_load() -> None:
    """Kafka's security_rolling_upgrade: a second listener, then brokers use it, then the first goes."""
    start = {"listeners": "PLAINTEXT://127.0.0.1:0", "security.inter.broker.protocol": "PLAINTEXT"}
    with Cluster(brokers=3, topics={"t": 3}, sasl=PASSWORDS, tls=True, config=start) as cluster:
        plain = {broker_id: cluster._members[broker_id].settings["listeners"] for broker_id in cluster.brokers}
        secured = {broker_id: f"SASL_SSL://127.0.0.1:{free_port()}" for broker_id in cluster.brokers}

        def roll(load: Numbers, listeners: dict[int, str], protocol: str) -> None:
            for broker_id, addresses in listeners.items():
                load.grows()
                cluster.stop(broker_id)
                change = {"listeners": addresses, "security.inter.broker.protocol": protocol}
                cluster._members[broker_id].settings.update(change)
                cluster.start(broker_id)
                for index in range(3):
                    cluster.wait_for_isr("t", index, timeout=DEADLINE)
            load.grows()

        with Numbers(cluster.bootstrap, "t") as before:
            both = {broker_id: f"{plain[broker_id]},{secured[broker_id]}" for broker_id in plain}
            roll(before, both, "PLAINTEXT")
            roll(before, both, "SASL_SSL")
        security = librdkafka(cluster.client_settings("anna"), "anna")
        bootstrap = ",".join(address.removeprefix("SASL_SSL://") for address in secured.values())
        with Numbers(bootstrap, "t", security) as after:
            roll(after, secured, "SASL_SSL")
        assert before.errors == after.errors == []
        written = before.acknowledged + after.acknowledged
        assert sorted(read_all(bootstrap, "t", len(written), security)) == sorted(written)
        assert {one.name for broker_id in (1, 2, 3) for one in cluster.server(broker_id).listeners} == {"SASL_SSL"}
