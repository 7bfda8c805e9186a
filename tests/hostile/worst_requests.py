"""For each API the requests of a megabyte that ask for most: many items, the same item again and again, slow items."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from soak.hostile.record_forge import blocks_without_output

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.batch_header import HEADER
from barnabas.protocol.codec import REQUEST_OBJECT_BUDGET, STOP_OBJECT_BUDGET, decode_request, encode_request
from barnabas.protocol.compression import Compression, compress
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.headers import RequestHeader, encode_request_header
from barnabas.protocol.legacy_records import encode_message
from barnabas.protocol.messages import alter_client_quotas as quotas
from barnabas.protocol.messages import alter_configs as altered
from barnabas.protocol.messages import alter_partition_reassignments as reassigned
from barnabas.protocol.messages import consumer_group_describe as consumer_groups
from barnabas.protocol.messages import create_topics as created
from barnabas.protocol.messages import describe_client_quotas as quota_filters
from barnabas.protocol.messages import describe_producers as producers
from barnabas.protocol.messages import describe_topic_partitions as pages
from barnabas.protocol.messages import describe_user_scram_credentials as scram
from barnabas.protocol.messages import incremental_alter_configs as edited
from barnabas.protocol.messages import list_partition_reassignments as reassignments
from barnabas.protocol.messages import offset_for_leader_epoch as epochs
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.elect_leaders import TopicPartitions as ElectedPartitions
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.produce_entries import MAX_PARTITIONS
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.config.config_helper import LONGEST_NUMBER

FRAME_BYTES = 1_000_000
LONG_MS = 60_000
"""A timeout that is never over first: what counts here is the answer of the whole work."""
TOPIC = "t"
"""A topic of one partition, which has many producers and some megabytes of tiny records."""
PACKED = "packed"
"""One whose partition keeps what it is sent as zstd of the highest level."""
PATIENT = "patient"
"""The same with batches of any size."""
WIDE = "wide"
"""One whose partitions have tiny records, and offsets of `GROUP`."""
WIDE_PARTITIONS = 100
VAST = "vast"
"""One with a partition for each bomb that a request has room for."""
VAST_PARTITIONS = 1400
BROKER_ID = 1
NEW_PARTITIONS = 500
"""Whose files are made."""
HIGH_WATERMARK = -1
"""As the offset up to which records are deleted."""
GROUP = "g"


class Known(NamedTuple):
    """What a client may know of the broker that it asks."""

    topic_id: UUID
    """Of `TOPIC`."""
    controller_epoch: int = 0
    broker_epoch: int = -1
    folder: str = ""
    """Its log directory, or one of them."""
    token: bytes = b""
    """The secret of one of the client's delegation tokens."""
    member_id: str = ""
    generation: int = -1
    member_epoch: int = -1
    """As whom it is in groups of either protocol."""
    producer_id: int = -1
    producer_epoch: int = -1


class NoCode(Enum):
    """What becomes of a request that gets no answer, and so no error code."""

    UNANSWERED = "it is not answered, as its client wants"
    CLOSED = "the connection is closed"


class Worst(NamedTuple):
    """A kind of request; `make` gives one with so many items."""

    name: str
    key: ApiKey
    version: int
    make: Callable[[int, Known], Any]
    error: ErrorCode | NoCode
    """The code that its answer has most often: NONE where it is carried out. A refusal is a row where there is one for
    each item, or where items are looked at first; what much can be done of has another row, which is carried out.
    """

    def frame(self, known: Known) -> bytes:
        """The largest of these that fits into a megabyte and that the broker reads."""
        head = encode_request_header(RequestHeader(self.key, self.version, 1, "hostile"))
        body = cache(lambda items: self._body(items, known))
        per_item = max(1, (len(body(2000)) - len(body(1000))) // 1000)
        others = max(0, len(body(1000)) - 1000 * per_item) + len(head)
        most = max(1, (FRAME_BYTES - others) // per_item)
        while (size := len(body(most)) + len(head)) > FRAME_BYTES and most > 1:
            most = min(most - 1, most * FRAME_BYTES // size)

        def passes(items: int) -> bool:
            return len(body(items)) + len(head) <= FRAME_BYTES and self._is_read(body(items))

        # An item is one object or a few, and mostly it is their number that is limited.
        budget = STOP_OBJECT_BUDGET if self.key is ApiKey.STOP_REPLICA else REQUEST_OBJECT_BUDGET
        guesses = [most, *(one for one in (budget * 99 // 100 // n for n in range(1, 5)) if one < most)]
        guess = next(filter(passes, guesses), None)
        if guess is not None:
            return head + body(guess)
        counts = [guesses[-1]]
        while counts[-1] > 1:
            counts.append(counts[-1] * 19 // 20)
        largest = bisect_left(counts, True, lo=1, key=passes)
        return head + body(counts[largest])

    def _body(self, items: int, known: Known) -> bytes:
        return encode_request(self.make(items, known), self.version)

    def _is_read(self, body: bytes) -> bool:
        try:
            decode_request(self.key, self.version, memoryview(bytearray(body)), 0, len(body))
        except ProtocolError:
            return False
        return True


def _batch(payload: bytes, count: int, codec: int) -> bytes:
    """A batch of format v2 around records that may be compressed."""
    builder = RecordBatchBuilder()
    builder.append(None, b"")
    from soak.hostile.record_forge import rewrite

    return rewrite(builder.build(), payload, attributes=codec, last_offset_delta=count - 1, record_count=count)


def _tiny_records(count: int) -> bytes:
    """Records without key and value, with the offset deltas that they must have."""
    records = bytearray()
    for delta in range(count):
        zigzag = delta << 1
        varint = bytearray()
        while zigzag > 0x7F:
            varint.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        varint.append(zigzag)
        body = b"\0\0" + varint + b"\x01\x01\0"
        records += bytes([len(body) << 1]) + body
    return bytes(records)


def tiny_batch(count: int, codec: int = Compression.NONE) -> bytes:
    """A batch of so many empty records."""
    records = _tiny_records(count)
    return _batch(records if codec == Compression.NONE else compress(codec, records), count, codec)


def noise_batch(size: int) -> bytes:
    """One record of bytes that look different everywhere and gain by a search for likenesses."""
    builder = RecordBatchBuilder()
    words = [bytes([65 + (n * n) % 61, 65 + n % 53, 65 + (n * 7) % 59]) for n in range(4096)]
    state, text = 1, bytearray()
    while len(text) < size:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        text += words[state >> 19]
    builder.append(None, bytes(text[:size]))
    return builder.build()


def _message_set(count: int, codec: int) -> bytes:
    """Messages of format v1 with nothing in them; with a codec inside one wrapper."""
    inner = b"".join(encode_message(number, 0, None, b"", magic=1) for number in range(count))
    if codec == Compression.NONE:
        return inner
    return encode_message(count - 1, 0, None, compress(codec, inner, magic=1), magic=1, attributes=codec)


def _produce(
    records: Callable[[int], bytes], topic: str = TOPIC, acks: int = 1
) -> Callable[[int, Known], ProduceRequest]:
    def make(count: int, _: Known) -> ProduceRequest:
        data = [PartitionProduceData(index=0, records=records(count))]
        return ProduceRequest(
            acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )

    return make


def produced(topic: str, partitions: int, records: bytes, acks: int = 1) -> ProduceRequest:
    """The same for each partition."""
    data = [PartitionProduceData(index=number, records=records) for number in range(partitions)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def _unknown_produced(acks: int = 1) -> Callable[[int, Known], ProduceRequest]:
    return lambda count, _: produced("unknown", min(count, MAX_PARTITIONS), b"", acks)


def _bombs(count: int, _: Known) -> ProduceRequest:
    bomb = _bomb()
    return produced(VAST, min(count, VAST_PARTITIONS, FRAME_BYTES // (len(bomb) + 10)), bomb)


def _blocks_without_output(name: str) -> Callable[[int, Known], ProduceRequest]:
    def make(count: int, _: Known) -> ProduceRequest:
        codec, payload = blocks_without_output(count * 100)[name]
        return produced(VAST, 1, _batch(payload, 1, codec))

    return make


@cache
def _bomb() -> bytes:
    return _batch(compress(Compression.ZSTD, _record_of(bytes(20 << 20))), 1, Compression.ZSTD)


@cache
def _noise_bomb() -> bytes:
    """It expands nearly as far as a topic of the usual limit allows, and compressing it anew is much work."""
    return _batch(compress(Compression.GZIP, _record_of(noise_batch(20_000) * 1100)), 1, Compression.GZIP)


@cache
def _zeros_bomb(codec: int) -> bytes:
    """It expands to more than a small request may."""
    return _batch(compress(codec, _record_of(bytes(120 << 20))), 1, codec)


def _record_of(value: bytes) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, value)
    return builder.build()[HEADER.size :]


def _indexes(count: int, partitions: int | None) -> list[int]:
    """Of the partitions that there are, again and again; if that is None, of more than there are."""
    return [number if partitions is None else number % partitions for number in range(count)]


def _fetch(topic: str, partitions: int | None = None, **options: Any) -> Callable[[int, Known], FetchRequest]:
    def make(count: int, known: Known) -> FetchRequest:
        asked = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=2**31 - 1)
            for number in _indexes(count, partitions)
        ]
        wanted = FetchTopic(topic=topic, topic_id=known.topic_id, partitions=asked)
        return FetchRequest(max_bytes=2**31 - 1, max_wait_ms=0, min_bytes=1, topics=[wanted], **options)

    return make


def _offsets(
    timestamp: int, topic: str, indexes: Callable[[int], Iterable[int]] = range, **options: int
) -> Callable[[int, Known], ListOffsetsRequest]:
    def make(count: int, _: Known) -> ListOffsetsRequest:
        wanted = [ListOffsetsPartition(partition_index=n, timestamp=timestamp, **options) for n in indexes(count)]
        return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])

    return make


def _each_of_vast(count: int) -> range:
    return range(min(count, VAST_PARTITIONS))


def _same(count: int) -> list[int]:
    return [0] * count


def _records_deleted(
    topic: str, indexes: Callable[[int], Iterable[int]], offset: int = 0
) -> Callable[[int, Known], DeleteRecordsRequest]:
    def make(count: int, _: Known) -> DeleteRecordsRequest:
        partitions = [DeleteRecordsPartition(partition_index=number, offset=offset) for number in indexes(count)]
        return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=LONG_MS)

    return make


def _epoch_ends(indexes: Callable[[int], Iterable[int]]) -> Callable[[int, Known], epochs.OffsetForLeaderEpochRequest]:
    def make(count: int, _: Known) -> epochs.OffsetForLeaderEpochRequest:
        partitions = [
            epochs.OffsetForLeaderPartition(partition=number, current_leader_epoch=-1, leader_epoch=0)
            for number in indexes(count)
        ]
        return epochs.OffsetForLeaderEpochRequest(
            topics=[epochs.OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)]
        )

    return make


def _elected(topic: str, indexes: Callable[[int], Iterable[int]]) -> Callable[[int, Known], ElectLeadersRequest]:
    def make(count: int, _: Known) -> ElectLeadersRequest:
        wanted = [ElectedPartitions(topic=topic, partitions=list(indexes(count)))]
        return ElectLeadersRequest(election_type=0, timeout_ms=LONG_MS, topic_partitions=wanted)

    return make


def _moved(
    topic: str, indexes: Callable[[int], Iterable[int]], replicas: Callable[[int], list[int] | None]
) -> Callable[[int, Known], reassigned.AlterPartitionReassignmentsRequest]:
    def make(count: int, _: Known) -> reassigned.AlterPartitionReassignmentsRequest:
        partitions = [
            reassigned.ReassignablePartition(partition_index=number, replicas=replicas(count))
            for number in indexes(count)
        ]
        return reassigned.AlterPartitionReassignmentsRequest(
            timeout_ms=LONG_MS, topics=[reassigned.ReassignableTopic(name=topic, partitions=partitions)]
        )

    return make


def _offsets_deleted(topic: str, partitions: int | None) -> Callable[[int, Known], OffsetDeleteRequest]:
    def make(count: int, _: Known) -> OffsetDeleteRequest:
        asked = [OffsetDeleteRequestPartition(partition_index=number) for number in _indexes(count, partitions)]
        return OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])

    return make


def _edits(kind: ConfigResourceType, name: str, key: str, operation: int) -> Callable[[int, Known], Any]:
    def make(count: int, _: Known) -> Any:
        configs = [
            edited.AlterableConfig(name=f"{key}{number}", config_operation=operation, value="1")
            for number in range(count)
        ]
        resource = edited.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return edited.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

    return make


def _list_edit(operation: int, many: bool) -> Callable[[int, Known], Any]:
    key = "leader.replication.throttled.replicas"

    def make(count: int, _: Known) -> Any:
        value = ",".join(f"{number}:1" for number in range(count))
        config = edited.AlterableConfig(name=key, config_operation=operation, value=value)
        resource = edited.AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=TOPIC, configs=[config]
        )
        return edited.IncrementalAlterConfigsRequest(resources=[resource] * (1 + many), validate_only=False)

    return make


def _resources(count: int, _: Known) -> Any:
    resources = [
        edited.AlterConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=f"x{number}", configs=[])
        for number in range(count)
    ]
    return edited.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


def _replaced(kind: ConfigResourceType, name: str) -> Callable[[int, Known], Any]:
    def make(count: int, _: Known) -> Any:
        configs = [altered.AlterableConfig(name=f"k{number}", value="1") for number in range(count)]
        resource = altered.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return altered.AlterConfigsRequest(resources=[resource], validate_only=False)

    return make


def _described(
    kind: ConfigResourceType, names: Callable[[int], list[str]]
) -> Callable[[int, Known], DescribeConfigsRequest]:
    def make(count: int, _: Known) -> DescribeConfigsRequest:
        resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names(count)]
        return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)

    return make


def _long_numbers(count: int) -> list[str]:
    return ["0" * (LONGEST_NUMBER + number % 300) + "1" for number in range(min(count, 3000))]


def _names_of_a_broker(_: int) -> list[str]:
    """Its id with as many zeros in front as are read."""
    return [f"{BROKER_ID:0{width}}" for width in range(1, LONGEST_NUMBER + 1)]


def _topics_to_create(count: int, _: Known) -> created.CreateTopicsRequest:
    topics = [created.CreatableTopic(name=f"n{n}", num_partitions=1, replication_factor=1) for n in range(count)]
    return created.CreateTopicsRequest(topics=topics, timeout_ms=LONG_MS, validate_only=True)


def _most_topics_to_create(count: int, _: Known) -> created.CreateTopicsRequest:
    return _topics_to_create(min(count, 10_000), _)


def _assignments(count: int, _: Known) -> created.CreateTopicsRequest:
    assigned = [created.CreatableReplicaAssignment(partition_index=n, broker_ids=[0]) for n in range(count)]
    topic = created.CreatableTopic(name="n", num_partitions=-1, replication_factor=-1, assignments=assigned)
    return created.CreateTopicsRequest(topics=[topic], timeout_ms=LONG_MS, validate_only=True)


def _topic_settings(count: int, _: Known) -> created.CreateTopicsRequest:
    configs = [created.CreatableTopicConfig(name=f"k{number}", value="1") for number in range(count)]
    topic = created.CreatableTopic(name="n", num_partitions=1, replication_factor=1, configs=configs)
    return created.CreateTopicsRequest(topics=[topic], timeout_ms=LONG_MS, validate_only=True)


def _commit(topic: str) -> Callable[[int, Known], OffsetCommitRequest]:
    def make(count: int, _: Known) -> OffsetCommitRequest:
        if topic == WIDE:
            count = min(count, FRAME_BYTES // 30)
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=n % WIDE_PARTITIONS if topic == WIDE else n, committed_offset=1, committed_metadata=None
            )
            for n in range(count)
        ]
        wanted = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        return OffsetCommitRequest(group_id=GROUP, topics=wanted, generation_id_or_member_epoch=-1, member_id="")

    return make


def _offset_fetch(partitions: int | None = None) -> Callable[[int, Known], OffsetFetchRequest]:
    def make(count: int, _: Known) -> OffsetFetchRequest:
        topics = [OffsetFetchRequestTopic(name=WIDE, partition_indexes=_indexes(count, partitions))]
        return OffsetFetchRequest(group_id=GROUP, topics=topics)

    return make


def _offset_fetch_groups(count: int, _: Known) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None) for _ in range(count)])


def _offset_fetch_of_a_group(count: int, _: Known) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=WIDE, partition_indexes=list(range(count)))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])


def _quotas(same_entity: bool) -> Callable[[int, Known], Any]:
    def make(count: int, _: Known) -> Any:
        if same_entity:
            ops = [quotas.OpData(key=f"k{number}", value=1.0, remove=True) for number in range(count)]
            entity = [quotas.EntityData(entity_type="user", entity_name="u")]
            return quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=entity, ops=ops)])
        entries = [
            quotas.EntryData(entity=[quotas.EntityData(entity_type="user", entity_name=str(number))], ops=[])
            for number in range(count)
        ]
        return quotas.AlterClientQuotasRequest(entries=entries)

    return make


def _names(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


def _markers(partitions: int) -> Callable[[int, Known], WriteTxnMarkersRequest]:
    """Many markers of so many partitions each, or one marker for a great many."""

    def make(count: int, _: Known) -> WriteTxnMarkersRequest:
        name = WIDE if partitions > 1 else TOPIC
        topics = [WritableTxnMarkerTopic(name=name, partition_indexes=list(range(partitions or count)))]
        return WriteTxnMarkersRequest(
            markers=[WritableTxnMarker(producer_id=n, topics=topics) for n in range(count if partitions else 1)]
        )

    return make


K = ApiKey
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOO_MANY, INVALID, NO_SETTING = ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
SET, APPEND, SUBTRACT = ConfigOperation.SET, ConfigOperation.APPEND, ConfigOperation.SUBTRACT
WORST: tuple[Worst, ...] = (
    Worst("unknown partitions", K.PRODUCE, 9, _unknown_produced(), UNKNOWN),
    Worst("unknown partitions, old", K.PRODUCE, 3, _unknown_produced(), UNKNOWN),
    Worst("unknown partitions, no answer wanted", K.PRODUCE, 9, _unknown_produced(acks=0), NoCode.CLOSED),
    Worst("tiny messages", K.PRODUCE, 2, _produce(lambda count: _message_set(count, Compression.NONE)), NONE),
    Worst("tiny messages, gzip", K.PRODUCE, 2, _produce(lambda count: _message_set(count * 9, Compression.GZIP)), NONE),
    Worst("tiny records", K.PRODUCE, 9, _produce(tiny_batch), NONE),
    Worst("tiny records, no answer wanted", K.PRODUCE, 9, _produce(tiny_batch, acks=0), NoCode.UNANSWERED),
    Worst(
        "tiny records, zstd",
        K.PRODUCE,
        9,
        _produce(lambda n: tiny_batch(min(n * 50, 1_000_000), Compression.ZSTD)),
        NONE,
    ),
    Worst("recompressed", K.PRODUCE, 9, _produce(noise_batch, PACKED), NONE),
    Worst("recompressed bomb", K.PRODUCE, 9, _produce(lambda _: _noise_bomb(), PACKED), NONE),
    Worst("recompressed bomb, high limit", K.PRODUCE, 9, _produce(lambda _: _noise_bomb(), PATIENT), NONE),
    Worst(
        "gzip bomb, high limit",
        K.PRODUCE,
        9,
        _produce(lambda _: _zeros_bomb(Compression.GZIP), PATIENT),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    Worst(
        "zstd bomb, high limit",
        K.PRODUCE,
        9,
        _produce(lambda _: _zeros_bomb(Compression.ZSTD), PATIENT),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    Worst("bombs", K.PRODUCE, 9, _bombs, NONE),
    *(
        Worst(f"blocks without output, {name}", K.PRODUCE, 9, _blocks_without_output(name), ErrorCode.INVALID_RECORD)
        for name in blocks_without_output(100)
    ),
    Worst("unknown partitions", K.FETCH, 11, _fetch("unknown"), UNKNOWN),
    Worst("unknown partitions of a session", K.FETCH, 12, _fetch("unknown", session_epoch=0), UNKNOWN),
    Worst("unknown partitions by id", K.FETCH, 13, _fetch(""), UNKNOWN),
    Worst("down-conversion", K.FETCH, 0, _fetch(WIDE, WIDE_PARTITIONS), NONE),
    Worst("down-conversion of one, and unknown partitions", K.FETCH, 0, _fetch(TOPIC), UNKNOWN),
    Worst("down-conversion again and again", K.FETCH, 2, _fetch(TOPIC, 1), NONE),
    Worst("max timestamps", K.LIST_OFFSETS, 7, _offsets(-3, VAST, _each_of_vast), NONE),
    Worst("max timestamp of one, and of unknown", K.LIST_OFFSETS, 7, _offsets(-3, TOPIC), UNKNOWN),
    Worst("max timestamp of unknown", K.LIST_OFFSETS, 7, _offsets(-3, "unknown"), UNKNOWN),
    Worst("the same partition", K.LIST_OFFSETS, 7, _offsets(-1, TOPIC, _same), INVALID),
    Worst("segments", K.LIST_OFFSETS, 0, _offsets(-1, VAST, _each_of_vast, max_num_offsets=1000), NONE),
    Worst("segments of unknown", K.LIST_OFFSETS, 0, _offsets(-1, TOPIC, max_num_offsets=1000), UNKNOWN),
    Worst("the same segments", K.LIST_OFFSETS, 0, _offsets(-1, TOPIC, _same, max_num_offsets=1000), INVALID),
    Worst(
        "by the same id",
        K.METADATA,
        12,
        lambda n, known: MetadataRequest(topics=[MetadataRequestTopic(topic_id=known.topic_id, name=None)] * n),
        NONE,
    ),
    Worst(
        "unknown names",
        K.METADATA,
        9,
        lambda n, _: MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in _names(n)], allow_auto_topic_creation=False
        ),
        UNKNOWN,
    ),
    Worst(
        "the same name", K.METADATA, 9, lambda n, _: MetadataRequest(topics=[MetadataRequestTopic(name=WIDE)] * n), NONE
    ),
    Worst("unknown partitions", K.OFFSET_COMMIT, 8, _commit("unknown"), UNKNOWN),
    Worst("the same partitions", K.OFFSET_COMMIT, 8, _commit(WIDE), NONE),
    Worst("the same partitions, ZooKeeper", K.OFFSET_COMMIT, 0, _commit(WIDE), NONE),
    Worst("partitions", K.OFFSET_FETCH, 7, _offset_fetch(), NONE),
    Worst("the same partitions", K.OFFSET_FETCH, 7, _offset_fetch(WIDE_PARTITIONS), NONE),
    Worst("unknown partitions, ZooKeeper", K.OFFSET_FETCH, 0, _offset_fetch(), UNKNOWN),
    Worst("the same partitions, ZooKeeper", K.OFFSET_FETCH, 0, _offset_fetch(WIDE_PARTITIONS), NONE),
    Worst("partitions of a group", K.OFFSET_FETCH, 8, _offset_fetch_of_a_group, NONE),
    Worst("the same group", K.OFFSET_FETCH, 8, _offset_fetch_groups, NONE),
    Worst(
        "keys", K.FIND_COORDINATOR, 4, lambda n, _: FindCoordinatorRequest(key_type=0, coordinator_keys=_names(n)), NONE
    ),
    Worst(
        "the same key",
        K.FIND_COORDINATOR,
        4,
        lambda n, _: FindCoordinatorRequest(key_type=0, coordinator_keys=["g"] * n),
        NONE,
    ),
    Worst("unknown groups", K.DESCRIBE_GROUPS, 5, lambda n, _: DescribeGroupsRequest(groups=_names(n)), NONE),
    Worst("the same group", K.DESCRIBE_GROUPS, 5, lambda n, _: DescribeGroupsRequest(groups=[GROUP] * n), NONE),
    Worst("filters", K.LIST_GROUPS, 4, lambda n, _: ListGroupsRequest(states_filter=_names(n)), NONE),
    Worst("too many topics", K.CREATE_TOPICS, 5, _topics_to_create, TOO_MANY),
    Worst("topics", K.CREATE_TOPICS, 5, _most_topics_to_create, NONE),
    Worst("too many assignments", K.CREATE_TOPICS, 5, _assignments, TOO_MANY),
    Worst("unknown settings", K.CREATE_TOPICS, 5, _topic_settings, NO_SETTING),
    Worst(
        "unknown names",
        K.DELETE_TOPICS,
        5,
        lambda n, _: DeleteTopicsRequest(topic_names=_names(n), timeout_ms=LONG_MS),
        UNKNOWN,
    ),
    Worst(
        "unknown ids",
        K.DELETE_TOPICS,
        6,
        lambda n, _: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=UUID(int=number + 1)) for number in range(n)],
            timeout_ms=LONG_MS,
        ),
        ErrorCode.UNKNOWN_TOPIC_ID,
    ),
    Worst("unknown partitions", K.DELETE_RECORDS, 1, _records_deleted(TOPIC, range), UNKNOWN),
    Worst("the same partition", K.DELETE_RECORDS, 1, _records_deleted(TOPIC, _same), NONE),
    Worst("partitions", K.DELETE_RECORDS, 1, _records_deleted(VAST, _each_of_vast, HIGH_WATERMARK), NONE),
    Worst("unknown partitions", K.OFFSET_FOR_LEADER_EPOCH, 3, _epoch_ends(range), UNKNOWN),
    Worst("the same partition", K.OFFSET_FOR_LEADER_EPOCH, 3, _epoch_ends(_same), NONE),
    Worst(
        "rules that nobody keeps",
        K.CREATE_ACLS,
        1,
        lambda n, _: CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name="",
                    resource_pattern_type=3,
                    principal="",
                    host="",
                    operation=2,
                    permission_type=3,
                )
            ]
            * n
        ),
        ErrorCode.SECURITY_DISABLED,
    ),
    Worst(
        "filters of rules that nobody keeps",
        K.DELETE_ACLS,
        1,
        lambda n, _: DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=None,
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=2,
                    permission_type=3,
                )
            ]
            * n
        ),
        ErrorCode.SECURITY_DISABLED,
    ),
    Worst("unknown topics", K.DESCRIBE_CONFIGS, 4, _described(ConfigResourceType.TOPIC, _names), UNKNOWN),
    Worst("numbers of no broker", K.DESCRIBE_CONFIGS, 4, _described(ConfigResourceType.BROKER, _long_numbers), INVALID),
    Worst(
        "names of a broker", K.DESCRIBE_CONFIGS, 4, _described(ConfigResourceType.BROKER, _names_of_a_broker), TOO_MANY
    ),
    Worst("too many groups", K.DESCRIBE_CONFIGS, 4, _described(ConfigResourceType.GROUP, _names), TOO_MANY),
    Worst("too many settings of a broker", K.ALTER_CONFIGS, 1, _replaced(ConfigResourceType.BROKER, "1"), TOO_MANY),
    Worst("too many settings of a topic", K.ALTER_CONFIGS, 1, _replaced(ConfigResourceType.TOPIC, TOPIC), TOO_MANY),
    Worst("unknown settings of a group", K.ALTER_CONFIGS, 1, _replaced(ConfigResourceType.GROUP, "x"), NO_SETTING),
    Worst(
        "partitions to an unknown folder",
        K.ALTER_REPLICA_LOG_DIRS,
        1,
        lambda n, _: AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(path="/x", topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=list(range(n)))])
            ]
        ),
        ErrorCode.LOG_DIR_NOT_FOUND,
    ),
    Worst(
        "partitions",
        K.DESCRIBE_LOG_DIRS,
        1,
        lambda n, _: DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=TOPIC, partitions=list(range(n)))]),
        NONE,
    ),
    Worst(
        "unknown topics",
        K.CREATE_PARTITIONS,
        1,
        lambda n, _: CreatePartitionsRequest(
            timeout_ms=LONG_MS,
            validate_only=True,
            topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in _names(n)],
        ),
        UNKNOWN,
    ),
    Worst(
        "too many assignments",
        K.CREATE_PARTITIONS,
        1,
        lambda n, _: CreatePartitionsRequest(
            timeout_ms=LONG_MS,
            validate_only=True,
            topics=[
                CreatePartitionsTopic(name=TOPIC, count=n, assignments=[CreatePartitionsAssignment(broker_ids=[0])] * n)
            ],
        ),
        TOO_MANY,
    ),
    Worst(
        "unknown groups",
        K.DELETE_GROUPS,
        1,
        lambda n, _: DeleteGroupsRequest(groups_names=_names(n)),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Worst("unknown partitions", K.ELECT_LEADERS, 1, _elected(TOPIC, range), UNKNOWN),
    # A broker alone leads all that it has a replica of: nobody else could be elected.
    Worst("partitions", K.ELECT_LEADERS, 1, _elected(VAST, _each_of_vast), ErrorCode.ELECTION_NOT_NEEDED),
    Worst(
        "unknown features",
        K.UPDATE_FEATURES,
        1,
        lambda n, _: UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature=f"f{one}", max_version_level=1) for one in range(n)]
        ),
        INVALID,
    ),
    Worst("a long list", K.INCREMENTAL_ALTER_CONFIGS, 1, _list_edit(SET, False), NONE),
    Worst("a list appended to", K.INCREMENTAL_ALTER_CONFIGS, 1, _list_edit(APPEND, False), NONE),
    Worst("a list cut", K.INCREMENTAL_ALTER_CONFIGS, 1, _list_edit(SUBTRACT, False), NONE),
    Worst("resources", K.INCREMENTAL_ALTER_CONFIGS, 0, _resources, UNKNOWN),
    Worst(
        "too many settings of a broker",
        K.INCREMENTAL_ALTER_CONFIGS,
        0,
        _edits(ConfigResourceType.BROKER, "1", "k", SET),
        TOO_MANY,
    ),
    Worst(
        "too many settings of all brokers",
        K.INCREMENTAL_ALTER_CONFIGS,
        0,
        _edits(ConfigResourceType.BROKER, "", "k", SET),
        TOO_MANY,
    ),
    Worst(
        "too many settings of listeners",
        K.INCREMENTAL_ALTER_CONFIGS,
        0,
        _edits(ConfigResourceType.BROKER, "1", "listener.name.", SET),
        TOO_MANY,
    ),
    Worst(
        "too many settings of a topic",
        K.INCREMENTAL_ALTER_CONFIGS,
        0,
        _edits(ConfigResourceType.TOPIC, TOPIC, "k", SET),
        TOO_MANY,
    ),
    Worst(
        "unknown settings of a group",
        K.INCREMENTAL_ALTER_CONFIGS,
        0,
        _edits(ConfigResourceType.GROUP, "x", "k", SET),
        NO_SETTING,
    ),
    Worst(
        "unknown settings of metrics",
        K.INCREMENTAL_ALTER_CONFIGS,
        0,
        _edits(ConfigResourceType.CLIENT_METRICS, "x", "k", SET),
        INVALID,
    ),
    Worst(
        "unknown loggers",
        K.INCREMENTAL_ALTER_CONFIGS,
        0,
        _edits(ConfigResourceType.BROKER_LOGGER, "1", "k", SET),
        NO_SETTING,
    ),
    Worst("unknown partitions", K.ALTER_PARTITION_REASSIGNMENTS, 0, _moved(TOPIC, range, lambda _: None), UNKNOWN),
    Worst("partitions", K.ALTER_PARTITION_REASSIGNMENTS, 0, _moved(VAST, _each_of_vast, lambda _: [BROKER_ID]), NONE),
    Worst(
        "replicas",
        K.ALTER_PARTITION_REASSIGNMENTS,
        0,
        _moved(TOPIC, lambda _: [0], lambda count: list(range(count))),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    Worst(
        "partitions",
        K.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda n, _: reassignments.ListPartitionReassignmentsRequest(
            timeout_ms=LONG_MS,
            topics=[reassignments.ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=list(range(n)))],
        ),
        NONE,
    ),
    Worst("unknown partitions", K.OFFSET_DELETE, 0, _offsets_deleted(TOPIC, None), UNKNOWN),
    Worst("the same partitions", K.OFFSET_DELETE, 0, _offsets_deleted(WIDE, WIDE_PARTITIONS), NONE),
    Worst(
        "unknown components",
        K.DESCRIBE_CLIENT_QUOTAS,
        1,
        lambda n, _: quota_filters.DescribeClientQuotasRequest(
            components=[quota_filters.ComponentData(entity_type=name, match_type=0, match=name) for name in _names(n)]
        ),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    Worst("entities without anything", K.ALTER_CLIENT_QUOTAS, 1, _quotas(same_entity=False), NONE),
    Worst("keys that are not there", K.ALTER_CLIENT_QUOTAS, 1, _quotas(same_entity=True), NONE),
    Worst(
        "unknown users",
        K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda n, _: scram.DescribeUserScramCredentialsRequest(users=[scram.UserName(name=name) for name in _names(n)]),
        ErrorCode.RESOURCE_NOT_FOUND,
    ),
    Worst(
        "too many users",
        K.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda n, _: AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
                for name in _names(n)
            ],
        ),
        INVALID,
    ),
    Worst(
        "the same partition",
        K.DESCRIBE_PRODUCERS,
        0,
        lambda n, _: producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name=TOPIC, partition_indexes=[0] * n)]
        ),
        NONE,
    ),
    Worst(
        "the same topic",
        K.DESCRIBE_PRODUCERS,
        0,
        lambda n, _: producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name=TOPIC, partition_indexes=[0])] * n
        ),
        NONE,
    ),
    Worst(
        "unknown partitions",
        K.DESCRIBE_PRODUCERS,
        0,
        lambda n, _: producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name=TOPIC, partition_indexes=list(range(n)))]
        ),
        UNKNOWN,
    ),
    Worst("markers", K.WRITE_TXN_MARKERS, 1, _markers(1), NONE),
    Worst("unknown partitions", K.WRITE_TXN_MARKERS, 1, _markers(0), UNKNOWN),
    Worst("partitions of many markers", K.WRITE_TXN_MARKERS, 1, _markers(WIDE_PARTITIONS), NONE),
    Worst(
        "filters",
        K.LIST_TRANSACTIONS,
        0,
        lambda n, _: ListTransactionsRequest(state_filters=_names(n), producer_id_filters=[]),
        NONE,
    ),
    Worst(
        "unknown groups",
        K.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda n, _: consumer_groups.ConsumerGroupDescribeRequest(group_ids=_names(n)),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Worst(
        "unknown groups",
        K.STREAMS_GROUP_DESCRIBE,
        1,
        lambda n, _: StreamsGroupDescribeRequest(group_ids=_names(n)),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Worst(
        "unknown topics",
        K.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda n, _: pages.DescribeTopicPartitionsRequest(
            topics=[pages.TopicRequest(name=name) for name in _names(n)], response_partition_limit=2**31 - 1
        ),
        UNKNOWN,
    ),
    Worst(
        "the same topic",
        K.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda n, _: pages.DescribeTopicPartitionsRequest(
            topics=[pages.TopicRequest(name=WIDE)] * n, response_partition_limit=2**31 - 1
        ),
        NONE,
    ),
)


def by_name(worst: Iterable[Worst] = WORST) -> Iterator[tuple[str, Worst]]:
    """Each kind of request with a name for it."""
    for one in worst:
        yield f"{one.key.name.lower()}: {one.name}", one
