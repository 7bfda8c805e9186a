"""The largest requests of another broker about the state of share-partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.server.coordinator.share.share_requests import (
    delete,
    delete_data,
    initialize,
    initialize_data,
    read,
    read_data,
    summary,
    summary_data,
    write,
    write_data,
)

from barnabas.protocol.apis import ApiKey as K
from barnabas.protocol.errors import ErrorCode

from .worst_requests import Known, Worst

GROUP = "sharing"
NONE, INVALID, UNKNOWN = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partitions(
    request: Callable[..., Any], data: Callable[[int], Any], indexes: Callable[[int], Iterable[int]]
) -> Callable[[int, Known], Any]:
    return lambda count, known: request(GROUP, known.topic_id, *(data(index) for index in indexes(count)))


def _same(count: int) -> Iterable[int]:
    return [0] * count


def _each(count: int) -> Iterable[int]:
    return range(1, count + 1)


def _write_of(ranges: Callable[[int], list[tuple[int, int, int, int]]]) -> Callable[[int, Known], Any]:
    return lambda count, known: write(GROUP, known.topic_id, write_data(*ranges(count), start=0))


WORST_OF_SHARE_STATE = (
    Worst(
        "the same partition", K.INITIALIZE_SHARE_GROUP_STATE, 0, _partitions(initialize, initialize_data, _same), NONE
    ),
    Worst(
        "unknown partitions",
        K.INITIALIZE_SHARE_GROUP_STATE,
        0,
        _partitions(initialize, initialize_data, _each),
        UNKNOWN,
    ),
    Worst(
        "the same partition",
        K.WRITE_SHARE_GROUP_STATE,
        1,
        _partitions(write, lambda index: write_data((0, 0, 2, 1), partition=index, start=0), _same),
        NONE,
    ),
    Worst(
        "unknown partitions",
        K.WRITE_SHARE_GROUP_STATE,
        1,
        _partitions(write, lambda index: write_data(partition=index), _each),
        INVALID,
    ),
    Worst(
        "many state batches",
        K.WRITE_SHARE_GROUP_STATE,
        1,
        _write_of(lambda count: [(2 * one, 2 * one, 2, 1) for one in range(count)]),
        NONE,
    ),
    Worst(
        "overlapping state batches in reverse order",
        K.WRITE_SHARE_GROUP_STATE,
        1,
        _write_of(lambda count: [(2 * one, 2 * one + 5, 2, one % 7) for one in reversed(range(count))]),
        NONE,
    ),
    Worst("the same partition", K.READ_SHARE_GROUP_STATE, 0, _partitions(read, read_data, _same), NONE),
    Worst("unknown partitions", K.READ_SHARE_GROUP_STATE, 0, _partitions(read, read_data, _each), INVALID),
    Worst("the same partition", K.READ_SHARE_GROUP_STATE_SUMMARY, 1, _partitions(summary, summary_data, _same), NONE),
    Worst(
        "unknown partitions", K.READ_SHARE_GROUP_STATE_SUMMARY, 1, _partitions(summary, summary_data, _each), UNKNOWN
    ),
    Worst("the same partition", K.DELETE_SHARE_GROUP_STATE, 0, _partitions(delete, delete_data, _same), NONE),
    Worst("unknown partitions", K.DELETE_SHARE_GROUP_STATE, 0, _partitions(delete, delete_data, _each), UNKNOWN),
)
