"""Responses to requests that failed as a whole (Kafka's AbstractRequest.getErrorResponse).

Where the response has no error code of its own, each item of the request gets an item with the error. The tables map
the lists of items in the request to the lists in the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ...protocol.apis import API_MESSAGES, ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import Message, fields_of


class ItemPaths(NamedTuple):
    """A path of nested lists in the request, and the path of the corresponding lists in the response."""

    request: tuple[str, ...]
    response: tuple[str, ...]


def _items(request: str, response: str) -> ItemPaths:
    return ItemPaths(tuple(request.split(".")), tuple(response.split(".")))


ITEM_PATHS: dict[ApiKey, tuple[ItemPaths, ...]] = {
    ApiKey.PRODUCE: (_items("topic_data.partition_data", "responses.partition_responses"),),
    ApiKey.FETCH: (_items("topics.partitions", "responses.partitions"),),
    ApiKey.LIST_OFFSETS: (_items("topics.partitions", "topics.partitions"),),
    ApiKey.METADATA: (_items("topics", "topics"),),
    ApiKey.OFFSET_COMMIT: (_items("topics.partitions", "topics.partitions"),),
    ApiKey.OFFSET_FETCH: (_items("topics.partition_indexes", "topics.partitions"), _items("groups", "groups")),
    ApiKey.FIND_COORDINATOR: (_items("coordinator_keys", "coordinators"),),
    ApiKey.DESCRIBE_GROUPS: (_items("groups", "groups"),),
    ApiKey.CREATE_TOPICS: (_items("topics", "topics"),),
    ApiKey.DELETE_TOPICS: (_items("topic_names", "responses"), _items("topics", "responses")),
    ApiKey.DELETE_RECORDS: (_items("topics.partitions", "topics.partitions"),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_items("topics.partitions", "topics.partitions"),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _items("v3_and_below_topics.partitions", "results_by_topic_v3_and_below.results_by_partition"),
    ),
    ApiKey.WRITE_TXN_MARKERS: (_items("markers.topics.partition_indexes", "markers.topics.partitions"),),
    ApiKey.TXN_OFFSET_COMMIT: (_items("topics.partitions", "topics.partitions"),),
    ApiKey.CREATE_ACLS: (_items("creations", "results"),),
    ApiKey.DELETE_ACLS: (_items("filters", "filter_results"),),
    ApiKey.DESCRIBE_CONFIGS: (_items("resources", "results"),),
    ApiKey.ALTER_CONFIGS: (_items("resources", "responses"),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_items("dirs.topics.partitions", "results.partitions"),),
    ApiKey.CREATE_PARTITIONS: (_items("topics", "results"),),
    ApiKey.DELETE_GROUPS: (_items("groups_names", "results"),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_items("topics.partitions", "responses.partitions"),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_items("topics.partition_indexes", "topics.partitions"),),
    ApiKey.ELECT_LEADERS: (_items("topic_partitions.partitions", "replica_election_results.partition_result"),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_items("resources", "responses"),),
    ApiKey.OFFSET_DELETE: (_items("topics.partitions", "topics.partitions"),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_items("entries", "entries"),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_items("deletions", "results"), _items("upsertions", "results")),
    ApiKey.DESCRIBE_PRODUCERS: (_items("topics.partition_indexes", "topics.partitions"),),
    ApiKey.DESCRIBE_TRANSACTIONS: (_items("transactional_ids", "transaction_states"),),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (_items("topics.partitions", "results.partitions"),),
    ApiKey.READ_SHARE_GROUP_STATE: (_items("topics.partitions", "results.partitions"),),
    ApiKey.WRITE_SHARE_GROUP_STATE: (_items("topics.partitions", "results.partitions"),),
    ApiKey.DELETE_SHARE_GROUP_STATE: (_items("topics.partitions", "results.partitions"),),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (_items("topics.partitions", "results.partitions"),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_items("group_ids", "groups"),),
    ApiKey.STREAMS_GROUP_DESCRIBE: (_items("group_ids", "groups"),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_items("topics", "topics"),),
    ApiKey.SHARE_GROUP_DESCRIBE: (_items("group_ids", "groups"),),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (_items("groups", "groups"),),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (_items("topics.partitions", "responses.partitions"),),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (_items("topics", "responses"),),
}

REQUEST_FIELDS: dict[str, str] = {
    "name": "topic",
    "topic": "name",
    "topic_name": "name",
    "topic_id": "topic_id",
    "group_id": "group_id",
    "index": "partition",
    "partition": "partition_index",
    "partition_index": "partition",
    "partition_id": "partition",
    "resource_type": "resource_type",
    "resource_name": "resource_name",
    "key": "key",
    "transactional_id": "transactional_id",
    "producer_id": "producer_id",
    "entity": "entity",
    "user": "name",
}
"""Fields that identify an item of a response, and their names in the request where these differ."""

UNKNOWN_FIELDS = (
    "base_offset",
    "log_append_time_ms",
    "log_start_offset",
    "high_watermark",
    "last_stable_offset",
    "low_watermark",
    "committed_offset",
    "offset",
    "end_offset",
    "timestamp",
    "leader_epoch",
    "node_id",
    "port",
)
"""Numbers that are -1 in an item with an error."""

ERROR_ALSO_PER_ITEM = {ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS}
"""APIs whose responses have the error in each item in addition to the error of the whole response."""
DEDUPLICATED_BY = {ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "user"}
"""APIs whose requests may name the same item in several lists: the response has it once."""
EMPTY_ON_ERROR = {ApiKey.DESCRIBE_LOG_DIRS}
"""APIs whose first versions have no error code: their clients treat an empty response as an error."""
ERROR_DEFAULTS: dict[ApiKey, dict[str, int | None]] = {
    ApiKey.JOIN_GROUP: {"protocol_name": None},
    ApiKey.INIT_PRODUCER_ID: {"producer_epoch": -1},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"entries": None},
}
"""Fields whose value in an error response is not their default."""

ERROR_CODE_FIELDS = ("error_code", "partition_error_code")


class _Shape(NamedTuple):
    """The fields of one struct in one version that identify its item and carry an error."""

    names: tuple[tuple[str, str, bool], ...]
    """Name of the field, its other name in the request, whether it may be null."""
    code: str
    """The field for the error code; empty if there is none."""
    has_message: bool
    unknown: tuple[str, ...]
    """Fields to set to -1."""


@lru_cache(maxsize=512)
def _shape(struct: type, version: int) -> _Shape:
    fields = {field.name: field for field in fields_of(struct) if version in field.versions}
    names = tuple(
        (field.name, REQUEST_FIELDS[field.name], version in field.nullable)
        for field in fields_of(struct)
        if field.name in REQUEST_FIELDS
    )
    code = next((name for name in ERROR_CODE_FIELDS if name in fields), "")
    unknown = set(UNKNOWN_FIELDS) & fields.keys()
    if "state_epoch" in fields:
        unknown.discard("leader_epoch")  # both epochs of share state are 0 in an error, as in Kafka
    return _Shape(names, code, "error_message" in fields, tuple(unknown))


def error_response(key: ApiKey, version: int, request: Any, error: KafkaError) -> Any | None:
    """Return the response with the error in its own error code, or else in each item.

    Return None where the version has neither, or where the client expects no response: the connection is then closed.
    """
    if not expects_response(key, request):
        return None
    response_class: type = API_MESSAGES[key].response
    response: Any = response_class()
    shape = _shape(response_class, version)
    all_paths = ITEM_PATHS.get(key, ())
    if shape.code:
        _set_error(response, shape, error)
        _set_error_defaults(response, key, version)
        all_paths = all_paths if key in ERROR_ALSO_PER_ITEM else ()
    elif not all_paths:
        return response if key in EMPTY_ON_ERROR else None
    for paths in all_paths:
        add_error_items(response, paths, request, version, error)
    if key in DEDUPLICATED_BY:
        response.results = list({getattr(item, DEDUPLICATED_BY[key]): item for item in response.results}.values())
    return response


def producer_error_for_version(version: int, first_with_fencing: int, error: ErrorCode) -> ErrorCode:
    """Replace PRODUCER_FENCED, which older versions of the transaction APIs do not have (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and version < first_with_fencing:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _set_error_defaults(response: Any, key: ApiKey, version: int) -> None:
    defaults = ERROR_DEFAULTS.get(key, {})
    for field in fields_of(type(response)):
        if field.name in defaults:
            value = defaults[field.name]
            if version in (field.versions if value is not None else field.nullable):
                setattr(response, field.name, value)


def expects_response(key: ApiKey, request: Any) -> bool:
    """Return whether the client waits for a response: not for that of a Produce request with acks 0."""
    return key is not ApiKey.PRODUCE or request.acks != 0


def add_error_items(response: Any, paths: ItemPaths, request: Any, version: int, error: KafkaError) -> None:
    """Add an item with the error to the response for each item of the request on that path."""
    # Outer lists of the request without a counterpart: the response does not group by them.
    ungrouped = len(paths.request) - len(paths.response)
    for parent in items_at_path(request, paths.request[:ungrouped]):
        _add_items(response, parent, ItemPaths(paths.request[ungrouped:], paths.response), version, error)


def items_at_path(message: Any, path: Sequence[str]) -> list[Any]:
    """Return the items of all lists at the end of a path of nested lists."""
    found = [message]
    for name in path:
        found = [item for parent in found for item in getattr(parent, name) or ()]
    return found


def _add_items(response: Any, request: Any, paths: ItemPaths, version: int, error: KafkaError) -> None:
    """Add an item for each of the request, with the error in the items that have no further lists."""
    (request_list, *inner_request), (response_list, *inner_response) = paths
    inner = ItemPaths(tuple(inner_request), tuple(inner_response)) if inner_response else None
    struct = cast(type, next(field for field in fields_of(type(response)) if field.name == response_list).element)
    shape = _shape(struct, version)
    response_items = getattr(response, response_list)
    for item in getattr(request, request_list) or ():
        response_item: Any = struct()
        if isinstance(item, Message):
            for name, other_name, nullable in shape.names:
                source = name if hasattr(item, name) else other_name
                value = getattr(item, source, None)
                if value is not None or (nullable and hasattr(item, source)):
                    setattr(response_item, name, value)
        else:
            setattr(response_item, shape.names[0][0], item)
        if inner is not None:
            _add_items(response_item, item, inner, version, error)
        else:
            _set_error(response_item, shape, error)
        response_items.append(response_item)


def _set_error(message: Any, shape: _Shape, error: KafkaError) -> None:
    if shape.code:
        setattr(message, shape.code, error.code)
    if shape.has_message:
        message.error_message = error.message
    for name in shape.unknown:
        setattr(message, name, -1)
