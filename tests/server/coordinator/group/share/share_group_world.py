"""A share group manager over a log in memory, and a share coordinator in memory that can fail or wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
)
from barnabas.protocol.messages.delete_share_group_state import PartitionResult as Deleted
from barnabas.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
)
from barnabas.protocol.messages.initialize_share_group_state import PartitionResult as Initialized
from barnabas.protocol.messages.read_share_group_state_summary import PartitionResult as Summary
from barnabas.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from barnabas.server.coordinator.coordinator_log import CoordinatorRecord
from barnabas.server.coordinator.group.consumer_heartbeat import HeartbeatResult
from barnabas.server.coordinator.group.group import Group
from barnabas.server.coordinator.group.group_loader import GroupLoader
from barnabas.server.coordinator.group.group_records import new_group_tombstones
from barnabas.server.coordinator.group.share.share_group import ShareGroup
from barnabas.server.coordinator.group.share.share_group_heartbeat import ShareHeartbeat
from barnabas.server.coordinator.group.share.share_group_manager import ShareGroupManager
from barnabas.server.metadata.metadata_cache import MetadataCache, PartitionImage, TopicImage

GROUP = "g"


def topic_id(name: str) -> UUID:
    return UUID(int=sum(name.encode()) << 64 | 1)


def topic_image(name: str, count: int, known: UUID | None = None) -> TopicImage:
    partitions = {index: PartitionImage(index, 0, 0, 0, (0,), (0,)) for index in range(count)}
    return TopicImage(name, known or topic_id(name), partitions)


class MemoryPersister:
    """Share state in memory. `error` is the result of all requests; while `gate` is closed they wait."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, UUID, int], tuple[int, int]] = {}
        """State epoch and start offset by share partition."""
        self.error = ErrorCode.NONE
        self.gate = asyncio.Event()
        self.gate.set()
        self.requests: list[Any] = []

    async def initialize_state(self, request: InitializeShareGroupStateRequest) -> InitializeShareGroupStateResponse:
        self.requests.append(request)
        await self.gate.wait()
        response = InitializeShareGroupStateResponse()
        for topic in request.topics:
            for one in topic.partitions:
                if not self.error:
                    self.states[request.group_id, topic.topic_id, one.partition] = one.state_epoch, one.start_offset
            results = [Initialized(partition=one.partition, error_code=self.error) for one in topic.partitions]
            response.results.append(InitializeStateResult(topic_id=topic.topic_id, partitions=results))
        return response

    async def delete_state(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
        self.requests.append(request)
        await self.gate.wait()
        response = DeleteShareGroupStateResponse()
        for topic in request.topics:
            for one in topic.partitions:
                if not self.error:
                    self.states.pop((request.group_id, topic.topic_id, one.partition), None)
            results = [Deleted(partition=one.partition, error_code=self.error) for one in topic.partitions]
            response.results.append(DeleteStateResult(topic_id=topic.topic_id, partitions=results))
        return response

    async def read_state_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> ReadShareGroupStateSummaryResponse:
        await self.gate.wait()
        response = ReadShareGroupStateSummaryResponse()
        for topic in request.topics:
            results = []
            for one in topic.partitions:
                epoch, offset = self.states.get((request.group_id, topic.topic_id, one.partition), (0, -1))
                results.append(
                    Summary(
                        partition=one.partition,
                        error_code=self.error,
                        state_epoch=epoch,
                        start_offset=offset,
                        delivery_complete_count=0,
                    )
                )
            response.results.append(ReadStateSummaryResult(topic_id=topic.topic_id, partitions=results))
        return response


class MemoryGroupManager:
    """The groups and the last record of each key. `is_failing` refuses appends; `is_slow` delays their outcome."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.log: dict[bytes, bytes] = {}
        self.is_failing = False
        self.is_slow = False
        self.waiting: list[Callable[[ErrorCode], None]] = []

    def find_group(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def get_group(self, group_id: str) -> Group:
        if group_id not in self.groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self.groups[group_id]

    def check_creation_limit(self, client: object) -> None:
        """There is none."""

    def add_group(self, group: Group, client: object) -> None:
        self.groups[group.group_id] = group

    def append(self, group_id: str, records: Iterable[CoordinatorRecord], done: Callable[[ErrorCode], None]) -> bool:
        if self.is_failing:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        for key, value in records:
            if value is None:
                self.log.pop(key, None)
            else:
                self.log[key] = value
        if self.is_slow:
            self.waiting.append(done)
        else:
            done(ErrorCode.NONE)
        return True

    def delete_group(self, group_id: str, reply: Callable[[ErrorCode], None]) -> None:
        group = self.groups.get(group_id)
        if group is None:
            reply(ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            reply(ErrorCode.NON_EMPTY_GROUP)
        else:
            self.append(group_id, new_group_tombstones(group), reply)
            del self.groups[group_id]


class ImmediateWork:
    """Sliced work that runs to its end immediately."""

    def run(self, steps: Any, done: Callable[[Any, Exception | None], None]) -> None:
        for _ in steps:
            pass
        done(None, None)


class ShareGroupWorld:
    """The manager with topics `t` (2 partitions) and `u` (3 partitions). Make it inside a running loop."""

    def __init__(self, **settings: int) -> None:
        self.now_ms = 1_000_000
        self.metadata = MetadataCache("cluster")
        self.metadata.put_topics([topic_image("t", 2), topic_image("u", 3)])
        self.groups = MemoryGroupManager()
        self.persister = MemoryPersister()
        self.config = SimpleNamespace(
            **{
                "group_share_max_size": 200,
                "group_share_heartbeat_interval_ms": 5000,
                "group_share_session_timeout_ms": 45_000,
                "group_share_assignment_interval_ms": 0,
                "group_share_initialize_retry_interval_ms": 30_000,
                "offsets_commit_timeout_ms": 5000,
                **settings,
            }
        )
        self.own: dict[str, int] = {}
        self.manager = self._manager()
        self.metadata.on_topics_removed.append(
            lambda names: self.manager.state_manager.on_topics_deleted(frozenset(names), list(self.groups.groups))
        )

    def _manager(self) -> ShareGroupManager:
        def group_number(_group_id: str, name: str) -> int:
            return self.own.get(name, getattr(self.config, f"group_{name.replace('.', '_')}"))

        settings: Any = SimpleNamespace(group_number=group_number)
        ports: Any = SimpleNamespace(now_ms=lambda: self.now_ms)
        config: Any = self.config
        groups: Any = self.groups
        work: Any = ImmediateWork()
        loop = asyncio.get_running_loop()
        return ShareGroupManager(
            config, settings, groups, self.metadata, self.persister, ports, loop, work, lambda: True
        )

    @property
    def group(self) -> ShareGroup:
        group = self.groups.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def restart(self) -> None:
        """Load the groups from the log into a new manager, as another broker does."""
        self.manager.close()
        for former in list(self.groups.groups.values()):
            assert isinstance(former, ShareGroup)
            self.manager.on_group_unloaded(former, ErrorCode.NOT_COORDINATOR)
        self.groups.groups = self.loaded()
        self.manager = self._manager()
        for group in self.groups.groups.values():
            assert isinstance(group, ShareGroup)
            self.manager.on_group_loaded(group)

    def loaded(self) -> dict[str, Group]:
        loader = GroupLoader(self.now_ms)
        for key, value in self.groups.log.items():
            loader.replay(key, value)
        return loader.groups()

    async def beat(
        self,
        member_id: str,
        epoch: int,
        *topics: str,
        rack_id: str | None = None,
        group_id: str = GROUP,
    ) -> HeartbeatResult:
        """A heartbeat; without topics the subscription is the same. Returns after the effects of the response."""
        future: asyncio.Future[HeartbeatResult] = asyncio.get_running_loop().create_future()
        names = frozenset(topics) if topics else None
        self.manager.share_group_heartbeat(
            ShareHeartbeat(group_id, member_id, epoch, rack_id, names, "client", "/host"), future.set_result
        )
        result = await future
        await self.settle()
        return result

    async def settle(self) -> None:
        """Let callbacks and tasks run that wait for no time."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def joined(self, member_id: str, *topics: str) -> int:
        """Join and get the initialized partitions; returns the member's epoch."""
        result = await self.beat(member_id, 0, *(topics or ("t",)))
        result = await self.beat(member_id, result.epoch)
        assert result.error is ErrorCode.NONE
        return result.epoch

    def assigned(self, member_id: str) -> dict[str, list[int]]:
        names = {
            self.metadata.topic_name(one) or str(one): parts
            for one, parts in self.group.members[member_id].assigned.items()
        }
        return {name: sorted(partitions) for name, partitions in names.items()}
