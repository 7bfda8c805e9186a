"""Writes data frames to topics: columns `value` and, if there are, `key`, `headers`, `topic`, `partition`, `timestamp`.

At least once by default, as Spark's own connector does it. `delivery=exactly-once` recognises replays of tasks and
batches, `delivery=transactional` hides a batch until all of it is there. What they promise is in docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ...protocol.record import Headers
from ...protocol.topic_partition import TopicPartition
from ..errors import code_of
from ..partitioner import partition_of_key
from . import host
from .client import BlockingClient, ClientSettings
from .options import OptionReader, ReadSelection
from .resolve import discover
from .rows import HEADERS_TYPE
from .sink_markers import DEFAULT_TOPIC, SinkMarkers
from .task_producer import TaskProducer, new_identity, written_by
from .task_transaction import TaskTransaction, WrittenTransaction, end_transaction

_KEYLESS_RUN = 1000
"""So many records without a key go to one partition before the next one gets its share."""
_COLUMNS = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "headers": (HEADERS_TYPE,),
    "topic": (StringType(),),
    "partition": (IntegerType(), LongType()),
    "timestamp": (TimestampType(),),
}
_OF_THE_SOURCE = frozenset({"offset", "timestampType"})
"""What a row of the source has besides: it says where the record was, and is not written."""
_AT_LEAST_ONCE, _EXACTLY_ONCE, _TRANSACTIONAL = "at-least-once", "exactly-once", "transactional"
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """How many rows a task wrote, and the transaction that they wait in."""

    rows: int
    transaction: WrittenTransaction | None = None


@dataclass(frozen=True)
class SinkOptions:
    """What the sink was told; `write_id` names a query that may be run again, `write_batch` counts its parts.

    Without `write_batch` Spark's own count of micro-batches does, which is none outside of streams.
    """

    client: ClientSettings
    topic: str | None
    delivery: str
    state_topic: str
    write_id: str | None
    write_batch: int | None
    new_partitions: int | None = None
    """With so many the topic is created if it is not there."""


def parse_sink_options(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """Read and check everything. Raises ValueError."""
    read = OptionReader(options)
    for field in schema.fields:
        if field.name in _OF_THE_SOURCE:
            continue
        allowed = _COLUMNS.get(field.name)
        if allowed is None:
            raise ValueError(f"no column {field.name!r} can be written; there are {', '.join(_COLUMNS)}")
        plain = [kind for kind in allowed if kind.simpleString() == field.dataType.simpleString()]
        if not plain:
            raise ValueError(f"column {field.name!r} cannot be {field.dataType.simpleString()}")
    if "value" not in schema.fieldNames():
        raise ValueError("there must be a column 'value'")
    parsed = SinkOptions(
        read.client_settings(),
        read.text("topic"),
        read.choice("delivery", _AT_LEAST_ONCE, _EXACTLY_ONCE, _TRANSACTIONAL),
        read.text("stateTopic") or DEFAULT_TOPIC,
        read.text("writeId"),
        None if read.text("writeBatch") is None else read.count("writeBatch"),
        read.positive("createTopic"),
    )
    if parsed.topic is None and "topic" not in schema.fieldNames():
        raise ValueError("set option topic, or have a column 'topic'")
    if parsed.delivery != _AT_LEAST_ONCE and parsed.topic is None:
        raise ValueError(f"delivery={parsed.delivery} needs option topic: one topic for all rows")
    if parsed.delivery != _AT_LEAST_ONCE and not streaming and parsed.write_id is None:
        text = f"delivery={parsed.delivery} needs option writeId in a batch query: the same again for a second run"
        raise ValueError(text)
    return parsed


def create_topic(options: SinkOptions) -> None:
    """Make the topic that the sink was told to, unless it is there; on the driver. Raises KafkaError, ValueError."""
    if options.new_partitions is None:
        return
    if options.topic is None:
        raise ValueError("createTopic needs option topic: the one that is made")
    wanted = CreatableTopic(name=options.topic, num_partitions=options.new_partitions, replication_factor=-1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=options.client.request_timeout_ms)
    with BlockingClient(options.client) as client:
        client.retrying(lambda: _create(client, request))
        client.retrying(lambda: _see(client, wanted.name))


def require_topic(options: SinkOptions) -> None:
    """See that the topic is there, before tasks fail for it; on the driver. Raises KafkaError, ValueError."""
    if options.topic is not None:
        with BlockingClient(options.client) as client:
            discover(client, ReadSelection(topics=(options.topic,)))


def _create(client: BlockingClient, request: CreateTopicsRequest) -> None:
    client.refresh([topic.name for topic in request.topics])
    (made,) = client.connection(client.cluster.controller_id).ask(request).topics
    if made.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise KafkaError(code_of(made.error_code), made.error_message or f"topic {made.name!r}")


def _see(client: BlockingClient, topic: str) -> None:
    """Raise until brokers tell of the topic, which the controller knows of first."""
    client.refresh([topic])
    known = client.cluster.topics.get(topic)
    if known is None or not known.partitions:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r} is being created")


@dataclass(frozen=True)
class TaskPlace:
    """Which task of which query this is, the same again when it is run again."""

    query: str
    batch: int
    task: int

    @classmethod
    def here(cls, options: SinkOptions) -> TaskPlace:
        """The place of the running Spark task; a query that was given a name goes by that and its own count."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("no Spark task is running here")
        query = options.write_id or context.getLocalProperty(_QUERY_ID) or ""
        batch = options.write_batch
        if batch is None:
            batch = int(context.getLocalProperty(_BATCH_ID) or 0)
        return cls(query, batch, context.partitionId())


class TaskSink:
    """One task's writing."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, batches: Iterable[Any], place: TaskPlace | None = None) -> Written:
        """Write all rows and wait until they are acknowledged. Raises KafkaError, ValueError."""
        place = place or TaskPlace.here(self._options)
        try:
            with BlockingClient(self._options.client) as client:
                if self._options.delivery == _EXACTLY_ONCE:
                    return self._write_once(client, batches, place)
                if self._options.delivery == _TRANSACTIONAL:
                    return self._write_transaction(client, batches, place)
                producer = TaskProducer(client, new_identity(client))
                return Written(self._write_all(producer, batches, _Places(client, place.task)))
        finally:
            host.spare_next_task()

    def _write_once(self, client: BlockingClient, batches: Iterable[Any], place: TaskPlace) -> Written:
        topic = self._options.topic or ""
        markers = SinkMarkers(client, self._options.state_topic, f"{place.query}/{place.task}/{topic}")
        marker, is_replay = markers.claim(place.batch, _partition_count(client, topic))
        if marker.done:
            return Written(0)
        written = written_by(client, marker.identity, topic) if is_replay else {}
        producer = TaskProducer(client, marker.identity, written)
        rows = self._write_all(producer, batches, _Places(client, place.task, {topic: marker.partitions}))
        markers.finish(marker)
        return Written(rows)

    def _write_transaction(self, client: BlockingClient, batches: Iterable[Any], place: TaskPlace) -> Written:
        topic = self._options.topic or ""
        transaction = TaskTransaction.take_over(client, f"barnabas-spark-{place.query}/{place.task}")
        if transaction.is_committed(topic, place.batch):
            return Written(0)
        producer = TaskProducer(client, transaction.identity, transaction=transaction)
        rows = self._write_all(producer, batches, _Places(client, place.task))
        return Written(rows, transaction.note(topic, place.batch))

    def end(self, messages: Iterable[Written | None], *, is_commit: bool) -> None:
        """On the driver: what becomes of all that tasks wrote in transactions.

        Raises KafkaError. One that cannot be aborted, as it was committed before the next one was refused, keeps none
        of the others open, which would have readers wait until their time is over.
        """
        transactions = [one.transaction for one in messages if one is not None and one.transaction is not None]
        failure: KafkaError | None = None
        if transactions:
            with BlockingClient(self._options.client) as client:
                for transaction in transactions:
                    try:
                        end_transaction(client, transaction, is_commit=is_commit)
                    except KafkaError as error:
                        if is_commit or error.code.retriable:
                            raise
                        failure = failure or error
        if failure is not None:
            raise failure

    def _write_all(self, producer: TaskProducer, batches: Iterable[Any], places: _Places) -> int:
        now, rows = host.now_ms(), 0
        for topic, partition, key, value, headers, timestamp in _rows(batches, self._options.topic):
            if topic is None:
                raise ValueError("null topic present in the data")
            tp = TopicPartition(topic, places.partition(topic, partition, key))
            producer.append(tp, key, value, headers, now if timestamp is None else timestamp)
            rows += 1
        producer.flush()
        return rows


class _Places:
    """Which partition a row goes to, the same for the same rows; `counts` are known numbers of partitions."""

    def __init__(self, client: BlockingClient, task: int, counts: dict[str, int] | None = None) -> None:
        self._client = client
        self._counts = counts or {}
        self._keyless = task * _KEYLESS_RUN

    def partition(self, topic: str, wanted: int | None, key: bytes | None) -> int:
        """As asked for, else by the key as Java's clients do it, else by turns. Raises ValueError, KafkaError."""
        if topic not in self._counts:
            self._counts[topic] = _partition_count(self._client, topic)
        count = self._counts[topic]
        if wanted is not None:
            if not 0 <= wanted < count:
                raise ValueError(f"topic {topic!r} has no partition {wanted}, which column 'partition' asks for")
            return wanted
        if key is not None:
            return partition_of_key(key, count)
        self._keyless += 1
        return self._keyless // _KEYLESS_RUN % count


class BarnabasWriter(DataSourceArrowWriter):
    """Batch writes. Whatever the mode of saving, rows are appended: a topic is a log."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        parsed = parse_sink_options(options, schema, streaming=False)
        create_topic(parsed)
        require_topic(parsed)
        self._sink = TaskSink(parsed)

    def write(self, iterator: Iterator[Any]) -> Written:
        return self._sink.write(iterator)

    def commit(self, messages: list[Any]) -> None:
        """All tasks have written: what waits in transactions appears."""
        self._sink.end(messages, is_commit=True)

    def abort(self, messages: list[Any]) -> None:
        """Some task has failed; what others wrote in transactions never appears."""
        self._sink.end(messages, is_commit=False)


_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class BarnabasStreamWriter(_StreamWriter):
    """Streaming writes; Spark before 4.1 hands rows over instead of Arrow batches."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        parsed = parse_sink_options(options, schema, streaming=True)
        create_topic(parsed)
        self._sink = TaskSink(parsed)

    def write(self, iterator: Iterator[Any]) -> Written:
        if _StreamWriter is DataSourceStreamWriter:
            return self._sink.write(_as_batches(iterator))
        return self._sink.write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        """All tasks have written: what waits in transactions appears, the rest is there."""
        self._sink.end(messages, is_commit=True)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        """What waits in transactions never appears. The rest stays; a replay recognises it, or doubles it."""
        self._sink.end(messages, is_commit=False)


def _as_batches(rows: Iterator[Any]) -> Iterator[Any]:
    for row in rows:
        yield pa.RecordBatch.from_pylist([{name: _plain(v) for name, v in row.asDict(recursive=True).items()}])


def _plain(value: Any) -> Any:
    """A row's value as Arrow takes it; times come in the zone of this machine, and do not say so."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def _rows(
    batches: Iterable[Any], topic: str | None
) -> Iterator[tuple[str | None, int | None, bytes | None, bytes | None, Headers, int | None]]:
    """The rows of Arrow batches; option `topic` wins over the column."""
    for batch in batches:
        count = batch.num_rows
        columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
        nothing = [None] * count
        times = columns.get("timestamp")
        yield from zip(
            columns["topic"].to_pylist() if topic is None else [topic] * count,
            columns["partition"].to_pylist() if "partition" in columns else nothing,
            columns["key"].cast(pa.binary()).to_pylist() if "key" in columns else nothing,
            columns["value"].cast(pa.binary()).to_pylist(),
            map(_headers, columns["headers"].to_pylist()) if "headers" in columns else [()] * count,
            nothing if times is None else map(_milliseconds, times.cast(pa.int64()).to_pylist()),
            strict=True,
        )


def _milliseconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds // 1000


def _headers(pairs: list[dict[str, Any]] | None) -> Headers:
    return [(pair["key"], pair["value"]) for pair in pairs or ()]


def _partition_count(client: BlockingClient, topic: str) -> int:
    client.refresh([topic])
    known = client.cluster.topics.get(topic)
    if known is None or not known.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
    return len(known.partitions)
