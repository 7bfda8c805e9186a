"""Controllers of a metadata quorum for tests: one shared log, a leader, and Kafka's answers to observers.

The rules are those of KafkaRaftClient.handleFetchRequest and of KafkaRaftLog.validateOffsetAndEpoch.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from barnabas.clients.errors import BrokerUnreachableError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch, fetch_snapshot
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_record,
    encode_metadata_record,
)
from barnabas.protocol.record_batch import RecordBatchBuilder, iter_batches
from barnabas.server.raft.kafka_raft_log import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.storage.metadata_snapshot import OffsetAndEpoch

CLUSTER_ID = "scriptedcluster0000000"


@dataclass
class ScriptedQuorum:
    """Controllers 1 to 3 at `controller<id>`:9093."""

    leader: int | None = 1
    epoch: int = 1
    log_start: int = 0
    high_watermark: int = 0
    down: set[int] = field(default_factory=set)
    cut_off: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    """Controllers that do not know the state of the others: each with the leader and the epoch that it knows."""
    foreign: set[int] = field(default_factory=set)
    """Controllers of another cluster."""
    batches_per_fetch: int | None = None
    """The number of batches in a response."""
    damage: bool = False
    """Whether the records in responses are damaged."""
    error: Exception | None = None
    """The error of each request, if any."""
    is_without_snapshots: bool = False
    """Whether the leader has deleted the snapshots that it names."""
    batches: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    """The epoch, the first and the last offset, and the bytes of each batch."""
    snapshots: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    requests: list[tuple[int, Any]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def bootstrap(self) -> tuple[tuple[str, int], ...]:
        return tuple((f"controller{number}", 9093) for number in (1, 2, 3))

    @property
    def end(self) -> int:
        return self.batches[-1][2] + 1 if self.batches else max((one.offset for one in self.snapshots), default=0)

    @property
    def fetched_from(self) -> int:
        """The offset of the last fetch."""
        fetches = [one for _, one in self.requests if isinstance(one, fetch.FetchRequest)]
        return fetches[-1].topics[0].partitions[0].fetch_offset if fetches else -1

    @property
    def is_fetching_snapshot(self) -> bool:
        return bool(self.requests) and isinstance(self.requests[-1][1], fetch_snapshot.FetchSnapshotRequest)

    # -- what controllers do

    def append(self, *values: bytes, commit: bool = True) -> None:
        """Append a batch of metadata records in the epoch of the leader."""
        self._append(self._batch(self.end, [(None, value) for value in values], is_control=False), commit=commit)

    def set(self, name: str, value: str, *, commit: bool = True) -> None:
        """Append a batch with one record, which sets a broker's setting."""
        record = ConfigRecord(resource_type=4, resource_name="", name=name, value=value)
        self.append(encode_metadata_record(record), commit=commit)

    def elect(self, leader: int | None, *, keep: int | None = None) -> None:
        """Begin an epoch. The new leader has the log up to offset `keep` only."""
        if keep is not None:
            assert keep >= self.high_watermark, "committed records are never lost"
            self.batches = [one for one in self.batches if one[2] < keep]
        self.epoch += 1
        self.leader = leader
        if leader is not None:
            key, value = encode_control_record(LeaderChangeMessage(version=0, leader_id=leader))
            self._append(self._batch(self.end, [(key, value)], is_control=True), commit=True)
        self._notify()

    def append_control(self, *records: Any) -> None:
        """Append a batch of control records."""
        encoded = [encode_control_record(record) for record in records]
        self._append(self._batch(self.end, encoded, is_control=True), commit=True)

    def take_snapshot(self, *values: bytes) -> OffsetAndEpoch:
        """Replace the committed records by a snapshot with these values, and delete them from the log."""
        assert self.high_watermark == self.end
        snapshot_id = OffsetAndEpoch(self.end, self.batches[-1][0])
        header = encode_control_record(SnapshotHeaderRecord(version=0, last_contained_log_timestamp=777))
        footer = encode_control_record(SnapshotFooterRecord(version=0))
        parts: list[tuple[list[tuple[bytes | None, bytes]], bool]] = [
            ([header], True),
            ([(None, value) for value in values], False),
            ([footer], True),
        ]
        data, offset = b"", 0
        for records, is_control in parts:
            if records:
                data += self._batch(offset, records, is_control=is_control)
                offset += len(records)
        self.snapshots = {snapshot_id: data}
        self.log_start = snapshot_id.offset
        self.batches = []
        self._notify()
        return snapshot_id

    def commit(self) -> None:
        self.high_watermark = self.end
        self._notify()

    def _batch(self, offset: int, records: list[tuple[bytes | None, bytes]], *, is_control: bool) -> bytes:
        builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=self.epoch, is_control=is_control)
        for key, value in records:
            builder.append(key, value, timestamp=1000 + offset)
        return bytes(builder.build())

    def _append(self, data: bytes, *, commit: bool) -> None:
        (batch,) = iter_batches(data)
        self.batches.append((self.epoch, batch.base_offset, batch.last_offset, data))
        if commit:
            self.high_watermark = self.end
        self._notify()

    def _notify(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    # -- what observers get

    async def send_request(self, endpoint: tuple[str, int], request: Any, *, lowest: int = 0) -> Any:
        """Stand in for `ControllerConnections.send_request`."""
        node = int(endpoint[0].removeprefix("controller"))
        self.requests.append((node, request))
        await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error
        if node in self.down:
            raise BrokerUnreachableError(f"controller {node} is down")
        if isinstance(request, fetch.FetchRequest):
            assert lowest == 17
            return await self._fetch(node, request)
        return self._fetch_snapshot(node, request)

    async def _fetch(self, node: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        assert topic.topic_id == METADATA_TOPIC_ID
        if request.cluster_id != CLUSTER_ID or node in self.foreign:
            return fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        known, changed = self._is_known(wanted.high_watermark), self.changed
        data = self._read(node, wanted)
        if data.error_code == ErrorCode.NONE and not data.records and known and data.snapshot_id.epoch < 0:
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await changed.wait()
            except TimeoutError:
                pass
            if node in self.down:
                raise BrokerUnreachableError(f"controller {node} has stopped")
            data = self._read(node, wanted)
        return fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])],
            node_endpoints=[fetch.NodeEndpoint(node_id=self.leader, host=f"controller{self.leader}", port=9093)]
            if self.leader is not None
            else [],
        )

    def _is_known(self, high_watermark: int) -> bool:
        return high_watermark >= self.high_watermark

    def _error(self, node: int, epoch: int) -> ErrorCode:
        if node in self.cut_off:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if node == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _read(self, node: int, wanted: fetch.FetchPartition) -> fetch.PartitionData:
        error = self._error(node, wanted.current_leader_epoch)
        known, epoch = self.cut_off.get(node, (self.leader, self.epoch))
        leader = fetch.LeaderIdAndEpoch(leader_id=-1 if known is None else known, leader_epoch=epoch)
        data = fetch.PartitionData(
            partition_index=0, error_code=error, high_watermark=-1, current_leader=leader, records=b""
        )
        if error is not ErrorCode.NONE:
            return data
        data.high_watermark = self.high_watermark
        data.log_start_offset = self.log_start
        latest = max(self.snapshots, default=None)
        if wanted.fetch_offset < self.log_start or (wanted.fetch_offset == 0 and latest is not None):
            data.snapshot_id = fetch.SnapshotId(end_offset=latest.offset, epoch=latest.epoch)
            return data
        epoch, end = self._end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch != wanted.last_fetched_epoch or end < wanted.fetch_offset:
            data.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=end)
            return data
        batches = [batch for _, _, last, batch in self.batches if last >= wanted.fetch_offset]
        data.records = b"".join(batches[: self.batches_per_fetch])
        if self.damage:
            data.records = data.records[:-1] + bytes(one ^ 1 for one in data.records[-1:])
        return data

    def _end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if not self.batches:
            latest = max(self.snapshots, default=OffsetAndEpoch(0, 0))
            return (latest.epoch, latest.offset)
        ends = {one.epoch: one.offset for one in self.snapshots} if self.snapshots else {0: 0}
        ends.update({batch_epoch: last + 1 for batch_epoch, _, last, _ in self.batches})
        found = max((known for known in ends if known <= epoch), default=0)
        return found, ends.get(found, 0)

    def _fetch_snapshot(
        self, node: int, request: fetch_snapshot.FetchSnapshotRequest
    ) -> fetch_snapshot.FetchSnapshotResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        assert topic.name == METADATA_TOPIC
        error = self._error(node, wanted.current_leader_epoch)
        content = self.snapshots.get(OffsetAndEpoch(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch))
        if error is ErrorCode.NONE and (content is None or self.is_without_snapshots):
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        leader = -1 if self.leader is None else self.leader
        data = fetch_snapshot.ResponsePartitionSnapshot(
            error_code=error,
            snapshot_id=wanted.snapshot_id,
            current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=leader, leader_epoch=self.epoch),
        )
        if error is ErrorCode.NONE:
            data.size, data.position = len(content), wanted.position
            data.unaligned_records = content[wanted.position : wanted.position + request.max_bytes]
        return fetch_snapshot.FetchSnapshotResponse(
            topics=[fetch_snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[data])]
        )
