"""Topics of a cluster as a stream of record batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from . import host
from .client import BlockingClient, ClientSettings
from .data_loss import report_loss
from .group_offsets import fetch_offsets
from .offset_range import OffsetRange
from .positions import OffsetLookups, Position, resolve_positions
from .range_reader import RangeReader
from .record_stream import Errors, Progress, RecordStream
from .value_types import Format, column_formats

_TIMEOUT_MS = 60_000
"""The default of `default.api.timeout.ms` in Kafka's clients."""


def read_topic(
    bootstrap: str,
    topic: str | Sequence[str],
    *,
    partitions: Sequence[int] | None = None,
    start: Position = "earliest",
    end: Position = "latest",
    columns: Sequence[str] | None = None,
    filter: Any = None,  # noqa: A002 - the name in pyarrow
    key: Format = "binary",
    value: Format = "binary",
    errors: Errors = "raise",
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
    fail_on_data_loss: bool = True,
    config: Mapping[str, str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RecordStream:
    """Return the records of topics from `start` up to `end`, which are resolved now: later records are not read.

    `config` has settings of a Kafka client, such as `security.protocol`, `sasl.jaas.config`, `check.crcs`,
    `max.partition.fetch.bytes` or `default.api.timeout.ms`, the time for which a read is retried when a broker fails.
    `columns` and `filter` are as for a dataset of pyarrow. Records that no longer exist are an error unless
    `fail_on_data_loss` is false.

    Raises ValueError for a topic or partition that does not exist, or an invalid argument; KafkaError.
    """
    settings = ClientSettings(bootstrap, {**(config or {}), "isolation.level": isolation_level})
    names = [topic] if isinstance(topic, str) else list(topic)
    source = TopicSource(settings, fail_on_data_loss=fail_on_data_loss)
    with BlockingClient(settings) as client:
        found = find_partitions(client, names, partitions)
        ranges = source.plan(client, found, start, end)
    types, formats = column_formats(key, value, names)
    return RecordStream(
        source,
        ranges,
        types=types,
        formats=formats,
        errors=errors,
        columns=columns,
        filter=filter,
        threads=threads or host.default_threads(),
        progress=progress,
    )


class TopicSource:
    """The connections of a read, one client for each thread. Raises ValueError for invalid settings."""

    def __init__(self, settings: ClientSettings, *, fail_on_data_loss: bool) -> None:
        self._settings = settings
        self._fail = fail_on_data_loss
        self._timeout_ms = settings.number("default.api.timeout.ms", _TIMEOUT_MS)
        settings.number("max.partition.fetch.bytes", 1)  # rejects an invalid value before threads read it

    @contextmanager
    def open(self, *, headers: bool) -> Iterator[RangeReader]:
        """Return a reader with a client of its own."""
        with BlockingClient(self._settings, is_known_cluster=True) as client:
            yield RangeReader(client, fail_on_data_loss=self._fail, poll_timeout_ms=self._timeout_ms, headers=headers)

    def find_times(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after each time in ms; -1 without one. Raises KafkaError."""
        with BlockingClient(self._settings) as client:
            client.refresh({tp.topic for tp in timestamps})
            return client.find_offsets(timestamps)

    def plan(
        self, client: BlockingClient, partitions: Sequence[TopicPartition], start: Position, end: Position
    ) -> list[OffsetRange]:
        """Return the ranges between two positions. Raises ValueError, KafkaError, DataLossError."""
        lookups = OffsetLookups(client.find_offsets, partial(fetch_offsets, client))
        resolve = partial(resolve_positions, partitions=partitions, lookups=lookups, now_ms=host.now_ms)
        # The end is resolved first: a log whose records are all deleted in between has no end before its start.
        ends = resolve(end, name="end", default="latest")
        starts = resolve(start, name="start", default="earliest")
        firsts = client.find_offsets(dict.fromkeys(partitions, EARLIEST))
        lasts = client.find_offsets(dict.fromkeys(partitions, LATEST))
        ids = client.topic_ids({tp.topic for tp in partitions})
        ranges = []
        for tp in partitions:
            is_far = isinstance(end, int | str | Mapping) and ends[tp] > lasts[tp] and ends[tp] > starts[tp]
            if is_far:
                lost = f"{tp}: the log ends at offset {lasts[tp]}, before the end {ends[tp]}"
                report_loss(lost, fail=self._fail, option="fail_on_data_loss")
            first = starts[tp]
            if not isinstance(start, int | Mapping) or not self._fail:
                first = max(first, firsts[tp])
            ranges.append(OffsetRange(tp, first, max(first, min(ends[tp], lasts[tp])), ids[tp.topic]))
        return ranges


def find_partitions(
    client: BlockingClient, topics: Sequence[str], partitions: Sequence[int] | None
) -> list[TopicPartition]:
    """Return the partitions with these numbers, or all. Raises ValueError if a topic or partition does not exist."""
    client.retrying(lambda: _refresh(client, topics))
    found = []
    for name in topics:
        indexes = client.cluster.topics[name].partitions
        missing = [index for index in partitions or () if index not in indexes]
        if missing:
            raise ValueError(f"topic {name!r} has no partition {missing[0]}. It has {len(indexes)} partitions")
        found += [TopicPartition(name, index) for index in sorted(indexes if partitions is None else set(partitions))]
    return found


def _refresh(client: BlockingClient, topics: Sequence[str]) -> None:
    client.refresh(topics)
    for name in topics:
        topic = client.cluster.topics.get(name)
        code = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None or not topic.partitions:
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ValueError(f"topic {name} does not exist")
            raise KafkaError(code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}")
