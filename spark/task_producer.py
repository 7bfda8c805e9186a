"""Writes a task's records: idempotent (KIP-98), acks from all, one batch per partition in flight."""

from __future__ import annotations

from collections.abc import Mapping
from struct import error as struct_error

from ..arrow.client import BlockingClient
from ..clients.errors import code_of
from ..protocol.compression import CODEC_BY_CONFIG_NAME
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ..protocol.producer_identity import ProducerIdentity
from ..protocol.record import Headers
from ..protocol.record_batch import RecordBatchBuilder
from ..protocol.topic_partition import TopicPartition
from .task_transaction import TaskTransaction

_ALL_REPLICAS = -1
_BATCH_BYTES, _BUFFER_BYTES = 256 << 10, 16 << 20
_PRODUCE = 11
"""The last version of Produce in which an append does not add its partition to a transaction."""
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


def new_identity(client: BlockingClient) -> ProducerIdentity:
    """Return a new producer id. Raises KafkaError."""

    def attempt() -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
        answer = client.any_connection().ask(request)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(answer.error_code), "no producer id: the request failed")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return client.retrying(attempt)


def written_by(client: BlockingClient, identity: ProducerIdentity, topic: str) -> dict[TopicPartition, int]:
    """Return the number of records of this producer in each partition of `topic`, from the leaders' state. Raises
    KafkaError.
    """

    def attempt() -> dict[TopicPartition, int]:
        client.refresh([topic])
        partitions = [TopicPartition(topic, index) for index in client.cluster.topics[topic].partitions]
        found: dict[TopicPartition, int] = {}
        for leader, led in client.by_leader(partitions).items():
            asked = [TopicRequest(name=topic, partition_indexes=[tp.partition for tp in led])]
            for answer in client.connection(leader).ask(DescribeProducersRequest(topics=asked)).topics:
                for p in answer.partitions:
                    if p.error_code != ErrorCode.NONE:
                        raise KafkaError(code_of(p.error_code), f"producers of {topic}-{p.partition_index}")
                    for state in p.active_producers:
                        if ProducerIdentity(state.producer_id, state.producer_epoch) == identity:
                            found[TopicPartition(topic, p.partition_index)] = state.last_sequence + 1
        return found

    return client.retrying(attempt)


class TaskProducer:
    """Call `append` for records, and `flush` at the end. `written` is the number of existing records to skip per
    partition.
    """

    def __init__(
        self,
        client: BlockingClient,
        identity: ProducerIdentity,
        written: Mapping[TopicPartition, int] | None = None,
        transaction: TaskTransaction | None = None,
    ) -> None:
        """`identity` is the producer identity of the `transaction`, if there is one."""
        self._client = client
        self._identity = identity
        self._transaction = transaction
        self._to_skip = dict(written or {})
        self._sequences = dict(written or {})
        properties = client.settings.properties
        name = properties.get("compression.type", "none")
        if name not in CODEC_BY_CONFIG_NAME:
            raise ValueError(
                f"kafka.compression.type: invalid value {name!r}. Expected one of {', '.join(CODEC_BY_CONFIG_NAME)}"
            )
        self._codec = CODEC_BY_CONFIG_NAME[name]
        self._batch_bytes = int(properties.get("batch.size", _BATCH_BYTES))
        self._builders: dict[TopicPartition, RecordBatchBuilder] = {}
        self._full: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self._buffered = 0

    def append(
        self, tp: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int
    ) -> None:
        """Add one record; sends when enough records are queued. Raises KafkaError."""
        if self._to_skip.get(tp, 0) > 0:
            self._to_skip[tp] -= 1
            return
        builder = self._builders.get(tp)
        if builder is None:
            builder = self._builders[tp] = self._new_builder(tp)
        before = builder.size
        try:
            if not builder.append(key, value, headers, timestamp):
                self._close_batch(tp, builder)
                builder = self._builders[tp] = self._new_builder(tp)
                before = builder.size
                builder.append(key, value, headers, timestamp)
        except (struct_error, AttributeError) as error:
            raise ValueError(f"cannot write a record: {error}") from error
        self._buffered += builder.size - before
        if self._buffered >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send all records and wait for acknowledgements. Raises KafkaError."""
        for tp, builder in self._builders.items():
            if len(builder):
                self._close_batch(tp, builder)
        self._builders.clear()
        self._buffered = 0
        if self._transaction is not None:
            self._transaction.add(self._full)
        while self._full:
            self._client.retrying(self._send_round)

    def _new_builder(self, tp: TopicPartition) -> RecordBatchBuilder:
        return RecordBatchBuilder(
            codec=self._codec,
            max_size=self._batch_bytes,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._sequences.get(tp, 0),
            is_transactional=self._transaction is not None,
        )

    def _close_batch(self, tp: TopicPartition, builder: RecordBatchBuilder) -> None:
        self._sequences[tp] = self._sequences.get(tp, 0) + len(builder)
        self._full.setdefault(tp, []).append((len(builder), builder.build()))

    def _send_round(self) -> None:
        """Send one batch of each partition to its leader; acknowledged ones are removed, the others wait for a
        retry.
        """
        asked = []
        for leader, partitions in self._client.by_leader(self._full).items():
            topics: dict[str, list[PartitionProduceData]] = {}
            for tp in partitions:
                data = PartitionProduceData(index=tp.partition, records=self._full[tp][0][1])
                topics.setdefault(tp.topic, []).append(data)
            request = ProduceRequest(
                transactional_id=None if self._transaction is None else self._transaction.transactional_id,
                acks=_ALL_REPLICAS,
                timeout_ms=self._client.settings.request_timeout_ms,
                topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
            )
            connection = self._client.connection(leader)
            connection.send(request, highest=_PRODUCE)
            asked.append(connection)
        failure: KafkaError | None = None
        for connection in asked:
            for topic in connection.receive().responses:
                for answer in topic.partition_responses:
                    tp, code = TopicPartition(topic.name, answer.index), code_of(answer.error_code)
                    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        self._acknowledged(tp)
                    else:
                        failure = KafkaError(code, answer.error_message or f"records for {tp}")
        if failure is not None:
            if failure.code.retriable:
                self._client.refresh({tp.topic for tp in self._full})
            raise failure

    def _acknowledged(self, tp: TopicPartition) -> None:
        waiting = self._full[tp]
        waiting.pop(0)
        if not waiting:
            del self._full[tp]
