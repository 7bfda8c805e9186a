"""The state of an observer of `__cluster_metadata` as a machine without I/O: responses in, the next request out.

It follows the parts of Kafka's KafkaRaftClient, UnattachedState and FollowerState that concern an observer (KIP-595,
KIP-630, KIP-853). An observer is never elected and never votes: it fetches from the leader, and from any bootstrap
server while it does not know the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, code_of
from ...protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ...protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    ResponsePartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from ...protocol.metadata_records import VotersRecord
from ...protocol.schema import Buffer
from ...storage.metadata_snapshot import OffsetAndEpoch
from ...storage.quorum_state_store import NO_LEADER, ElectionState
from .kafka_raft_log import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID, DivergentLogError

logger = room_logger("raft")

Endpoint = tuple[str, int]
"""A host and a port."""

UNKNOWN_HIGH_WATERMARK = -1
MAX_BACKOFF_MS = 1000
"""The longest pause after responses with unexpected errors, for example of a controller of another cluster."""
OLDER_EPOCHS_BEFORE_LOG = 200
"""Responses with an older leader epoch, several seconds of them, after which the difference is logged."""
MAX_LOGGED_ERRORS = 16
"""Controllers whose last error is kept, so that it is logged once."""


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The settings of `controller.quorum.*` that an observer uses; the defaults are Kafka's. Times are in ms."""

    bootstrap_servers: tuple[Endpoint, ...]
    listener: str = "CONTROLLER"
    """The listener on which controllers are reached, the first of `controller.listener.names`."""
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20


class LeaderAndEpoch(NamedTuple):
    """The leader of the quorum, None if it is not known, in an epoch."""

    leader_id: int | None
    epoch: int


class Truncate(NamedTuple):
    """The log must be truncated: the end of the leader's largest epoch up to the last epoch of this log."""

    diverging: OffsetAndEpoch


class Append(NamedTuple):
    """Records of the leader's log and its high watermark, None if the leader does not know it yet."""

    records: Buffer
    high_watermark: int | None


class BeginSnapshot(NamedTuple):
    """The leader has no records at the end of this log, but this snapshot."""

    snapshot_id: OffsetAndEpoch


class AppendToSnapshot(NamedTuple):
    """The next bytes of the snapshot that is being fetched."""

    data: Buffer
    is_last: bool


class AbortSnapshot(NamedTuple):
    """The snapshot that was being fetched cannot be completed."""


Effect = Truncate | Append | BeginSnapshot | AppendToSnapshot | AbortSnapshot
"""A change of the replica that the owner of this state makes before it calls `next_request` again."""


class ForeignClusterError(Exception):
    """The controllers belong to another cluster than the log directories of the broker."""


class _FetchingSnapshot:
    """A snapshot, and the number of its bytes that were received."""

    __slots__ = ("position", "snapshot_id")

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0


class ObserverState:
    """The known leader and epoch, the high watermark, and the snapshot that is being fetched.

    One request is in flight at a time. After `next_request` the owner calls `handle_response` or `request_failed`.
    """

    def __init__(
        self,
        *,
        node_id: int,
        directory_id: UUID,
        cluster_id: str,
        config: QuorumConfig,
        election: ElectionState,
        rng: Random,
    ) -> None:
        """`election` is the stored state: its epoch is not below the last epoch of the log."""
        assert config.bootstrap_servers, "an observer requires controller.quorum.bootstrap.servers"
        self._node_id = node_id
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._config = config
        self._random = rng
        self._epoch = election.epoch
        self._leader_id = election.leader_id
        self._leader_endpoint: Endpoint | None = None
        self._is_leader_silent = False
        """Whether the last request to the leader failed: a bootstrap server may report a newer leader."""
        self._fetching: _FetchingSnapshot | None = None
        self.high_watermark: int | None = None
        """The offset below which records are committed; None before the first response with it."""
        self.leader_high_watermark: int | None = None
        """The highest value of a leader, also above the end of this log; None before the first response with it."""
        self._voters: dict[int, Endpoint] = {}
        """The addresses of controllers in the metadata log and in responses."""
        self._unexpected_errors = 0
        """The number of responses with unexpected errors since the last usable response."""
        self._older_epochs = 0
        """The number of responses with an older leader epoch since the last usable response."""
        self._logged_errors: dict[Endpoint, str] = {}
        self._foreign_servers: set[Endpoint] = set()
        """The servers that have responded with INCONSISTENT_CLUSTER_ID."""

    # -- leader ----------------------------------------------------------------------------------------------------

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The newest known epoch and its leader."""
        return LeaderAndEpoch(None if self._leader_id == NO_LEADER else self._leader_id, self._epoch)

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The address of the leader, None while the leader or its address is not known."""
        return self._leader_endpoint

    @property
    def election(self) -> ElectionState:
        """The state to store."""
        return ElectionState(self._epoch, self._leader_id)

    @property
    def fetched_position(self) -> tuple[OffsetAndEpoch, int] | None:
        """The snapshot that is being fetched and the number of its bytes that were received; None without one."""
        return None if self._fetching is None else (self._fetching.snapshot_id, self._fetching.position)

    @property
    def retry_backoff_ms(self) -> int:
        """The pause before the next request if a response does not permit one immediately.

        It grows with the number of unexpected errors. During an election it is `controller.quorum.retry.backoff.ms`.
        """
        return min(self._config.retry_backoff_ms << min(self._unexpected_errors, 10), MAX_BACKOFF_MS)

    # -- requests --------------------------------------------------------------------------------------------------

    def next_request(self, end: OffsetAndEpoch) -> tuple[Endpoint, FetchRequest | FetchSnapshotRequest]:
        """Return the next request and its destination. `end` is the end of the log and the epoch of its last record."""
        leader = self._leader_endpoint
        if leader is None or self._is_leader_silent:
            self._is_leader_silent = False
            return self._bootstrap_server(leader), self._fetch_request(end)
        if self._fetching is not None:
            return leader, self._fetch_snapshot_request(self._fetching)
        return leader, self._fetch_request(end)

    def _bootstrap_server(self, silent: Endpoint | None) -> Endpoint:
        """Return a bootstrap server, or a voter of the quorum.

        Kafka's observers use bootstrap servers only; all of them may have been replaced (KIP-853).
        """
        known = dict.fromkeys((*self._config.bootstrap_servers, *self._voters.values()))
        others = [one for one in known if one != silent]
        return self._random.choice(others or list(known))

    def update_voters(self, record: VotersRecord) -> None:
        """Replace the known addresses of controllers by the addresses in a record of the metadata log."""
        self._voters = {
            voter.voter_id: (one.host, one.port)
            for voter in record.voters
            for one in voter.endpoints
            if one.name.upper() == self._config.listener
        }

    def _fetch_request(self, end: OffsetAndEpoch) -> FetchRequest:
        partition = FetchPartition(
            partition=METADATA_PARTITION,
            current_leader_epoch=self._epoch,
            fetch_offset=end.offset,
            last_fetched_epoch=end.epoch,
            partition_max_bytes=0,
            replica_directory_id=self._directory_id,
            high_watermark=UNKNOWN_HIGH_WATERMARK if self.high_watermark is None else self.high_watermark,
        )
        return FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=ReplicaState(replica_id=self._node_id),
            max_wait_ms=self._config.fetch_max_wait_ms,
            max_bytes=self._config.fetch_max_bytes,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _fetch_snapshot_request(self, fetching: _FetchingSnapshot) -> FetchSnapshotRequest:
        snapshot_id = fetching.snapshot_id
        partition = PartitionSnapshot(
            partition=METADATA_PARTITION,
            current_leader_epoch=self._epoch,
            snapshot_id=SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
            position=fetching.position,
            replica_directory_id=self._directory_id,
        )
        return FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=self._config.fetch_snapshot_max_bytes,
            topics=[TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        )

    # -- responses -------------------------------------------------------------------------------------------------

    def request_failed(self, destination: Endpoint) -> None:
        """Handle a request without a response."""
        if destination == self._leader_endpoint:
            self._is_leader_silent = True

    def response_was_applied(self, destination: Endpoint) -> None:
        """Handle a response whose change of the replica has been made."""
        self._unexpected_errors = self._older_epochs = 0
        self._logged_errors.pop(destination, None)

    def response_was_unusable(self, destination: Endpoint, text: str) -> None:
        """Handle a response that is damaged, or none at all, as `text` describes it: the next request repeats it.

        A snapshot that was being fetched begins again.
        """
        self._fetching = None
        self._unusable(destination, text)

    def handle_response(
        self, destination: Endpoint, response: FetchResponse | FetchSnapshotResponse
    ) -> tuple[bool, Effect | None]:
        """Take in a response; return whether the next request may be sent without a pause, and a change to make.

        Raises DivergentLogError if the leader requires the removal of committed records, and ForeignClusterError.
        """
        error = code_of(response.error_code)
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._check_cluster(destination)
        if error is not ErrorCode.NONE:
            return self._unexpected(destination, error)
        if isinstance(response, FetchResponse):
            return self._handle_fetch(destination, response)
        return self._handle_fetch_snapshot(destination, response)

    def _check_cluster(self, destination: Endpoint) -> None:
        """Raise ForeignClusterError if all bootstrap servers, and no leader, have responded for another cluster.

        Kafka's brokers repeat the requests until `initial.broker.registration.timeout.ms`.
        """
        self._foreign_servers.add(destination)
        if self.leader_high_watermark is None and self._foreign_servers.issuperset(self._config.bootstrap_servers):
            raise ForeignClusterError(f"the cluster of the controllers is not {self._cluster_id} (meta.properties)")

    def _handle_fetch(self, destination: Endpoint, response: FetchResponse) -> tuple[bool, Effect | None]:
        partitions = [
            one for topic in response.responses if topic.topic_id == METADATA_TOPIC_ID for one in topic.partitions
        ]
        if len(partitions) != 1 or partitions[0].partition_index != METADATA_PARTITION:
            return self._unusable(destination, "no partition of the metadata")
        (data,) = partitions
        error = code_of(data.error_code)
        leader = data.current_leader
        endpoints = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
        before = self._fetching
        handled = self._handle_leader(destination, error, leader.leader_id, leader.leader_epoch, endpoints)
        if handled is not None:
            return handled, AbortSnapshot() if before is not None and self._fetching is None else None
        if error is not ErrorCode.NONE:
            return self._unexpected(destination, error)
        return True, self._effect_of(data)

    def _effect_of(self, data: PartitionData) -> Effect | None:
        """Return the change of a response of the leader without an error."""
        if data.high_watermark >= 0:
            self.leader_high_watermark = max(data.high_watermark, self.leader_high_watermark or 0)
        diverging, snapshot_id = data.diverging_epoch, data.snapshot_id
        if diverging.epoch >= 0:
            if self.high_watermark is not None and diverging.end_offset < self.high_watermark:
                raise DivergentLogError(
                    f"the leader requires truncation to offset {diverging.end_offset}, "
                    f"below the high watermark {self.high_watermark}"
                )
            return Truncate(OffsetAndEpoch(diverging.end_offset, diverging.epoch))
        if snapshot_id.epoch >= 0 and snapshot_id.end_offset >= 0:
            self._fetching = _FetchingSnapshot(OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch))
            logger.info("fetching snapshot %s from leader %d", self._fetching.snapshot_id, self._leader_id)
            return BeginSnapshot(self._fetching.snapshot_id)
        return Append(data.records or b"", data.high_watermark if data.high_watermark >= 0 else None)

    def _handle_fetch_snapshot(
        self, destination: Endpoint, response: FetchSnapshotResponse
    ) -> tuple[bool, Effect | None]:
        partitions = [one for topic in response.topics if topic.name == METADATA_TOPIC for one in topic.partitions]
        fetching = self._fetching
        if len(partitions) != 1 or partitions[0].index != METADATA_PARTITION or fetching is None:
            return self._unusable(destination, "no snapshot of the metadata")[0], self._abort_snapshot()
        (data,) = partitions
        error = code_of(data.error_code)
        leader = data.current_leader
        endpoints = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
        handled = self._handle_leader(destination, error, leader.leader_id, leader.leader_epoch, endpoints)
        if handled is not None:
            return handled, AbortSnapshot() if self._fetching is None else None
        if error is ErrorCode.SNAPSHOT_NOT_FOUND or data.snapshot_id.end_offset < 0 or data.snapshot_id.epoch < 0:
            # The leader has deleted it; its next response to a fetch names another one.
            logger.info("leader %d has no snapshot %s", self._leader_id, fetching.snapshot_id)
            return False, self._abort_snapshot()
        if error is not ErrorCode.NONE:
            return self._unexpected(destination, error)[0], self._abort_snapshot()
        return self._next_part(destination, fetching, data)

    def _next_part(
        self, destination: Endpoint, fetching: _FetchingSnapshot, data: ResponsePartitionSnapshot
    ) -> tuple[bool, Effect | None]:
        snapshot_id, part = OffsetAndEpoch(data.snapshot_id.end_offset, data.snapshot_id.epoch), data.unaligned_records
        position = fetching.position + len(part)
        if snapshot_id != fetching.snapshot_id or data.position != fetching.position or position > data.size:
            logger.error(
                "the controller at %s:%d returned position %d of snapshot %s instead of position %d of %s",
                *destination,
                data.position,
                snapshot_id,
                fetching.position,
                fetching.snapshot_id,
            )
            return False, self._abort_snapshot()
        fetching.position = position
        is_last = position == data.size
        if is_last:
            self._fetching = None
        return bool(part) or is_last, AppendToSnapshot(part, is_last)

    def _abort_snapshot(self) -> AbortSnapshot:
        self._fetching = None
        return AbortSnapshot()

    def _handle_leader(
        self, destination: Endpoint, error: ErrorCode, leader_id: int, epoch: int, endpoints: dict[int, Endpoint]
    ) -> bool | None:
        """Take in the leader and epoch of a response (Kafka: maybeHandleCommonResponse).

        Return None if the rest of the response is to be handled, otherwise whether the next request needs no pause.
        """
        if epoch < 0:
            return self._unusable(destination, f"{error.name} without a leader epoch: is it a controller?")[0]
        if epoch < self._epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            # The epoch of this broker is newer than the controller's: shortly after an election, or forever.
            self._older_epochs += 1
            if self._older_epochs == OLDER_EPOCHS_BEFORE_LOG:
                logger.error(
                    "the controllers have leader epoch %d, below epoch %d of the metadata log of this broker: "
                    "were they formatted again, or restored from a backup?",
                    epoch,
                    self._epoch,
                )
            self.request_failed(destination)
            return False
        if epoch > self._epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            before = (self._epoch, self._leader_endpoint)
            self._transition(leader_id, epoch, endpoints)
            if (self._epoch, self._leader_endpoint) == before:
                # A leader without a majority resigns and remains in its epoch (KIP-996). The next request is sent after
                # a pause, and to a bootstrap server: the other controllers may have elected a leader already.
                self.request_failed(destination)
                return False
            return self._leader_endpoint is not None
        if leader_id != NO_LEADER and self._leader_endpoint is None:
            self._transition(leader_id, epoch, endpoints)
            return None if error is ErrorCode.NONE else self._leader_endpoint is not None
        if error is ErrorCode.BROKER_NOT_AVAILABLE:
            return False
        return None

    def _transition(self, leader_id: int, epoch: int, endpoints: dict[int, Endpoint]) -> None:
        """Adopt a leader (Kafka: maybeTransition). An epoch has one leader, so a known leader is kept."""
        if epoch == self._epoch and self._leader_id not in (NO_LEADER, leader_id):
            return
        if (leader_id, epoch) != (self._leader_id, self._epoch):
            # The new leader may have other snapshots.
            self._fetching = None
            self._leader_endpoint = None
            self._is_leader_silent = False
            logger.info("the leader of the metadata quorum is %s in epoch %d", _leader_text(leader_id), epoch)
        self._leader_id, self._epoch = leader_id, epoch
        if leader_id in endpoints:
            self._leader_endpoint = self._voters[leader_id] = endpoints[leader_id]

    def _unexpected(self, destination: Endpoint, error: ErrorCode) -> tuple[bool, None]:
        return self._unusable(destination, error.name)

    def _unusable(self, destination: Endpoint, text: str) -> tuple[bool, None]:
        """Log a response once until the reason changes, and have the next request sent later and to another server."""
        if self._logged_errors.get(destination) != text:
            if len(self._logged_errors) >= MAX_LOGGED_ERRORS:
                self._logged_errors.clear()
            self._logged_errors[destination] = text
            logger.error("the controller at %s:%d returned %s to a fetch of the metadata", *destination, text)
        self._unexpected_errors += 1
        self.request_failed(destination)
        return False, None

    # -- progress --------------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, at most the end of the log; return whether it has changed.

        A new leader may return a lower one for a short time; committed records remain committed.
        """
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def snapshot_is_stored(self) -> None:
        """Forget the snapshot of the last BeginSnapshot: it need not be fetched."""
        self._fetching = None


def parse_bootstrap_servers(values: Sequence[str]) -> tuple[Endpoint, ...]:
    """Parse `controller.quorum.bootstrap.servers` (host:port) or `controller.quorum.voters` (id@host:port).

    Raises ValueError.
    """
    found = []
    for value in values:
        host, colon, port = value.rpartition("@")[2].rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise ValueError(f"{value!r} must be host:port or id@host:port")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)


def _leader_text(leader_id: int) -> str:
    return "unknown" if leader_id == NO_LEADER else str(leader_id)
