"""Kafka's ShareGroupDLQManager: dead-letter queues for rejected and undeliverable records (KIP-1191)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError, code_of
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ...protocol.record_batch import RecordBatchBuilder, iter_batches
from ...protocol.topic_partition import TopicPartition
from ...storage.log_validator import CLIENT_RULES
from ..controller.admin_manager import TopicCreation
from ..replication.append_request import AppendRequest, AppendResult
from .state_update import DeadLetterCause

if TYPE_CHECKING:
    from ...protocol.record import Headers
    from ...protocol.topic_partition import TopicIdPartition
    from ..config.dynamic_config import DynamicConfig
    from ..config.settings import Settings
    from ..controller.controller_client import ControllerClient
    from ..metadata.metadata_cache import MetadataCache
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager
    from ..runtime.ports import SendRequest, Work
    from .share_group_config_provider import ShareGroupConfigProvider
    from .share_group_metrics import ShareGroupMetrics
    from .share_partition import DeadLetters

logger = room_logger("share")

GROUP_ENABLE = "errors.deadletterqueue.group.enable"
"""The topic setting that allows share groups to write dead letters to the topic."""
MAX_ATTEMPTS = 5
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0
"""The delay before the first retry, which doubles with each further retry, and its maximum."""
PRODUCE_TIMEOUT_MS = 30_000
READ_BYTES = 1 << 20
"""Bytes of the log that are read for copies of records in one step."""
RECORDS_PER_BATCH = 1000
"""Dead letters in one batch: a millisecond or two of work."""
LANE = "dead-letters"
RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

Copy = tuple[bytes | None, bytes | None]
"""Key and value of a record."""
NO_COPY: Copy = (None, None)


class DeadLetter(NamedTuple):
    """One record for the dead-letter queue."""

    offset: int
    delivery_count: int
    cause: DeadLetterCause


class ShareGroupDLQManager:
    """Writes dead letters to the topics of groups. Owned by the SharePartitionManager; used on the event loop."""

    def __init__(
        self,
        *,
        config: Settings,
        dynamic_config: DynamicConfig,
        config_provider: ShareGroupConfigProvider,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        controller: ControllerClient,
        metrics: ShareGroupMetrics,
        work: Work,
        chance: random.Random,
        now_ms: Callable[[], int],
        send: SendRequest | None,
    ) -> None:
        """`send` sends a request to another broker; None for a single broker, which leads all partitions."""
        self._config = config
        self._dynamic_config = dynamic_config
        self._config_provider = config_provider
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._controller = controller
        self._metrics = metrics
        self._work = work
        self._random = chance
        self._now_ms = now_ms
        self._send = send

    async def write(
        self, group_id: str, source: TopicIdPartition, letters: Sequence[DeadLetters], partition: Partition
    ) -> None:
        """Write records of `partition` to the dead-letter queue of a group.

        Errors are logged and not raised: as in Kafka, the caller archives the records in any case. The dead letter of a
        record that cannot be read any more has headers, but neither key nor value.
        """
        remaining = _each_record(letters)
        batch: list[DeadLetter] = []
        try:
            while batch or (batch := _take(remaining, RECORDS_PER_BATCH)):
                settings = self._config_provider.settings(group_id)
                topic = settings.dlq_topic_name
                await self._prepare_topic(group_id, topic)
                copies: Mapping[int, Copy] = {}
                if settings.dlq_copy_record_enable:
                    copies = await self._read_copies(partition, batch, self._max_message_bytes(topic))
                batch = await self._write_batch(group_id, source, topic, batch, copies)
        except KafkaError as error:
            left = len(batch) + sum(1 for _ in remaining)
            logger.error("%d dead letters of %s:%s could not be written: %s", left, group_id, source, error)

    # -- topic -----------------------------------------------------------------------------------------------------

    async def _prepare_topic(self, group_id: str, topic: str) -> None:
        """Create the topic if it is missing. Raises KafkaError unless share groups may write dead letters to it."""
        prefix = self._config.errors_deadletterqueue_topic_name_prefix
        if not topic or topic.startswith("__"):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{topic!r} is not a valid name of a dead-letter topic")
        if prefix and not topic.startswith(prefix):
            reason = f"the name of the dead-letter topic {topic} does not begin with {prefix}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        attempts = 0
        while topic not in self._metadata:
            if not self._config.errors_deadletterqueue_auto_create_topics_enable:
                reason = f"the dead-letter topic {topic} does not exist, and is not created automatically"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            settings = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
            created = await self._controller.create_topics_automatically([TopicCreation(topic, config=settings)])
            error = created.get(topic)
            attempts += 1
            if error is not None and (error.code not in RETRIABLE or attempts >= MAX_ATTEMPTS):
                raise error.as_result()
            if topic not in self._metadata:
                if attempts >= MAX_ATTEMPTS:
                    reason = f"the dead-letter topic {topic} was created, but is not in the metadata"
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
                await self._back_off(attempts)
        if self._dynamic_config.topic_config(topic).get(GROUP_ENABLE, "false").strip().lower() != "true":
            reason = f"{GROUP_ENABLE} is not true for the dead-letter topic {topic} of {group_id}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)

    async def _back_off(self, attempts: int) -> None:
        seconds = min(RETRY_SECONDS * 2 ** (attempts - 1), MAX_RETRY_SECONDS)
        await asyncio.sleep(seconds * self._random.uniform(0.8, 1.2))

    def _max_message_bytes(self, topic: str) -> int:
        return self._dynamic_config.topic_log_config(topic).max_message_bytes

    # -- records ---------------------------------------------------------------------------------------------------

    async def _read_copies(
        self, partition: Partition, letters: Sequence[DeadLetter], most_bytes: int
    ) -> Mapping[int, Copy]:
        """Return keys and values by offset, up to `most_bytes` in total; NO_COPY for records that cannot be read."""
        wanted = {letter.offset for letter in letters}
        copies: dict[int, Copy] = {}
        size = 0
        for offset in sorted(wanted):
            if offset in copies or size >= most_bytes:
                continue
            try:
                data = bytes(self._replica_manager.read_log(partition, offset, READ_BYTES))
                found = await self._work.run(LANE, partial(_decode, data, offset, wanted, most_bytes - size))
            except (KafkaError, ProtocolError) as error:
                logger.warning(
                    "the record at offset %d of %s is not copied to its dead letter: %s",
                    offset,
                    partition.topic_partition,
                    error,
                )
                copies[offset] = NO_COPY
                continue
            copies[offset] = NO_COPY
            copies |= found
            size += sum(len(key or b"") + len(value or b"") for key, value in found.values())
        return copies

    async def _write_batch(
        self,
        group_id: str,
        source: TopicIdPartition,
        topic: str,
        letters: list[DeadLetter],
        copies: Mapping[int, Copy],
    ) -> list[DeadLetter]:
        """Write as many records as fit into a batch; return the others. Raises KafkaError."""
        batch, count = self._build_batch(group_id, source, topic, letters, copies)
        try:
            await self._produce(group_id, source.partition, topic, batch, count)
        except KafkaError as error:
            has_copy = copies.get(letters[0].offset, NO_COPY) != NO_COPY
            if error.code not in TOO_LARGE or count > 1 or not has_copy:
                raise
            # The headers of a dead letter make the batch larger than the batch of its record.
            logger.warning(
                "the record at offset %d of %s is too large to be copied to %s", letters[0].offset, source, topic
            )
            batch, count = self._build_batch(group_id, source, topic, letters[:1], {})
            await self._produce(group_id, source.partition, topic, batch, count)
        return letters[count:]

    def _build_batch(
        self,
        group_id: str,
        source: TopicIdPartition,
        topic: str,
        letters: list[DeadLetter],
        copies: Mapping[int, Copy],
    ) -> tuple[bytes, int]:
        """Return a batch of as many records as fit, at least one, and their number."""
        now_ms = self._now_ms()
        builder = RecordBatchBuilder(max_size=self._max_message_bytes(topic))
        count = 0
        for letter in letters:
            key, value = copies.get(letter.offset, NO_COPY)
            if not builder.append(key, value, _headers(group_id, source, letter), now_ms):
                break
            count += 1
        return builder.build(), count

    async def _produce(self, group_id: str, index: int, topic: str, batch: bytes, count: int) -> None:
        attempts = 0
        while True:
            error = await self._try_produce(index, topic, batch)
            self._metrics.record_dead_letters(group_id, records=0 if error is not None else count)
            if error is None:
                return
            attempts += 1
            if error.code not in RETRIABLE or attempts >= MAX_ATTEMPTS:
                raise error
            logger.info("retrying to write dead letters of group %s to %s: %s", group_id, topic, error)
            await self._back_off(attempts)

    async def _try_produce(self, index: int, topic: str, batch: bytes) -> KafkaError | None:
        """Append to the partition with the number of the source partition, modulo the partitions of the topic.

        Returns the error, None for success.
        """
        image = self._metadata.topic(topic)
        if image is None or not image.partitions:
            return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic} does not exist")
        topic_partition = TopicPartition(topic, index % len(image.partitions))
        partition = self._replica_manager.get_partition(*topic_partition)
        if partition is not None and partition.is_leader:
            return await self._append(topic_partition, batch)
        leader = self._metadata.partition(topic_partition)
        if leader is None or leader.leader < 0 or self._send is None:
            return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic_partition} has no leader")
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=image.topic_id,
                    partition_data=[PartitionProduceData(index=topic_partition.partition, records=batch)],
                )
            ],
        )
        try:
            response = await self._send(leader.leader, request, lowest=3)
        except KafkaError as error:
            return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        ((result,),) = (one.partition_responses for one in response.responses)
        return KafkaError(code_of(result.error_code), result.error_message or "") if result.error_code else None

    async def _append(self, topic_partition: TopicPartition, batch: bytes) -> KafkaError | None:
        outcome: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

        def appended(results: list[AppendResult]) -> None:
            if not outcome.done():
                outcome.set_result(results[0])

        self._replica_manager.append_records(
            [(*topic_partition, memoryview(bytearray(batch)))],
            AppendRequest(-1, PRODUCE_TIMEOUT_MS, appended, CLIENT_RULES),
        )
        result = await outcome
        return result if isinstance(result, KafkaError) else None


def _each_record(letters: Sequence[DeadLetters]) -> Iterator[DeadLetter]:
    for one in letters:
        for offset in range(one.first_offset, one.last_offset + 1):
            yield DeadLetter(offset, one.delivery_count, one.cause)


def _take(letters: Iterator[DeadLetter], count: int) -> list[DeadLetter]:
    return [letter for _, letter in zip(range(count), letters, strict=False)]


def _headers(group_id: str, source: TopicIdPartition, letter: DeadLetter) -> Headers:
    values = (
        ("__dlq.errors.topic", source.topic),
        ("__dlq.errors.partition", str(source.partition)),
        ("__dlq.errors.offset", str(letter.offset)),
        ("__dlq.errors.group", group_id),
        ("__dlq.errors.delivery.count", str(letter.delivery_count)),
        ("__dlq.errors.message", letter.cause.value),
    )
    return tuple((name, value.encode()) for name, value in values)


def _decode(data: bytes, first_offset: int, wanted: set[int], most_bytes: int) -> dict[int, Copy]:
    """Return the wanted records from `first_offset` on; runs on a lane. Raises KafkaError, ProtocolError."""
    found: dict[int, Copy] = {}
    left = most_bytes
    last = max(wanted)
    for batch in iter_batches(data):
        if batch.base_offset > last:
            break
        for record in batch.records():
            if record.offset < first_offset or record.offset not in wanted:
                continue
            key = None if record.key is None else bytes(record.key)
            value = None if record.value is None else bytes(record.value)
            left -= len(key or b"") + len(value or b"")
            if left < 0 and found:
                return found
            found[record.offset] = (key, value)
    return found
