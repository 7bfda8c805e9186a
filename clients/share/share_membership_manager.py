"""Membership in a share group: heartbeats to the group coordinator, and the partitions that it assigns (KIP-932).

A share group has no rebalance that a member could observe: a new assignment only changes the partitions to fetch from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...common.room_logger import room_logger
from ...common.uuid_text import uuid_text
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..group.consumer_heartbeats import JOIN_EPOCH, LEAVE_EPOCH, ConsumerHeartbeats
from ..group.coordinator_link import CoordinatorLink
from ..group.membership import Generation, GroupMembership
from ..group.settings import GroupSettings
from .acknowledgements import TopicIdPartition

logger = room_logger("clients.share")

_NOT_SUPPORTED = (
    "the cluster does not support share groups: they require Kafka 4.1 with ShareGroupHeartbeat version 1, and the "
    "feature share.version 1"
)


class ShareHeartbeats(ConsumerHeartbeats):
    """Heartbeats of a share group: like heartbeats of the consumer protocol, without owned partitions."""

    _api = "ShareGroupHeartbeat"

    def _request(self, sender: Generation, topics: list[str]) -> ShareGroupHeartbeatRequest:
        """Return the changed fields; all fields when joining, and after a heartbeat with an unknown result."""
        request = ShareGroupHeartbeatRequest(
            group_id=self._settings.group_id, member_id=sender.member_id, member_epoch=sender.number
        )
        if self._told_topics is None:
            request.rack_id = self._settings.rack or None
        if self._told_topics != topics:
            request.subscribed_topic_names = topics
        return request

    def _take_in_failure(self, error: KafkaError) -> None:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            error = KafkaError(error.code, _NOT_SUPPORTED)
        super()._take_in_failure(error)

    def _leave_request(self, left: Generation) -> Any:
        return ShareGroupHeartbeatRequest(
            group_id=self._settings.group_id, member_id=left.member_id, member_epoch=LEAVE_EPOCH
        )


class ShareMembershipManager:
    """The membership of one share consumer, used between `start()` and `close()` on its event loop."""

    def __init__(self, client: Client, settings: GroupSettings, changed: Callable[[], None]) -> None:
        self._client = client
        self._group_id = settings.group_id
        self.member_id = uuid_text(client.new_id())
        """Chosen by the client, and kept if the group removes the member."""
        self.topics: frozenset[str] = frozenset()
        self._assigned: dict[TopicPartition, TopicIdPartition] = {}
        self._changed = changed
        self._member = GroupMembership(settings.group_id)
        self._link = CoordinatorLink(client, settings.group_id)
        self.heartbeats = ShareHeartbeats(
            client, self._link, self._member, settings, changed, topics=lambda: self.topics, owned=lambda: ()
        )

    @property
    def assigned(self) -> Mapping[TopicPartition, TopicIdPartition]:
        """Return the partitions to fetch from; none while this client is not a member of the group."""
        return {} if self._member.is_outside else self._assigned

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription. The next read joins the group if necessary."""
        self.topics = frozenset(topics)
        if self._member.is_outside:
            self._member.request_rejoin("the subscription changed")
        else:
            self.heartbeats.tell()
        self._client.refresh_soon()
        self._changed()

    def poll(self) -> None:
        """Join if necessary, and apply a new assignment. Raises KafkaError for errors that no retry resolves."""
        self._member.raise_fatal()
        if not self.topics:
            return
        if self._member.is_outside:
            self._join()
        elif self._member.rejoin_reason is not None:
            # A rejected member continues with its identity; if the group has removed it, the next heartbeat reports
            # that.
            self._member.rejoin_reason = None
            self._member.synced()
            self.heartbeats.tell()
        self._take_target()

    async def leave(self, reason: str) -> None:
        """Leave the group."""
        self.topics = frozenset()
        self._assigned = {}
        await self.heartbeats.leave(reason)

    def _join(self) -> None:
        member = self._member
        member.begin_join()
        self._assigned = {}
        member.generation = Generation(JOIN_EPOCH, self.member_id)
        member.synced()
        self.heartbeats.begin()

    def _take_target(self) -> None:
        """Apply the coordinator's assignment, once metadata has the names of all its topics."""
        target = self.heartbeats.target
        if target is None:
            return
        cluster = self._client.cluster
        named = [(topic_id, cluster.topic_name(topic_id), index) for topic_id, index in target]
        if any(name is None for _, name, _ in named):
            self._client.refresh_soon()
            return
        self._assigned = {
            TopicPartition(name, index): TopicIdPartition(topic_id, name, index)
            for topic_id, name, index in named
            if name is not None
        }
        self.heartbeats.taken(target)
        self._changed()
        logger.info("group %s: %d partitions are assigned", self._group_id, len(self._assigned))
