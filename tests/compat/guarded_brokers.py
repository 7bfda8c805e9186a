"""Brokers with rules and passwords, Apache Kafka's and this one, and a client that says what it hears of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

from tests.barnabas_server import BarnabasServer
from tests.kafka import LAST_WITH_ZOOKEEPER, KafkaServer, ZooKeeperServer
from tests.server.config.config_client import ConfigClient
from tests.server_process import BrokerProcess, free_port, wait_until

from barnabas.clients.admin.acls import creation_of
from barnabas.protocol.acl_bindings import AclBinding
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

ROOT = "root"
SETTINGS = {
    "super.users": f"User:{ROOT};User:ANONYMOUS",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "connection.failed.authentication.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "auto.create.topics.enable": "false",
}
"""The plain listener is for the brokers themselves, whom nothing is refused."""
JAAS = "listener.name.guarded.plain.sasl.jaas.config"
ANY_ACL = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)
CLOSED = "closed"


class GuardedBroker:
    """One that wants a password on its listener `guarded`; a user's is the user's name."""

    def __init__(self, server: BrokerProcess, guarded: int) -> None:
        self.server = server
        self._address = f"127.0.0.1:{guarded}"
        self._clients: dict[str | None, ConfigClient] = {}

    def hears(self, user: str | None, key: ApiKey, version: int, request: Any) -> Any:
        """What a user is answered, or that the connection is closed. None: who has not said who they are."""
        client = self._clients.pop(user, None) or self.connect(user)
        try:
            answer = client.call(key, version, request)
        except (AssertionError, ConnectionError):
            client.close()
            return CLOSED
        self._clients[user] = client
        return answer

    def connect(self, user: str | None) -> ConfigClient:
        """Return another connection, which the caller closes."""
        client = ConfigClient(self._address)
        if user is not None:
            client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            said = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode())
            assert client.call(ApiKey.SASL_AUTHENTICATE, 1, said).error_code == 0, user
        return client

    def forget(self, user: str | None) -> None:
        """The user comes by another connection the next time."""
        client = self._clients.pop(user, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def versions(self) -> dict[ApiKey, tuple[int, int]]:
        """What it serves, of what is known here."""
        served = self.hears(ROOT, ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).api_keys
        known = set(ApiKey)
        return {ApiKey(one.api_key): (one.min_version, one.max_version) for one in served if one.api_key in known}

    def prepare(self, topic: str, rules: set[AclBinding]) -> UUID:
        """The topic, coordinators and rules are there; returns the topic's id."""
        with closing(ConfigClient(self.server.bootstrap)) as client:
            client.create_topic(topic)
            wait_until(lambda: _is_coordinated(client, topic), timeout_s=90, what="coordinators")
        made = self.hears(ROOT, ApiKey.CREATE_ACLS, 2, creation_of(sorted(rules)))
        assert not any(one.error_code for one in made.results)
        wait_until(lambda: self._rules() == len(rules), timeout_s=60, what="rules")
        described = self.hears(ROOT, ApiKey.METADATA, 10, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        found: UUID = described.topics[0].topic_id
        return found

    def _rules(self) -> int:
        resources = self.hears(ROOT, ApiKey.DESCRIBE_ACLS, 2, ANY_ACL).resources
        return sum(len(one.acls) for one in resources)


def _is_coordinated(client: ConfigClient, name: str) -> bool:
    for kind in (0, 1):
        if client.call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key=name, key_type=kind)).error_code:
            return False
    groups = client.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[name])).groups
    described = DescribeTransactionsRequest(transactional_ids=[name])
    (transaction,) = client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, described).transaction_states
    known = transaction.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    return known and not groups[0].error_code


def _with_listeners(settings: Mapping[str, str], port: int, guarded: int, users: set[str]) -> dict[str, str]:
    both = f"PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded}"
    options = " ".join(f'user_{user}="{user}"' for user in sorted(users))
    jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"
    return {**settings, "listeners": both, "advertised.listeners": both, JAAS: jaas}


@contextmanager
def guarded_barnabas(
    folder: Path, authorizer: str, users: set[str], properties: Mapping[str, str] = MappingProxyType({})
) -> Iterator[GuardedBroker]:
    """This broker."""
    port, guarded = free_port(), free_port()
    settings = _with_listeners({**SETTINGS, **properties}, port, guarded, users) | {"authorizer.class.name": authorizer}
    with BarnabasServer(folder, port=port, properties=settings) as server:
        broker = GuardedBroker(server, guarded)
        with closing(broker):
            yield broker


@contextmanager
def guarded_kafka(
    folder: Path,
    release: str,
    authorizer: str,
    users: set[str],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[GuardedBroker]:
    """Apache Kafka: 3.9.1 with a ZooKeeper, any other without."""
    port, guarded, controller = (free_port() for _ in range(3))
    settings = _with_listeners({**SETTINGS, **properties}, port, guarded, users) | {"authorizer.class.name": authorizer}
    if release == LAST_WITH_ZOOKEEPER:
        with ZooKeeperServer(folder / "zookeeper") as keeper:
            kafka = KafkaServer(
                folder / "kafka",
                version=release,
                mode="zookeeper",
                zookeeper=keeper.address,
                port=port,
                properties=settings,
            )
            with kafka, closing(GuardedBroker(kafka, guarded)) as broker:
                yield broker
        return
    protocols = f"{settings['listener.security.protocol.map']},CONTROLLER:PLAINTEXT"
    own = {
        "listeners": f"{settings['listeners']},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": protocols,
    }
    kafka = KafkaServer(folder / "kafka", version=release, port=port, properties=settings | own)
    with kafka, closing(GuardedBroker(kafka, guarded)) as broker:
        yield broker
