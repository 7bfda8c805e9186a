"""Writes data frames to topics: columns `value` and optionally `key`, `headers`, `topic`, `partition`, `timestamp`.

At least once by default, as in Spark's own connector. `delivery=exactly-once` detects repeated tasks and batches,
`delivery=transactional` hides a batch until it is complete. docs/spark.md describes their guarantees.
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

from ..arrow.client import BlockingClient, ClientSettings
from ..clients.errors import code_of
from ..clients.partitioner import partition_of_key
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ..protocol.record import Headers
from ..protocol.topic_partition import TopicPartition
from . import host
from .options import OptionReader, ReadSelection
from .resolve import discover
from .rows import HEADERS_TYPE
from .sink_markers import DEFAULT_TOPIC, SinkMarkers
from .task_producer import TaskProducer, new_identity, written_by
from .task_transaction import TaskTransaction, WrittenTransaction, end_transaction

_KEYLESS_RUN = 1000
"""Records without a key for one partition before the next partition is used."""
_COLUMNS = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "headers": (HEADERS_TYPE,),
    "topic": (StringType(),),
    "partition": (IntegerType(), LongType()),
    "timestamp": (TimestampType(),),
}
_OF_THE_SOURCE = frozenset({"offset", "timestampType"})
"""Additional columns of the source, which describe the record's former position and are not written."""
_AT_LEAST_ONCE, _EXACTLY_ONCE, _TRANSACTIONAL = "at-least-once", "exactly-once", "transactional"
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """The number of rows that a task wrote, and the transaction that contains them."""

    rows: int
    transaction: WrittenTransaction | None = None


@dataclass(frozen=True)
class SinkOptions:
    """The options of the sink; `write_id` names a query that may run again, `write_batch` is the number of its batch.

    Without `write_batch` Spark's number of the micro-batch is used, which exists in streams only.
    """

    client: ClientSettings
    topic: str | None
    delivery: str
    state_topic: str
    write_id: str | None
    write_batch: int | None
    new_partitions: int | None = None
    """Number of partitions of a missing topic, which is created."""


def parse_sink_options(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """Parse and validate all options. Raises ValueError."""
    read = OptionReader(options)
    for field in schema.fields:
        if field.name in _OF_THE_SOURCE:
            continue
        allowed = _COLUMNS.get(field.name)
        if allowed is None:
            raise ValueError(f"column {field.name!r} cannot be written. Expected columns {', '.join(_COLUMNS)}")
        plain = [kind for kind in allowed if kind.simpleString() == field.dataType.simpleString()]
        if not plain:
            raise ValueError(f"column {field.name!r} cannot be {field.dataType.simpleString()}")
    if "value" not in schema.fieldNames():
        raise ValueError("column 'value' is required")
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
        raise ValueError("set option topic, or add a column 'topic'")
    if parsed.delivery != _AT_LEAST_ONCE and parsed.topic is None:
        raise ValueError(f"delivery={parsed.delivery} requires option topic: one topic for all rows")
    if parsed.delivery != _AT_LEAST_ONCE and not streaming and parsed.write_id is None:
        text = f"delivery={parsed.delivery} requires option writeId in a batch query: the same for a second run"
        raise ValueError(text)
    return parsed


def create_topic(options: SinkOptions) -> None:
    """Create the topic if it is missing and requested, on the driver. Raises KafkaError, ValueError."""
    if options.new_partitions is None:
        return
    if options.topic is None:
        raise ValueError("createTopic requires option topic")
    wanted = CreatableTopic(name=options.topic, num_partitions=options.new_partitions, replication_factor=-1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=options.client.request_timeout_ms)
    with BlockingClient(options.client) as client:
        client.retrying(lambda: _create(client, request))
        client.retrying(lambda: _see(client, wanted.name))


def require_topic(options: SinkOptions) -> None:
    """Check that the topic exists, before tasks fail, on the driver. Raises KafkaError, ValueError."""
    if options.topic is not None:
        with BlockingClient(options.client) as client:
            try:
                discover(client, ReadSelection(topics=(options.topic,)))
            except ValueError:
                remedy = "Create it, or set createTopic (--create-topic) to its number of partitions"
                raise ValueError(f"topic {options.topic!r} does not exist. {remedy}") from None


def _create(client: BlockingClient, request: CreateTopicsRequest) -> None:
    client.refresh([topic.name for topic in request.topics])
    (made,) = client.connection(client.cluster.controller_id).ask(request).topics
    if made.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise KafkaError(code_of(made.error_code), made.error_message or f"topic {made.name!r}")


def _see(client: BlockingClient, topic: str) -> None:
    """Raise until brokers return the topic, which the controller has first."""
    client.refresh([topic])
    known = client.cluster.topics.get(topic)
    if known is None or not known.partitions:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r} is being created")


@dataclass(frozen=True)
class TaskIdentity:
    """The identity of a task of a query, the same for a repeated run."""

    query: str
    batch: int
    task: int

    @classmethod
    def current(cls, options: SinkOptions) -> TaskIdentity:
        """Return the identity of the running Spark task; a named query uses its name and its own batch number."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("not running in a Spark task")
        query = options.write_id or context.getLocalProperty(_QUERY_ID) or ""
        batch = options.write_batch
        if batch is None:
            batch = int(context.getLocalProperty(_BATCH_ID) or 0)
        return cls(query, batch, context.partitionId())


class TaskSink:
    """The writer of one task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, batches: Iterable[Any], place: TaskIdentity | None = None) -> TaskCommitMessage:
        """Write all rows and wait for acknowledgements. Raises KafkaError, ValueError."""
        place = place or TaskIdentity.current(self._options)
        try:
            with BlockingClient(self._options.client) as client:
                if self._options.delivery == _EXACTLY_ONCE:
                    return self._write_once(client, batches, place)
                if self._options.delivery == _TRANSACTIONAL:
                    return self._write_transaction(client, batches, place)
                producer = TaskProducer(client, new_identity(client))
                return TaskCommitMessage(self._write_all(producer, batches, _RowPartitioner(client, place.task)))
        finally:
            host.spare_next_task()

    def _write_once(self, client: BlockingClient, batches: Iterable[Any], place: TaskIdentity) -> TaskCommitMessage:
        topic = self._options.topic or ""
        markers = SinkMarkers(client, self._options.state_topic, f"{place.query}/{place.task}/{topic}")
        marker, is_replay = markers.claim(place.batch, _partition_count(client, topic))
        if marker.done:
            return TaskCommitMessage(0)
        written = written_by(client, marker.identity, topic) if is_replay else {}
        producer = TaskProducer(client, marker.identity, written)
        rows = self._write_all(producer, batches, _RowPartitioner(client, place.task, {topic: marker.partitions}))
        markers.finish(marker)
        return TaskCommitMessage(rows)

    def _write_transaction(
        self, client: BlockingClient, batches: Iterable[Any], place: TaskIdentity
    ) -> TaskCommitMessage:
        topic = self._options.topic or ""
        transaction = TaskTransaction.take_over(client, f"barnabas-spark-{place.query}/{place.task}")
        if transaction.is_committed(topic, place.batch):
            return TaskCommitMessage(0)
        producer = TaskProducer(client, transaction.identity, transaction=transaction)
        rows = self._write_all(producer, batches, _RowPartitioner(client, place.task))
        return TaskCommitMessage(rows, transaction.note(topic, place.batch))

    def end(self, messages: Iterable[TaskCommitMessage | None], *, is_commit: bool) -> None:
        """End the transactions of all tasks, on the driver.

        Raises KafkaError. A transaction that cannot be aborted, as it was committed before the next commit failed,
        does not keep the others open, for which consumers would wait until their timeout.
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

    def _write_all(self, producer: TaskProducer, batches: Iterable[Any], places: _RowPartitioner) -> int:
        now, rows = host.now_ms(), 0
        for topic, partition, key, value, headers, timestamp in _rows(batches, self._options.topic):
            if topic is None:
                raise ValueError("null topic present in the data")
            tp = TopicPartition(topic, places.partition(topic, partition, key))
            producer.append(tp, key, value, headers, now if timestamp is None else timestamp)
            rows += 1
        producer.flush()
        return rows


class _RowPartitioner:
    """Partitioner of rows, deterministic for equal rows; `counts` are known numbers of partitions."""

    def __init__(self, client: BlockingClient, task: int, counts: dict[str, int] | None = None) -> None:
        self._client = client
        self._counts = counts or {}
        self._keyless = task * _KEYLESS_RUN

    def partition(self, topic: str, wanted: int | None, key: bytes | None) -> int:
        """Return the requested partition, else the partition of the key as Java's clients do, else in turn. Raises
        ValueError, KafkaError.
        """
        if topic not in self._counts:
            self._counts[topic] = _partition_count(self._client, topic)
        count = self._counts[topic]
        if wanted is not None:
            if not 0 <= wanted < count:
                raise ValueError(f"column 'partition': topic {topic!r} has no partition {wanted}")
            return wanted
        if key is not None:
            return partition_of_key(key, count)
        self._keyless += 1
        return self._keyless // _KEYLESS_RUN % count


class BarnabasWriter(DataSourceArrowWriter):
    """Batch writes. Rows are appended in every mode, because a topic is a log."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        parsed = parse_sink_options(options, schema, streaming=False)
        create_topic(parsed)
        require_topic(parsed)
        self._sink = TaskSink(parsed)

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[Any]) -> None:
        """Commit the transactions after all tasks have written."""
        self._sink.end(messages, is_commit=True)

    def abort(self, messages: list[Any]) -> None:
        """Abort the transactions after a task has failed."""
        self._sink.end(messages, is_commit=False)


_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class BarnabasStreamWriter(_StreamWriter):
    """Streaming writes; Spark before 4.1 passes rows instead of Arrow batches."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        parsed = parse_sink_options(options, schema, streaming=True)
        create_topic(parsed)
        self._sink = TaskSink(parsed)

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        if _StreamWriter is DataSourceStreamWriter:
            return self._sink.write(_as_batches(iterator))
        return self._sink.write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit the transactions after all tasks have written; other records are visible already."""
        self._sink.end(messages, is_commit=True)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort the transactions. Other records remain; a repeated batch detects them, or duplicates them."""
        self._sink.end(messages, is_commit=False)


def _as_batches(rows: Iterator[Any]) -> Iterator[Any]:
    for row in rows:
        yield pa.RecordBatch.from_pylist([{name: _plain(v) for name, v in row.asDict(recursive=True).items()}])


def _plain(value: Any) -> Any:
    """Convert a row's value for Arrow; times are in the local zone without a zone."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def _rows(
    batches: Iterable[Any], topic: str | None
) -> Iterator[tuple[str | None, int | None, bytes | None, bytes | None, Headers, int | None]]:
    """Yield the rows of Arrow batches; option `topic` overrides the column."""
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
