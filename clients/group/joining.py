"""Entering a generation: JoinGroup, the assignment if this member is the leader, SyncGroup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.codec import decode_versioned, encode_versioned
from ...protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..errors import code_of
from .assignor import NO_RACKS, Assignor, Members, MemberSubscription, PartitionRacks
from .coordinator_link import CoordinatorLink
from .membership import Generation, GroupMembership
from .settings import GroupSettings
from .sticky_user_data import partitions_in, topic_partitions

PROTOCOL_TYPE = "consumer"
_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 0
_FIRST_JOIN_WITH_INSTANCES = 5
_JOIN_LAPSE_MS = 5_000
"""Time after the rebalance timeout in which the response to JoinGroup may arrive."""
_REASON_CHARACTERS = 255


class Joined(NamedTuple):
    """The result of a join: the kind of the member, and its assignment."""

    assignor: Assignor
    topics: frozenset[str]
    """The subscription that was sent, which may have changed since."""
    partitions: list[TopicPartition]
    group_counts: dict[str, int] | None
    """The leader's assignment: partitions by topic; None for other members."""


class Joiner:
    """Sends the requests of a member to join a group."""

    def __init__(
        self,
        client: Client,
        link: CoordinatorLink,
        member: GroupMembership,
        *,
        settings: GroupSettings,
        assignors: Mapping[str, Assignor],
    ) -> None:
        self._client = client
        self._link = link
        self._member = member
        self._settings = settings
        self._assignors = assignors
        self.group_topics: frozenset[str] = frozenset()
        """Topics of all members, if this member is the leader and watches their partitions."""

    async def join(self, topics: frozenset[str], owned: Iterable[TopicPartition]) -> Joined:
        """Join and sync once.

        Raises KafkaError; the membership then contains whether the group still has this member, and whether the error
        is fatal.
        """
        response = await self._join(topics, list(owned))
        assignor = self._assignors.get(response.protocol_name or "")
        if assignor is None:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"unknown assignor {response.protocol_name!r}")
        counts = None
        self.group_topics = frozenset()
        division: list[SyncGroupRequestAssignment] = []
        if response.leader == response.member_id and not response.skip_assignment:
            members = _members(response)
            counts = await self._count_partitions(members)
            division = _division(assignor.assign(counts, members, self._partition_racks(counts, members)))
        elif response.leader == response.member_id:
            counts = await self._count_partitions(_members(response))
        assignment = await self._sync(assignor, division)
        given = decode_versioned(ConsumerProtocolAssignment, assignment, later_is_newest=True)
        partitions = list(partitions_in(given.assigned_partitions))
        return Joined(assignor, topics, partitions, counts)

    async def _join(self, topics: frozenset[str], owned: list[TopicPartition]) -> JoinGroupResponse:
        settings, member = self._settings, self._member
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._metadata(assignor, topics, owned))
                for name, assignor in self._assignors.items()
            ],
            reason=member.begin_join()[:_REASON_CHARACTERS],
        )
        while True:
            request.member_id = member.generation.member_id
            response = await self._link.send(
                request,
                lowest=0 if settings.group_instance_id is None else _FIRST_JOIN_WITH_INSTANCES,
                timeout_ms=max(settings.max_poll_interval_ms, settings.session_timeout_ms) + _JOIN_LAPSE_MS,
            )
            assert isinstance(response, JoinGroupResponse)
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            # From now on the member uses the coordinator's id, so that a lost response leaves no unused member in the
            # group.
            member.generation = Generation(member.generation.number, response.member_id)
        self._refused(code_of(response.error_code), "JoinGroup")
        member.joined(Generation(response.generation_id, response.member_id))
        return response

    def _metadata(self, assignor: Assignor, topics: frozenset[str], owned: list[TopicPartition]) -> bytes:
        subscription = ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=assignor.user_data(),
            owned_partitions=topic_partitions(owned),
            generation_id=self._member.generation.number,
            rack_id=self._settings.rack or None,
        )
        return encode_versioned(subscription, _SUBSCRIPTION_VERSION)

    async def _count_partitions(self, members: Members) -> dict[str, int]:
        """Return the number of partitions of each subscribed topic; missing topics are omitted."""
        topics = {topic for member in members.values() for topic in member.topics}
        known = self._client.cluster.topics
        self.group_topics = frozenset(topics)
        if topics - known.keys():
            await self._client.refresh_metadata()
        return {topic: len(known[topic].partitions) if topic in known else 0 for topic in topics}

    def _partition_racks(self, topics: Iterable[str], members: Members) -> PartitionRacks:
        """Return the racks of replicas, if a member has a rack."""
        if not any(member.rack for member in members.values()):
            return NO_RACKS
        brokers, known = self._client.cluster.brokers, self._client.cluster.topics
        return {
            TopicPartition(topic, partition.index): frozenset(
                broker.rack for node in partition.replicas if (broker := brokers.get(node)) and broker.rack
            )
            for topic in topics
            if topic in known
            for partition in known[topic].partitions.values()
        }

    async def _sync(self, assignor: Assignor, division: list[SyncGroupRequestAssignment]) -> bytes:
        generation = self._member.generation
        request = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=generation.number,
            member_id=generation.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor.name,
            assignments=division,
        )
        timeout_ms = max(self._settings.max_poll_interval_ms, self._settings.session_timeout_ms) + _JOIN_LAPSE_MS
        response = await self._link.send(request, timeout_ms=timeout_ms)
        assert isinstance(response, SyncGroupResponse)
        self._refused(code_of(response.error_code), "SyncGroup")
        return response.assignment

    def _refused(self, code: ErrorCode, what: str) -> None:
        """Apply an error to the membership, and raise it."""
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member.expelled(f"{what} failed with {code.name}")
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._member.expelled(f"{what} failed with {code.name}", keep_member_id=True)
        self._link.check(code, what)


def _members(response: JoinGroupResponse) -> dict[str, MemberSubscription]:
    return {m.member_id: read_subscription(m.metadata, m.group_instance_id) for m in response.members}


def read_subscription(metadata: bytes, group_instance_id: str | None = None) -> MemberSubscription:
    """Decode the subscription in a member's JoinGroup. Raises KafkaError for invalid bytes."""
    try:
        said = decode_versioned(ConsumerProtocolSubscription, metadata, later_is_newest=True)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's subscription: {error}") from error
    return MemberSubscription(
        frozenset(said.topics),
        partitions_in(said.owned_partitions),
        said.generation_id,
        said.user_data,
        group_instance_id,
        said.rack_id,
    )


def _division(given: Mapping[str, list[TopicPartition]]) -> list[SyncGroupRequestAssignment]:
    return [
        SyncGroupRequestAssignment(
            member_id=member_id,
            assignment=encode_versioned(
                ConsumerProtocolAssignment(assigned_partitions=topic_partitions(partitions)), _ASSIGNMENT_VERSION
            ),
        )
        for member_id, partitions in given.items()
    ]
