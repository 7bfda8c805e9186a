"""Markers in a compacted topic for every task of every batch, by which the sink detects repeated runs.

A marker's key is `<query id>/<task>/<topic>`, its value `{"batch", "producer", "epoch", "partitions", "done"}`. A task
that finds none for its batch claims the batch with its own producer id; of several concurrent claims the first in the
log is valid, and all attempts continue with its id. From then on the leaders' producer state detects repeats: it has
the number of records of this id in each partition (they are the first ones, since a task's rows have the same order
again), and it rejects a record with a repeated sequence number, so that two concurrent attempts cannot write a row
twice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from ..arrow.arrow_columns import binary_array
from ..arrow.client import BlockingClient
from ..arrow.offset_range import OffsetRange
from ..arrow.range_reader import RangeReader
from ..clients.errors import code_of
from ..clients.partitioner import partition_of_key
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..protocol.producer_identity import ProducerIdentity
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from .task_producer import TaskProducer, new_identity

DEFAULT_TOPIC = "__barnabas_spark_sink"
_PARTITIONS = 8
_SETTINGS = {
    "cleanup.policy": "compact",
    # The order of two claims must be visible for as long as attempts may run concurrently.
    "min.compaction.lag.ms": "86400000",
}
_POLL_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Marker:
    """The progress of a task in a batch; `partitions` is the topic's number at that time, which partitions keys."""

    batch: int
    producer: int
    epoch: int
    partitions: int
    done: bool

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer, self.epoch)


class SinkMarkers:
    """The markers of one task of one query into one topic."""

    def __init__(self, client: BlockingClient, topic: str, key: str) -> None:
        self._client = client
        self._topic = topic
        self._key = key.encode()

    def claim(self, batch: int, partitions: int) -> tuple[Marker, bool]:
        """Return the marker of the batch, and whether another attempt claimed it first. Raises KafkaError."""
        self._ensure_topic()
        found = self._find(batch)
        if found is not None:
            return found, True
        identity = new_identity(self._client)
        mine = Marker(batch, identity.producer_id, identity.epoch, partitions, done=False)
        self._write(mine)
        first = self._find(batch)
        if first is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"topic {self._topic!r} lost a marker just written")
        return first, first != mine

    def finish(self, marker: Marker) -> None:
        """Mark all rows of the batch as written. Raises KafkaError."""
        self._write(replace(marker, done=True))

    def _find(self, batch: int) -> Marker | None:
        """Return the first claim of the batch, or its end; a later batch means that this one ended, too."""
        first: Marker | None = None
        for marker in self._read():
            if marker.batch > batch or (marker.batch == batch and marker.done):
                return replace(marker, batch=batch, done=True)
            if marker.batch == batch and first is None:
                first = marker
        return first

    def _partition(self) -> TopicPartition:
        count = len(self._client.cluster.topics[self._topic].partitions)
        return TopicPartition(self._topic, partition_of_key(self._key, count))

    def _read(self) -> list[Marker]:
        tp = self._partition()
        start = self._client.find_offsets({tp: EARLIEST})[tp]
        end = self._client.find_offsets({tp: LATEST})[tp]
        reader = RangeReader(self._client, fail_on_data_loss=False, poll_timeout_ms=_POLL_TIMEOUT_MS, headers=False)
        found = []
        for columns in reader.read(OffsetRange(tp, start, end)):
            keys = binary_array(columns.data, columns.keys).to_pylist()
            values = binary_array(columns.data, columns.values).to_pylist()
            found += [Marker(**json.loads(v)) for k, v in zip(keys, values, strict=True) if k == self._key and v]
        return found

    def _write(self, marker: Marker) -> None:
        producer = TaskProducer(self._client, new_identity(self._client))
        producer.append(self._partition(), self._key, json.dumps(asdict(marker)).encode(), (), -1)
        producer.flush()

    def _ensure_topic(self) -> None:
        def attempt() -> None:
            self._client.refresh([self._topic])
            known = self._client.cluster.topics.get(self._topic)
            if known is not None and known.partitions:
                return
            configs = [CreatableTopicConfig(name=name, value=value) for name, value in _SETTINGS.items()]
            topic = CreatableTopic(name=self._topic, num_partitions=_PARTITIONS, replication_factor=-1, configs=configs)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=self._client.settings.request_timeout_ms)
            controller = self._client.cluster.controller_id
            in_charge = controller in self._client.cluster.brokers
            connection = self._client.connection(controller) if in_charge else self._client.any_connection()
            for answer in connection.ask(request).topics:
                code = code_of(answer.error_code)
                if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise KafkaError(code, answer.error_message or f"topic {self._topic!r}")
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {self._topic!r} is being created")

        self._client.retrying(attempt)
