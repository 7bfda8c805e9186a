"""Every API in every version, as asked by everybody: Apache Kafka and this broker give the same answers.

Kafka 3.9.1 keeps its rules in ZooKeeper (AclAuthorizer), 4.4.0 in KRaft (StandardAuthorizer).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from tests.compat.answers import differences, plain
from tests.compat.guarded_brokers import ROOT, GuardedBroker, guarded_barnabas, guarded_kafka
from tests.server.security.filled_requests import NAME, RESOURCES, enough, request_of

from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.legacy_records import encode_message
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.protocol.schema import Message, fields_of
from barnabas.server.apis.table import SERVED

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(300)]

STRANGER = None
WRONG, SEEING = "wrong", "seeing"
"""Somebody who may do nothing, and somebody who may describe everything and nothing else."""
USERS = {ROOT, WRONG, SEEING} | {key.name for key in SERVED}
NOW = int(time.time() * 1000)
UNTOLD = {"throttle_time_ms", "host", "port", "error_message", "topic_id", "cluster_id", "log_dir"}
UNTOLD |= {"total_bytes", "usable_bytes", "last_timestamp", "api_keys", "supported_features", "finalized_features"}
"""Of each broker its own, or words for people."""


REALLY_LOWEST = {("4.4.0", ApiKey.PRODUCE): 3}
"""It says that it serves older ones, as librdkafka wants to hear that, and closes connections that use them."""
ZOOKEEPER, KRAFT, BOTH = "3.9.1", "4.4.0", ""
ALLOWED: dict[tuple[str, ApiKey, str], str] = {
    (BOTH, ApiKey.PRODUCE, "in nobody's transaction .responses.partition_responses.error_code 53 here 29"): (
        "looks for the transaction before it looks for rights"
    ),
    (BOTH, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ".results [{"): "an answer for each user, without the name",
    (KRAFT, ApiKey.DELETE_TOPICS, ".responses.error_code 3 here 29"): "told 29 with ZooKeeper",
    (ZOOKEEPER, ApiKey.FETCH, ".responses.partitions.records"): "pads what was converted to the size announced",
    (ZOOKEEPER, ApiKey.OFFSET_FETCH, "known .topics [] here"): "in version 1 who may not see it is told of nothing",
    (ZOOKEEPER, ApiKey.OFFSET_FETCH, ".topics [] here"): "in version 1 who may not see it is told of nothing",
    (ZOOKEEPER, ApiKey.CREATE_TOPICS, ".topics.topic_config_error_code 29 here 0"): "told of topics that were not made",
    (ZOOKEEPER, ApiKey.DESCRIBE_CONFIGS, ".results.configs.is_default False here True"): "never set, in version 0",
    (ZOOKEEPER, ApiKey.RENEW_DELEGATION_TOKEN, ".expiry_timestamp_ms -1 here 0"): "0 in KRaft",
    (ZOOKEEPER, ApiKey.EXPIRE_DELEGATION_TOKEN, ".expiry_timestamp_ms -1 here 0"): "0 in KRaft",
    (ZOOKEEPER, ApiKey.UPDATE_FEATURES, "."): "there are features only in KRaft",
    (ZOOKEEPER, ApiKey.CONSUMER_GROUP_HEARTBEAT, ".error_code 35 here"): "the new protocol is only in KRaft",
    (ZOOKEEPER, ApiKey.CONSUMER_GROUP_DESCRIBE, ".groups.error_code 35 here"): "the new protocol is only in KRaft",
}
"""Differences that stay, by how they begin, and what Kafka does there."""


def is_allowed(release: str, key: ApiKey, difference: str) -> bool:
    places = ((release, key), (BOTH, key))
    return any(row[:2] in places and difference.startswith(row[2]) for row in ALLOWED)


class Asked(NamedTuple):
    """A release of Kafka and this broker, with the ids that their topics have."""

    release: str
    theirs: GuardedBroker
    ours: GuardedBroker
    ids: dict[GuardedBroker, UUID]
    versions: dict[ApiKey, tuple[int, int]]


def rules() -> set[AclBinding]:
    """Who is named for an API has just the rights of our table for it."""
    found = {rule for key in SERVED for rule in enough(key)}
    for kind in RESOURCES:
        name = "kafka-cluster" if kind is AclResourceType.CLUSTER else "*"
        sees = AccessControlEntry(f"User:{SEEING}", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW)
        found.add(AclBinding(ResourcePattern(kind, name), sees))
    return found


@pytest.fixture(
    scope="module",
    params=[
        ("3.9.1", "kafka.security.authorizer.AclAuthorizer"),
        ("4.4.0", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ],
    ids=lambda param: param[0],
)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    release, authorizer = request.param
    folder = tmp_path_factory.mktemp("brokers")
    with ExitStack() as stack:
        theirs = stack.enter_context(guarded_kafka(folder / "theirs", release, authorizer, USERS))
        ours = stack.enter_context(guarded_barnabas(folder / "ours", authorizer, USERS))
        ids = {broker: broker.prepare(NAME, rules()) for broker in (theirs, ours)}
        versions = theirs.versions()
        yield Asked(release, theirs, ours, ids, versions)


FIRST_WITH_TRANSACTIONS = 3
FIRST_THAT_NEED_NOT_MAKE_TOPICS = 4
FIRST_WITH_PROTOCOL_IN_SYNC = 5
FIRST_WITH_GROUPS = 8


def records(version: int, *, in_transaction: bool = False) -> bytes:
    if version < 3:
        return encode_message(0, NOW, None, b"v", magic=min(version, 1))
    producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0} if in_transaction else {}
    builder = RecordBatchBuilder(is_transactional=in_transaction, **producer)
    builder.append(None, b"v", timestamp=NOW)
    return builder.build()


def requests(key: ApiKey, version: int, topic_id: UUID) -> Iterator[tuple[str, Any]]:
    """Requests that change nothing that later ones stand on."""
    request = request_of(key, version)
    _complete(request, version, topic_id)
    match key:
        case ApiKey.PRODUCE:
            request.acks, request.transactional_id = 1, None
            if version >= FIRST_WITH_TRANSACTIONS:
                (partition,) = request.topic_data[0].partition_data
                usual, partition.records = partition.records, records(version, in_transaction=True)
                yield "in nobody's transaction", request
                request.transactional_id = NAME
                yield "in a transaction", request
                request.transactional_id, partition.records = None, usual
        case ApiKey.FETCH:
            request.max_bytes = 1 << 20
            for topic in request.topics:
                topic.partitions[0].partition_max_bytes = 1 << 20
        case ApiKey.OFFSET_FETCH if version < FIRST_WITH_GROUPS:
            yield "known", request
            request.group_id = "nobody"
        case ApiKey.SYNC_GROUP if version >= FIRST_WITH_PROTOCOL_IN_SYNC:
            request.protocol_type, request.protocol_name = "consumer", "range"
        case ApiKey.CREATE_ACLS:
            for creation in request.creations:
                creation.resource_pattern_type, creation.principal, creation.host = 3, "User:x", "*"
                creation.operation, creation.permission_type = AclOperation.READ, AclPermissionType.ALLOW
        case ApiKey.DESCRIBE_ACLS:
            request.resource_type_filter, request.resource_name_filter = AclResourceType.TOPIC, "nothing"
            request.operation, request.permission_type = AclOperation.ANY, AclPermissionType.ANY
        case ApiKey.DELETE_ACLS:
            for one in request.filters:
                one.resource_type_filter, one.resource_name_filter, one.principal_filter = 2, NAME, "User:x"
                one.host_filter, one.operation, one.permission_type = None, AclOperation.ANY, AclPermissionType.ANY
        case ApiKey.CREATE_TOPICS:
            for topic in request.topics:
                topic.name, topic.num_partitions, topic.replication_factor = f"made-{version}", 1, 1
                topic.assignments, topic.configs = [], []
            request.validate_only = version > 0
        case ApiKey.DELETE_TOPICS:
            request.topic_names = ["nowhere"]
            for topic in request.topics:
                topic.name, topic.topic_id = "nowhere", UUID(int=0)
        case ApiKey.METADATA:
            if version >= FIRST_THAT_NEED_NOT_MAKE_TOPICS:
                request.allow_auto_topic_creation = False
            for topic in request.topics:
                topic.topic_id = UUID(int=0)
            yield "known", request
            for topic in request.topics:
                topic.name = "nowhere"
            yield "unknown", request
            request.topics = None if version else []
    yield "", request


def _complete(message: Any, version: int, topic_id: UUID) -> None:
    """Times to wait, records to write, ids of the topic."""
    names = {field.name for field in fields_of(type(message)) if version in field.versions}
    if "timeout_ms" in names:
        message.timeout_ms = 30_000
    if "topic_id" in names:
        message.topic_id = topic_id
    if "records" in names:
        message.records = records(version)
    for name in names:
        value = getattr(message, name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                _complete(one, version, topic_id)


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: key.name.lower())
def test_everybody_hears_the_same(key: ApiKey, asked: Asked) -> None:
    api = SERVED[key]
    if key not in asked.versions:
        pytest.skip("not served there")
    lowest, highest = asked.versions[key]
    lowest = max(lowest, api.lowest, REALLY_LOWEST.get((asked.release, key), 0))
    found: defaultdict[str, list[str]] = defaultdict(list)
    for version in range(lowest, min(highest, api.highest) + 1):
        for user in (STRANGER, WRONG, SEEING, key.name, ROOT):
            theirs, ours = (
                answers(broker, user, key, version, asked.ids[broker]) for broker in (asked.theirs, asked.ours)
            )
            for what, answer in theirs.items():
                for difference in differences(answer, ours[what]):
                    told = f"{what} {difference}".strip()
                    if not is_allowed(asked.release, key, told):
                        found[told].append(f"v{version} {user}")
    assert not found, "\n".join(f"{difference}: {', '.join(cells)}" for difference, cells in found.items())


def answers(broker: GuardedBroker, user: str | None, key: ApiKey, version: int, topic_id: UUID) -> dict[str, Any]:
    """What the user hears to each request."""
    heard = {}
    for what, request in requests(key, version, topic_id):
        heard[what] = without_settings(plain(broker.hears(user, key, version, request), UNTOLD))
        if user is STRANGER:
            broker.forget(user)
    return heard


def without_settings(value: Any) -> Any:
    """Of settings only whether there are any: which there are, and their values, is compared elsewhere."""
    if isinstance(value, list):
        return [without_settings(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: bool(one) if name == "configs" else without_settings(one) for name, one in value.items()}
