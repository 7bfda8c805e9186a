"""Paths and JSON of the metadata tree, byte for byte as Apache Kafka up to 3.9 has them in ZooKeeper (its `ZkData`).

One field is an addition, `leader_broker_epoch` of a partition's state, which Kafka's decoder skips.
The functions are pure. Decoders accept every version of a node that Kafka has written, and refuse other content;
encoders write the newest version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import chain
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

from ...common.uuid_text import uuid_from_text, uuid_text
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
LOG_DIR_FAILED = 1
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
KRAFT_ADOPTION = "/kraft_adoption"
"""Present from before the first to after the last write of metadata that are taken from the log of a KRaft quorum."""
DEFAULT_ENTITY = "<default>"
TRANSACTION_LEVELS = 1, 2
"""The levels of `transaction.version` that a broker supports; level 0 disables the feature."""

PERSISTENT_PATHS = (
    "/admin",
    DELETE_TOPICS,
    "/brokers",
    BROKER_IDS,
    BROKER_SEQUENCE,
    TOPICS,
    "/cluster",
    "/config",
    "/config/brokers",
    CONFIG_CHANGES,
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
)
"""Created by the first broker that starts; parents before children."""

NO_LEADER = -1
NO_BROKER = -1
NO_BROKER_EPOCH = -1
"""The epoch of a dead broker, and the one in requests of older controllers."""


MAX_CHARACTERS = 500
"""The longest description of a decoding error."""
_2_31 = 2**31
P = ParamSpec("P")
T = TypeVar("T")


class UnreadableNodeError(ValueError):
    """A node has content that neither Kafka nor this broker writes: no JSON, or JSON of another shape."""

    def as_answer(self) -> KafkaError:
        """Return the error for clients whose changes would overwrite the node."""
        return KafkaError(ErrorCode.INVALID_CONFIG, f"The stored value cannot be read, and is not changed: {self}")


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The address at which clients of one listener reach a broker: the advertised listener."""

    listener_name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """The registration of a live broker in ZooKeeper's layout (Kafka's BrokerInfo)."""

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    broker_epoch: int = NO_BROKER_EPOCH
    """czxid of the registration; not part of the JSON."""
    transaction_levels: tuple[int, int] | None = None
    """The lowest and highest supported level of the feature `transaction.version`, if the registration has them."""
    in_controlled_shutdown: bool = False
    """Whether the broker stops and serves clients until its leaders are moved; False in a cluster around ZooKeeper."""


@dataclass(frozen=True, slots=True)
class TopicRegistration:
    """A topic's identity and replicas. A replica list is ordered: its first broker is the preferred leader."""

    name: str
    topic_id: UUID
    assignment: Mapping[int, tuple[int, ...]]
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaderIsrAndControllerEpoch:
    """Kafka's LeaderIsrAndControllerEpoch: the content of a partition's state node.

    `partition_epoch` is the version of the node and not part of the JSON.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    leader_recovery_state: int = 0
    """1 while the leader, elected uncleanly, has not yet recovered."""
    leader_broker_epoch: int = field(default=NO_BROKER_EPOCH, compare=False)
    """Broker epoch of the leader at its election; unknown if Apache Kafka wrote last, which omits this field."""
    zxid: int = field(default=0, compare=False)
    """zxid of the last write; 0 unless the state was just read."""

    def with_partition_epoch(self, partition_epoch: int) -> LeaderIsrAndControllerEpoch:
        """Return the same state in a node of that version."""
        return replace(self, partition_epoch=partition_epoch, zxid=0)


def broker_path(broker_id: int) -> str:
    """Node of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Node of a topic's identity and assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """Node of a partition's leader and ISR."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def configs_path(entity_type: str) -> str:
    """Parent of the dynamic configurations of one type of entity: topics, brokers, clients, users or ips.

    Kafka has group settings only without ZooKeeper; /config/groups and /config/client-metrics are created on first use.
    """
    return f"/config/{entity_type}"


def config_path(entity_type: str, name: str) -> str:
    """Node of one entity's dynamic configuration."""
    return f"{configs_path(entity_type)}/{name}"


def user_node(name: str) -> str:
    """Return a user's, client's or address's name as that of a node, percent-encoded like Kafka's Sanitizer does it.

    Dots alone cannot be one.
    """
    quoted = quote(name, safe="").replace("~", "%7E")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def deletion_path(topic: str) -> str:
    """Node that requests the deletion of a topic."""
    return f"{DELETE_TOPICS}/{topic}"


_TRANSACTION_VERSION = "transaction.version"
FEATURES_ENABLED = 1

_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)


def _encode(value: object) -> bytes:
    return _json.encode(value).encode()


def _decode(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {data!r}")
    return value


def _decoder(decode: Callable[P, T]) -> Callable[P, T]:
    """Convert every error of a decoder to UnreadableNodeError."""

    @wraps(decode)
    def decoded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decode(*args, **kwargs)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            # A node holds up to a megabyte, and all of it may be in the message.
            raise UnreadableNodeError(f"{type(error).__name__}: {error}"[:MAX_CHARACTERS]) from None

    return decoded


def _number(value: object, lowest: int = -_2_31, end: int = _2_31) -> int:
    """Return a number that fits into its field of a message."""
    if type(value) is not int or not lowest <= value < end:
        raise ValueError(f"expected a number from {lowest} to {end - 1}, found {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value


def _brokers(value: Any) -> tuple[int, ...]:
    _check_brokers([value])
    return tuple(value)


def _check_brokers(lists: Collection[Any]) -> None:
    """Check all lists together: a topic may have a hundred thousand partitions."""
    if {*map(type, lists)} - {list}:
        raise TypeError(f"expected lists of broker ids, found {lists!r}")
    ids = [*chain.from_iterable(lists)]
    if {*map(type, ids)} - {int}:
        raise TypeError(f"expected broker ids, found {ids!r}")
    if ids:
        _number(min(ids))
        _number(max(ids))


def encode_cluster_id(cluster_id: str) -> bytes:
    """JSON of `/cluster/id`."""
    return _encode({"version": "1", "id": cluster_id})


@_decoder
def decode_cluster_id(data: bytes) -> str:
    return str(_decode(data)["id"])


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """JSON of `/controller`."""
    return _encode({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


@_decoder
def decode_controller(data: bytes) -> int:
    """Broker id of the controller."""
    return _number(_decode(data)["brokerid"])


def encode_broker(registration: BrokerInfo, now_ms: int) -> bytes:
    """JSON of `/brokers/ids/N`. `host` and `port` name a plaintext listener, for clients as old as 0.8."""
    plain = next((e for e in registration.endpoints if e.security_protocol == "PLAINTEXT"), None)
    rack = {} if registration.rack is None else {"rack": registration.rack}
    return _encode(
        {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "endpoints": [_endpoint_text(endpoint) for endpoint in registration.endpoints],
            "jmx_port": -1,
            "timestamp": str(now_ms),
            **rack,
            "listener_security_protocol_map": {e.listener_name: e.security_protocol for e in registration.endpoints},
            "features": _features_of(registration),
        }
    )


@_decoder
def decode_broker(broker_id: int, data: bytes, broker_epoch: int) -> BrokerInfo:
    """Return a live broker from its node; versions 1 (host and port only) to 5."""
    value = _decode(data)
    if value["version"] < 2:
        endpoints: tuple[BrokerEndpoint, ...] = (
            BrokerEndpoint("PLAINTEXT", _text(value["host"]), _number(value["port"])),
        )
    else:
        protocols = value.get("listener_security_protocol_map") or {}
        endpoints = tuple(_endpoint(_text(text), protocols) for text in value["endpoints"])
    supported = (value.get("features") or {}).get(_TRANSACTION_VERSION)
    levels = None if supported is None else (int(supported["min_version"]), int(supported["max_version"]))
    rack = value.get("rack")
    return BrokerInfo(broker_id, endpoints, None if rack is None else _text(rack), broker_epoch, levels)


def _features_of(registration: BrokerInfo) -> dict[str, dict[str, int]]:
    if registration.transaction_levels is None:
        return {}
    lowest, highest = registration.transaction_levels
    return {_TRANSACTION_VERSION: {"min_version": lowest, "max_version": highest}}


def encode_features(levels: Mapping[str, int]) -> bytes:
    """JSON of `/feature`: the levels that are finalized; 0 is that there is none."""
    found = {name: level for name, level in levels.items() if level}
    return _encode({"features": found, "version": 2, "status": FEATURES_ENABLED})


@_decoder
def decode_features(data: bytes) -> dict[str, int]:
    """Return the finalized levels; versions 1 and 2. Raises UnreadableNodeError."""
    value = _decode(data)
    features = value.get("features", {})
    if not isinstance(features, dict):
        raise ValueError(f"invalid features: {data!r}")
    return {
        name: int(level["max_version_level"] if isinstance(level, dict) else level) for name, level in features.items()
    }


def _endpoint_text(endpoint: BrokerEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener_name}://{host}:{endpoint.port}"


def _endpoint(text: str, protocols: Mapping[str, str]) -> BrokerEndpoint:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return BrokerEndpoint(name, host.strip("[]"), _number(int(port)), _text(protocols.get(name, name)))


def encode_topic(topic: TopicRegistration) -> bytes:
    """JSON of `/brokers/topics/T`."""

    def by_text(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
        return {str(partition): list(brokers) for partition, brokers in replicas.items()}

    return _encode(
        {
            "version": 3,
            "topic_id": uuid_text(topic.topic_id),
            "partitions": by_text(topic.assignment),
            "adding_replicas": by_text(topic.adding_replicas),
            "removing_replicas": by_text(topic.removing_replicas),
        }
    )


@_decoder
def decode_topic(name: str, data: bytes) -> TopicRegistration:
    """Return a topic from its node; one written before version 3 has the zero id."""
    value = _decode(data)

    def by_number(replicas: Mapping[str, list[int]]) -> dict[int, tuple[int, ...]]:
        _check_brokers(replicas.values())
        found = dict(sorted((int(index), tuple(brokers)) for index, brokers in replicas.items()))
        if found:
            _number(min(found), 0)
            _number(max(found))
        return found

    text, assignment = value.get("topic_id"), by_number(value["partitions"])
    if not all(assignment.values()):
        raise ValueError(f"a partition without replicas: {data!r}")
    return TopicRegistration(
        name,
        uuid_from_text(text) if text else UUID(int=0),
        assignment,
        by_number(value.get("adding_replicas") or {}),
        by_number(value.get("removing_replicas") or {}),
    )


def encode_state(state: LeaderIsrAndControllerEpoch) -> bytes:
    """JSON of `/brokers/topics/T/partitions/P/state`."""
    value: dict[str, object] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.leader_recovery_state:
        value["leader_recovery_state"] = state.leader_recovery_state
    if state.leader_broker_epoch != NO_BROKER_EPOCH:
        value["leader_broker_epoch"] = state.leader_broker_epoch
    return _encode(value)


@_decoder
def decode_state(data: bytes, version: int, zxid: int = 0) -> LeaderIsrAndControllerEpoch:
    """Return a partition's state from its node, the node's version, and the zxid of its last write."""
    value = _decode(data)
    return LeaderIsrAndControllerEpoch(
        _number(value["leader"]),
        _number(value["leader_epoch"]),
        _brokers(value["isr"]),
        _number(value["controller_epoch"]),
        version,
        _number(value.get("leader_recovery_state", 0), 0, 2),
        _number(value.get("leader_broker_epoch", NO_BROKER_EPOCH), NO_BROKER_EPOCH, 2**63),
        zxid,
    )


@_decoder
def decode_config_change(data: bytes) -> tuple[str, str]:
    """Type of the entity whose settings are others, and its name, which may be a path. Raises UnreadableNodeError.

    Version 1, which Kafka 0.9 wrote, has both apart.
    """
    value = _decode(data)
    if value.get("version") == 1:
        return str(value.get("entity_type")), str(value.get("entity_name"))
    entity_type, slash, name = str(value.get("entity_path")).partition("/")
    if not slash:
        raise ValueError(f"not the path of a quota entity: {data!r}")
    return entity_type, name


def decode_name(node: str) -> str:
    """Return the decoded name of a node, which is percent-encoded."""
    return unquote(node)


def encode_config(config: Mapping[str, str]) -> bytes:
    """JSON of `/config/TYPE/NAME`."""
    return _encode({"version": 1, "config": dict(config)})


@_decoder
def decode_config(data: bytes) -> dict[str, str]:
    """Return an entity's dynamic configuration."""
    return {str(key): str(value) for key, value in (_decode(data).get("config") or {}).items()}


def encode_config_change(entity_type: str, name: str) -> bytes:
    """JSON of `/config/changes/config_change_N`."""
    return _encode({"version": 2, "entity_path": f"{entity_type}/{name}"})


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """JSON of `/isr_change_notification/isr_change_N`."""
    return _encode({"version": 1, "partitions": [{"topic": name, "partition": index} for name, index in partitions]})


def encode_log_dir_event(broker_id: int) -> bytes:
    """JSON of `/log_dir_event_notification/log_dir_event_N`."""
    return _encode({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILED})


@_decoder
def decode_log_dir_event(data: bytes) -> int:
    """Return the broker with a failed log directory."""
    return int(_decode(data)["broker"])


@_decoder
def decode_partitions(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the partitions in a notification of changed ISRs, or in a request for preferred elections or
    reassignments: with the requested replicas, if there are any.
    """
    return {
        TopicPartition(str(one["topic"]), int(one["partition"])): _brokers(one.get("replicas", []))
        for one in _decode(data)["partitions"]
    }


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    """JSON of `/latest_producer_id_block`; `last` is inclusive."""
    return _encode({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


@_decoder
def decode_producer_id_block(data: bytes) -> tuple[int, int]:
    """First and last id of the newest block."""
    value = _decode(data)
    return int(value["block_start"]), int(value["block_end"])
