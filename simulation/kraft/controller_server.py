"""The listener of a modelled controller: frames in, responses out, in the order of the requests of a connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ...protocol.apis import ApiKey
from ...protocol.codec import decode_request, encode_response
from ...protocol.errors import ErrorCode
from ...protocol.headers import RequestHeader, decode_request_header, encode_response_header
from ...protocol.messages import fetch, fetch_snapshot
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ...protocol.messages.describe_cluster import DescribeClusterResponse
from ...storage.metadata_snapshot import OffsetAndEpoch
from .active_controller import NotLeaderError
from .quorum import CLUSTER_ID, CONTROLLER_PORT, NO_LEADER

if TYPE_CHECKING:
    from .quorum import ModelledController, Quorum, Term

SERVED = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.FETCH: (17, 18),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.BROKER_REGISTRATION: (0, 4),
    ApiKey.BROKER_HEARTBEAT: (0, 2),
    ApiKey.ALTER_PARTITION: (2, 3),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.ENVELOPE: (0, 0),
}


async def serve(quorum: Quorum, controller: ModelledController) -> None:
    """Listen, as a program of the controller's machine."""
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: ControllerProtocol(quorum, controller), controller.host, CONTROLLER_PORT)


class ControllerProtocol(asyncio.Protocol):
    """One connection. Its requests are executed one after another."""

    def __init__(self, quorum: Quorum, controller: ModelledController) -> None:
        self._quorum = quorum
        self._controller = controller
        self._transport: Any = None
        self._bytes = bytearray()
        self._frames: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= 4:
            size = int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < 4 + size:
                break
            self._frames.append(bytes(self._bytes[4 : 4 + size]))
            del self._bytes[: 4 + size]
        if self._frames and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._frames:
            frame = self._frames.popleft()
            header, position = decode_request_header(frame, 0, len(frame))
            response = await self._answer(header, frame, position)
            version = header.api_version
            if header.api_key == ApiKey.API_VERSIONS and version > SERVED[ApiKey.API_VERSIONS][1]:
                version = 0
            front = encode_response_header(header.api_key, version, header.correlation_id)
            body = front + b"".join(bytes(part) for part in encode_response(response, version))
            self._transport.write(len(body).to_bytes(4, "big") + body)

    async def _answer(self, header: RequestHeader, frame: bytes, position: int) -> Any:
        key = ApiKey(header.api_key)
        if key is ApiKey.API_VERSIONS:
            error = ErrorCode.NONE if header.api_version <= SERVED[key][1] else ErrorCode.UNSUPPORTED_VERSION
            return self._api_versions(error)
        request = decode_request(key, header.api_version, frame, position, len(frame))
        match key:
            case ApiKey.FETCH:
                return await self._fetch(request)
            case ApiKey.FETCH_SNAPSHOT:
                return self._fetch_snapshot(request)
            case ApiKey.DESCRIBE_CLUSTER:
                return DescribeClusterResponse(cluster_id=CLUSTER_ID, endpoint_type=request.endpoint_type)
        response = await self._execute(request)
        return response if response is not None else not_controller(key, request)

    async def _execute(self, request: Any) -> Any:
        """Return the response of the active controller; None if this controller is not active."""
        term = self._controller.term
        if term is None or term.has_resigned:
            return None
        for heed in self._quorum.on_request:
            heed(request)
        try:
            return await term.controller.handle(request)
        except NotLeaderError:
            return None

    def _api_versions(self, error: ErrorCode) -> ApiVersionsResponse:
        versions = dict(SERVED)
        versions[ApiKey.FETCH] = (17, self._quorum.config.highest_fetch)
        return ApiVersionsResponse(
            error_code=error,
            api_keys=[
                ApiVersion(api_key=key, min_version=lowest, max_version=highest)
                for key, (lowest, highest) in versions.items()
            ],
        )

    # -- observers ---------------------------------------------------------------------------------------------------

    def _leader_error(self, epoch: int) -> tuple[Term | None, ErrorCode]:
        """Kafka: KafkaRaftClient.validateLeaderOnlyRequest."""
        controller = self._controller
        if epoch < controller.known[1]:
            return None, ErrorCode.FENCED_LEADER_EPOCH
        if epoch > controller.known[1]:
            return None, ErrorCode.UNKNOWN_LEADER_EPOCH
        term = controller.term
        if term is None or term.has_resigned:
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        return term, ErrorCode.NONE

    async def _fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        if request.cluster_id not in (None, CLUSTER_ID):
            return fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        data = self._read(wanted, request.max_bytes)
        term = self._controller.term
        if term is not None and not data.error_code and self._may_wait(term, wanted, data):
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await term.changed.wait()
            except TimeoutError:
                pass
            data = self._read(wanted, request.max_bytes)
        return fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic_id=topic.topic_id, partitions=[data])],
            node_endpoints=[
                fetch.NodeEndpoint(node_id=one, host=host, port=port) for one, host, port in self._leader()
            ],
        )

    @staticmethod
    def _may_wait(term: Term, wanted: fetch.FetchPartition, data: fetch.PartitionData) -> bool:
        is_behind = wanted.high_watermark < term.high_watermark
        return not (data.records or is_behind or data.diverging_epoch.epoch >= 0 or data.snapshot_id.epoch >= 0)

    def _leader(self) -> list[tuple[int, str, int]]:
        leader = self._controller.known[0]
        if leader == NO_LEADER:
            return []
        return [(leader, self._quorum.controllers[leader].host, CONTROLLER_PORT)]

    def _read(self, wanted: fetch.FetchPartition, max_bytes: int) -> fetch.PartitionData:
        controller, quorum = self._controller, self._quorum
        term, error = self._leader_error(wanted.current_leader_epoch)
        leader = fetch.LeaderIdAndEpoch(leader_id=controller.known[0], leader_epoch=controller.known[1])
        data = fetch.PartitionData(
            partition_index=0, error_code=error, high_watermark=-1, current_leader=leader, records=b""
        )
        if term is None:
            return data
        data.high_watermark = term.high_watermark
        data.log_start_offset = controller.log_start
        offset, epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        latest, earliest = controller.latest_snapshot, controller.earliest_snapshot
        if (
            latest is not None
            and earliest is not None
            and _needs_snapshot(offset, epoch, controller.log_start, earliest)
        ):
            data.snapshot_id = fetch.SnapshotId(end_offset=latest.offset, epoch=latest.epoch)
            return data
        if offset > 0 or controller.log_start > 0:
            start = earliest if controller.log_start > 0 else None
            end = term.end_offset_for_epoch(epoch, start)
            if end.epoch != epoch or end.offset < offset:
                data.diverging_epoch = fetch.EpochEndOffset(epoch=end.epoch, end_offset=end.offset)
                return data
        data.records = term.read(offset, min(max_bytes, quorum.config.fetch_bytes))
        return data

    def _fetch_snapshot(self, request: fetch_snapshot.FetchSnapshotRequest) -> fetch_snapshot.FetchSnapshotResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        controller, quorum = self._controller, self._quorum
        _, error = self._leader_error(wanted.current_leader_epoch)
        content = controller.snapshots.get(OffsetAndEpoch(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch))
        if error is ErrorCode.NONE and content is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        data = fetch_snapshot.ResponsePartitionSnapshot(
            error_code=error,
            snapshot_id=wanted.snapshot_id,
            current_leader=fetch_snapshot.LeaderIdAndEpoch(
                leader_id=controller.known[0], leader_epoch=controller.known[1]
            ),
        )
        if error is ErrorCode.NONE and content is not None:
            length = min(request.max_bytes, quorum.config.fetch_bytes)
            data.size, data.position = len(content), wanted.position
            data.unaligned_records = content[wanted.position : wanted.position + length]
        return fetch_snapshot.FetchSnapshotResponse(
            topics=[fetch_snapshot.ResponseTopicSnapshot(name=topic.name, partitions=[data])],
            node_endpoints=[
                fetch_snapshot.NodeEndpoint(node_id=one, host=host, port=port) for one, host, port in self._leader()
            ],
        )


def _needs_snapshot(offset: int, epoch: int, start: int, earliest: OffsetAndEpoch) -> bool:
    """Kafka: ReplicatedLog.validateOffsetAndEpoch, and the first fetch of an empty replica."""
    if offset == 0:
        return True
    return offset < start or (offset == start and epoch != earliest.epoch) or epoch < earliest.epoch


def not_controller(key: ApiKey, request: Any) -> Any:
    """Return the response of a controller that is not active."""
    from ...protocol.apis import API_MESSAGES

    if key is ApiKey.CREATE_TOPICS:
        from ...protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse

        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=one.name, error_code=ErrorCode.NOT_CONTROLLER) for one in request.topics]
        )
    response: Any = API_MESSAGES[key].response
    return response(error_code=ErrorCode.NOT_CONTROLLER)
