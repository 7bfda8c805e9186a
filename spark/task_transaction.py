"""A task's rows as one transaction, which the driver commits when all tasks of the batch have written theirs.

Transactional id and group are `barnabas-spark-<query id>/<task>`, the same for every attempt. With the rows the task
commits the number of the batch in that group, so that both are valid or neither; a repeated task first ends the open
transaction of the previous attempt, and then checks whether the batch has been committed. EndTxn requires only the
producer's id and epoch, which is how the driver can send it (Flink's sink does so with Java's producer). The first
version of the protocol is used, because with the second an append alone would add its partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..arrow.client import BlockingClient
from ..arrow.connection import BlockingConnection
from ..clients.cluster import BrokerNode
from ..clients.errors import code_of
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ..protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ..protocol.messages.end_txn import EndTxnRequest
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ..protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ..protocol.producer_identity import ProducerIdentity
from ..protocol.topic_partition import TopicPartition, indexes_by_topic

_GROUP, _TRANSACTION = 0, 1
"""Key types of coordinators."""
_ONE_KEY = 3
"""The last version of FindCoordinator with a single key."""
_OFFSET_FETCH, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _ADD_OFFSETS, _OFFSET_COMMIT, _END = 7, 4, 3, 3, 3, 3
"""Maximum versions: for one group, for one transaction, and without the changes of KIP-890."""
DEFAULT_TIMEOUT_MS = 900_000
"""The brokers' default of `transaction.max.timeout.ms`."""


@dataclass(frozen=True)
class WrittenTransaction:
    """Data with which the driver ends the transaction."""

    transactional_id: str
    identity: ProducerIdentity


@dataclass
class TaskTransaction:
    """The transaction of one attempt of a task; it begins with the first added partition."""

    client: BlockingClient
    transactional_id: str
    identity: ProducerIdentity
    _added: set[TopicPartition] = field(default_factory=set)

    @classmethod
    def take_over(cls, client: BlockingClient, transactional_id: str) -> TaskTransaction:
        """End the open transaction of a previous attempt, and fence it. Raises KafkaError."""
        timeout_ms = int(client.settings.properties.get("transaction.timeout.ms", DEFAULT_TIMEOUT_MS))
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        def attempt() -> ProducerIdentity:
            answer = _coordinator(client, transactional_id).ask(request, highest=_INIT_PRODUCER_ID)
            _check(answer.error_code, transactional_id)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return cls(client, transactional_id, client.retrying(attempt))

    def is_committed(self, topic: str, batch: int) -> bool:
        """Return whether the rows of this batch, or of a later one, are in the topic. Raises KafkaError."""
        asked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=self.transactional_id, topics=[asked], require_stable=True)

        def attempt() -> bool:
            answer = _coordinator(self.client, self.transactional_id, _GROUP).ask(request, highest=_OFFSET_FETCH)
            _check(answer.error_code, self.transactional_id)
            (partition,) = answer.topics[0].partitions
            _check(partition.error_code, self.transactional_id)
            return bool(partition.committed_offset > batch)

        return self.client.retrying(attempt)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add these partitions. Raises KafkaError."""
        new = set(partitions) - self._added
        if not new:
            return
        topics = indexes_by_topic(sorted(new))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=p) for name, p in topics.items()],
        )

        def attempt() -> None:
            answer = _coordinator(self.client, self.transactional_id).ask(request, highest=_ADD_PARTITIONS)
            for topic in answer.results_by_topic_v3_and_below:
                for partition in topic.results_by_partition:
                    _check(partition.partition_error_code, self.transactional_id)

        self.client.retrying(attempt)
        self._added |= new

    def note(self, topic: str, batch: int) -> WrittenTransaction:
        """Commit the number of the batch with its rows, after all are written. Raises KafkaError."""
        self._add_offsets()
        # One more than the batch: an offset is the next position.
        place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=batch + 1, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
        )

        def attempt() -> None:
            answer = _coordinator(self.client, self.transactional_id, _GROUP).ask(request, highest=_OFFSET_COMMIT)
            _check(answer.topics[0].partitions[0].error_code, self.transactional_id)

        self.client.retrying(attempt)
        return WrittenTransaction(self.transactional_id, self.identity)

    def _add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=self.transactional_id,
        )

        def attempt() -> None:
            answer = _coordinator(self.client, self.transactional_id).ask(request, highest=_ADD_OFFSETS)
            _check(answer.error_code, self.transactional_id)

        self.client.retrying(attempt)


def end_transaction(client: BlockingClient, written: WrittenTransaction, *, is_commit: bool) -> None:
    """Commit or abort; repeating it has no effect. Raises KafkaError, PRODUCER_FENCED if the task has run again
    since.
    """
    request = EndTxnRequest(
        transactional_id=written.transactional_id,
        producer_id=written.identity.producer_id,
        producer_epoch=written.identity.epoch,
        committed=is_commit,
    )

    def attempt() -> None:
        answer = _coordinator(client, written.transactional_id).ask(request, highest=_END)
        _check(answer.error_code, written.transactional_id)

    client.retrying(attempt)


def _coordinator(client: BlockingClient, key: str, kind: int = _TRANSACTION) -> BlockingConnection:
    request = FindCoordinatorRequest(key=key, key_type=kind)
    found = client.any_connection().ask(request, highest=_ONE_KEY)
    _check(found.error_code, f"the coordinator of {key}")
    client.cluster.add_brokers([BrokerNode(found.node_id, found.host, found.port)])
    return client.connection(int(found.node_id))


def _check(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise KafkaError(code_of(error_code), what)
