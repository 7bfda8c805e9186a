"""The answer to a request that failed as a whole, item by item where its response has no error code for all.

Kafka's `AbstractRequest.getErrorResponse`, as data: which list of the response answers which list of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ...protocol.apis import API_MESSAGES, ApiKey
from ...protocol.errors import KafkaError
from ...protocol.schema import Message, fields_of


class Items(NamedTuple):
    """`asked` is a path of lists in the request, `answered` that of their answers in the response."""

    asked: tuple[str, ...]
    answered: tuple[str, ...]


def _items(asked: str, answered: str) -> Items:
    return Items(tuple(asked.split(".")), tuple(answered.split(".")))


ITEMS: dict[ApiKey, tuple[Items, ...]] = {
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
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_items("group_ids", "groups"),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_items("topics", "topics"),),
}

NAMES: dict[str, str] = {
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
"""Fields of an answer that say what it answers, and what the request calls them if not the same."""

NOTHING = (
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
"""Numbers that are -1 where there is nothing to tell."""

ITEMS_TOO = {ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS}
"""Whose items are told of an error beside that of the whole answer."""
ONCE = {ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "user"}
"""Where items of several lists are about the same thing, which is answered once."""
NOTHING_SAYS_IT = {ApiKey.DESCRIBE_LOG_DIRS}
"""Whose first versions have no place for an error: clients know that an empty answer is one."""
IN_ERRORS: dict[ApiKey, dict[str, int | None]] = {
    ApiKey.JOIN_GROUP: {"protocol_name": None},
    ApiKey.INIT_PRODUCER_ID: {"producer_epoch": -1},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"entries": None},
}
"""Fields of a whole answer that are not at their default in one that tells of an error."""

CODES = ("error_code", "partition_error_code")


class _Shape(NamedTuple):
    """One struct in one version: the fields that name the item it answers, and where an error goes."""

    names: tuple[tuple[str, str, bool], ...]
    """Field, what the request may call it instead, whether it may be null."""
    code: str
    """The field for the error code; empty if there is none."""
    has_message: bool
    nothing: tuple[str, ...]


@lru_cache(maxsize=512)
def _shape(struct: type, version: int) -> _Shape:
    fields = {field.name: field for field in fields_of(struct) if version in field.versions}
    names = tuple(
        (field.name, NAMES[field.name], version in field.nullable) for field in fields_of(struct) if field.name in NAMES
    )
    code = next((name for name in CODES if name in fields), "")
    return _Shape(names, code, "error_message" in fields, tuple(set(NOTHING) & fields.keys()))


def error_answer(key: ApiKey, version: int, request: Any, error: KafkaError) -> Any | None:
    """The response of a version that gives the error to the request, or else to each of its items.

    None if nobody would hear of it: the version has a place for neither, or no answer is wanted.
    """
    if not wants_answer(key, request):
        return None
    kind: type = API_MESSAGES[key].response
    response: Any = kind()
    shape = _shape(kind, version)
    rows = ITEMS.get(key, ())
    if shape.code:
        _fail(response, shape, error)
        _fill_in(response, key, version)
        rows = rows if key in ITEMS_TOO else ()
    elif not rows:
        return response if key in NOTHING_SAYS_IT else None
    for row in rows:
        fill(response, row, request, version, error)
    if key in ONCE:
        response.results = list({getattr(result, ONCE[key]): result for result in response.results}.values())
    return response


def _fill_in(response: Any, key: ApiKey, version: int) -> None:
    told = IN_ERRORS.get(key)
    if told is not None:
        for field in fields_of(type(response)):
            if field.name in told and version in (field.versions if told[field.name] is not None else field.nullable):
                setattr(response, field.name, told[field.name])


def wants_answer(key: ApiKey, request: Any) -> bool:
    """Whether the client waits for an answer at all."""
    return key is not ApiKey.PRODUCE or request.acks != 0


def fill(response: Any, row: Items, request: Any, version: int, error: KafkaError) -> None:
    """Add the answers of all items of the request in that row."""
    # What the response does not group by, it leaves out.
    outer = len(row.asked) - len(row.answered)
    for holder in listed(request, row.asked[:outer]):
        _answer(response, holder, Items(row.asked[outer:], row.answered), version, error)


def listed(message: Any, path: Sequence[str]) -> list[Any]:
    """All that a path of lists leads to."""
    found = [message]
    for name in path:
        found = [item for one in found for item in getattr(one, name) or ()]
    return found


def _answer(response: Any, request: Any, row: Items, version: int, error: KafkaError) -> None:
    """Add an item to the response for each of the request, with the error in those that are not lists themselves."""
    (asked, *more_asked), (answered, *more_answered) = row
    below = Items(tuple(more_asked), tuple(more_answered)) if more_answered else None
    struct = cast(type, next(field for field in fields_of(type(response)) if field.name == answered).element)
    shape = _shape(struct, version)
    answers = getattr(response, answered)
    for item in getattr(request, asked) or ():
        answer: Any = struct()
        if isinstance(item, Message):
            for name, alias, nullable in shape.names:
                source = name if hasattr(item, name) else alias
                value = getattr(item, source, None)
                if value is not None or (nullable and hasattr(item, source)):
                    setattr(answer, name, value)
        else:
            setattr(answer, shape.names[0][0], item)
        if below is not None:
            _answer(answer, item, below, version, error)
        else:
            _fail(answer, shape, error)
        answers.append(answer)


def _fail(answer: Any, shape: _Shape, error: KafkaError) -> None:
    if shape.code:
        setattr(answer, shape.code, error.code)
    if shape.has_message:
        answer.error_message = error.message
    for name in shape.nothing:
        setattr(answer, name, -1)
