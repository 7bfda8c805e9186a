"""Changes of a metadata image reach the parts of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.server.handled import SingleSteps
from tests.server.image.metadata_history import image_after

from barnabas.protocol import metadata_records as r
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.apis.handlers import describe_topic_partitions, metadata
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.image.metadata_batch_loader import Manifest
from barnabas.server.image.metadata_delta import MetadataDelta
from barnabas.server.image.metadata_image import EMPTY_IMAGE, MetadataImage
from barnabas.server.kraft.broker_metadata_publisher import BrokerMetadataPublisher
from barnabas.server.kraft.image_config_store import ImageConfigStore
from barnabas.server.kraft.image_features import ImageFeatures
from barnabas.server.kraft.image_topics import UNASSIGNED_DIRECTORY
from barnabas.server.kraft.published_image import PublishedImage
from barnabas.server.metadata.metadata_cache import MetadataCache
from barnabas.server.replication.leader_and_isr import LeaderAndIsrState
from barnabas.server.replication.replica_manager import ROLES_PER_TURN
from barnabas.server.replication.replication import Replication
from barnabas.server.runtime.loop_sharing import ITEMS_PER_TURN, TimeBudget
from barnabas.server.runtime.ports import no_time
from barnabas.storage.errors import LogDirFailedError

BROKER_ID, OTHER = 2, 1
TOPIC_ID, NEXT_TOPIC_ID = UUID(int=1000), UUID(int=1001)
DIRECTORY = UUID(int=2000)


class Parts:
    """The replica manager, quotas and authorizer of a broker, which note what is applied to them."""

    def __init__(self) -> None:
        self.applied: list[Any] = []
        self.replicas: dict[tuple[str, int], Any] = {}
        self.refused: set[TopicPartition] = set()
        self.failing: set[TopicPartition] = set()
        self.is_resolved = asyncio.Event()
        self.are_logs_prepared, self.are_replicas_stopped = asyncio.Event(), asyncio.Event()
        self.are_logs_prepared.set()
        self.are_replicas_stopped.set()
        self.is_waiting = asyncio.Event()
        self.followers: set[int] = set()
        self.elections = 0
        self.is_quota_failing = self.lacks_log_dirs = False
        self.online_directories: set[UUID] = set()
        self.new: set[TopicPartition] = set()
        self.acls: dict[str, set[str]] = {}
        self.metadata = MetadataCache("cluster")
        self.dynamic_config = DynamicConfig(BrokerConfig({"process.roles": "broker", "node.id": str(BROKER_ID)}))
        self.published = PublishedImage()
        self.publisher = BrokerMetadataPublisher(
            BROKER_ID,
            self.published,
            dynamic_config=self.dynamic_config,
            config_store=ImageConfigStore(self.published),
            features=ImageFeatures(self.published),
            quotas=cast(Any, self),
            acls=cast(Any, self),
            metadata=self.metadata,
            replica_manager=cast(Any, self),
            offline=(),
            lacks_log_dirs=lambda: self.lacks_log_dirs,
            is_directory_online=lambda directory: directory in self.online_directories,
            pause_cleaning=lambda _: nullcontext(),  # type: ignore[arg-type,return-value]
        )

    async def publish(self, *records: Any) -> list[Any]:
        """Publish the changes of these records, and return what was applied."""
        before, is_first = self.published.image, not self.publisher.has_published.is_set()
        image: MetadataImage = await image_after(list(records), before)
        delta = await MetadataDelta.between(before, image)
        self.applied = []
        await self.publisher.on_metadata_update(delta, image, Manifest(image.provenance, is_first, 1, 1))
        return self.applied

    # The quotas and the authorizer.

    async def changed(self, entity: Mapping[str, str | None], limits: Mapping[str, float]) -> None:
        if entity.get("ip") == "slow.example":
            await self.is_resolved.wait()
        if self.is_quota_failing:
            raise ValueError("a quota that cannot be applied")
        self.applied.append((dict(entity), dict(limits)))

    def replace(self, pattern: Any, entries: Iterable[Any]) -> None:
        self.acls[pattern.name] = {entry.principal for entry in entries}

    # The replica manager.

    def get_partition(self, topic: str, index: int) -> Any:
        return self.replicas.get((topic, index))

    def new_role_budget(self) -> TimeBudget:
        return TimeBudget(no_time, items=ROLES_PER_TURN)

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        self.is_waiting.set()
        await self.are_logs_prepared.wait()

    def become_leader(self, state: LeaderAndIsrState) -> None:
        self._become("leader", state)

    def become_follower(self, state: LeaderAndIsrState) -> None:
        self._become("follower", state)

    def on_leaders_elected(self, followers: Iterable[int]) -> None:
        self.elections += 1
        self.followers = set(followers)

    def partition_error(self, error: Exception, topic: str, index: int) -> KafkaError:
        self.applied.append(("failed", f"{topic}-{index}"))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    async def shrink_isrs(self) -> None:
        self.applied.append("shrink")

    def _become(self, role: str, state: LeaderAndIsrState) -> None:
        if state.topic_partition in self.failing:
            raise LogDirFailedError("/disk", OSError(5, "the disk failed"))
        if state.topic_partition in self.refused:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        retention_ms = self.dynamic_config.topic_log_config(state.topic_partition.topic).retention_ms
        self.applied.append((role, str(state.topic_partition), state.partition_epoch, state.isr, retention_ms))
        if state.is_new:
            self.new.add(state.topic_partition)
        self.replicas[state.topic_partition] = SimpleNamespace(topic_id=state.topic_id)

    async def stop_replicas(self, partitions: Sequence[TopicPartition], *, delete: bool) -> dict[Any, ErrorCode]:
        self.is_waiting.set()
        await self.are_replicas_stopped.wait()
        self.applied += [("delete" if delete else "stop", str(one)) for one in partitions]
        for one in partitions:
            self.replicas.pop(one, None)
        return dict.fromkeys(partitions, ErrorCode.NONE)


def broker(broker_id: int, *, fenced: bool = False) -> r.RegisterBrokerRecord:
    endpoint = r.BrokerEndpoint(name="PLAINTEXT", host="host", port=9000 + broker_id, security_protocol=0)
    return r.RegisterBrokerRecord(
        broker_id=broker_id, broker_epoch=10 * broker_id, end_points=[endpoint], fenced=fenced, log_dirs=[DIRECTORY]
    )


def partition(index: int, leader: int, topic_id: UUID = TOPIC_ID, **others: Any) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[OTHER, BROKER_ID],
        leader=leader,
        leader_epoch=0,
        **{"directories": [DIRECTORY, DIRECTORY], "isr": [OTHER, BROKER_ID], "partition_epoch": 0, **others},
    )


RETENTION = r.ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", name="retention.ms", value="1234")
START = [
    broker(OTHER),
    broker(BROKER_ID, fenced=True),
    r.TopicRecord(name="t", topic_id=TOPIC_ID),
    partition(0, BROKER_ID),
    partition(1, OTHER),
    RETENTION,
]


async def test_new_replicas_have_the_settings_of_their_topic_and_the_cache_has_all_partitions() -> None:
    parts = Parts()
    applied = await parts.publish(*START)
    isr = (OTHER, BROKER_ID)
    assert applied == [("leader", "t-0", 0, isr, 1234), ("follower", "t-1", 0, isr, 1234)]
    assert parts.followers == {OTHER}
    assert sorted(parts.metadata.brokers) == [OTHER]
    assert sorted(parts.metadata.fenced_brokers) == [BROKER_ID]
    topic = parts.metadata.topic("t")
    assert topic is not None
    assert {index: one.leader for index, one in topic.partitions.items()} == {0: BROKER_ID, 1: OTHER}
    assert await parts.publish(r.UnfenceBrokerRecord(id=BROKER_ID, epoch=10 * BROKER_ID)) == []
    assert sorted(parts.metadata.brokers) == [OTHER, BROKER_ID]


async def metadata_response(parts: Parts, names: list[str] | None = None) -> MetadataResponse:
    """Return the Metadata response of the broker; all topics by default. Each topic takes a turn of the loop."""
    request = MetadataRequest(topics=None if names is None else [MetadataRequestTopic(name=name) for name in names])
    return await metadata.handle(
        client_context(),
        request,
        config=cast(Any, SimpleNamespace(auto_create_topics_enable=False)),
        controller=cast(Any, None),
        metadata_cache=parts.metadata,
        sliced_work=cast(Any, SingleSteps()),
    )


def client_context() -> Any:
    listener = SimpleNamespace(name="PLAINTEXT")
    return SimpleNamespace(
        api_version=12, listener=listener, denied=(), has_authorizer=False, is_authorized=lambda *_: True
    )


async def test_clients_see_a_topic_before_its_replicas_are_created() -> None:
    parts = Parts()
    await parts.publish(broker(OTHER), broker(BROKER_ID))
    parts.are_logs_prepared.clear()
    publication = asyncio.create_task(parts.publish(*START[2:]))
    async with asyncio.timeout(30):
        await parts.is_waiting.wait()
        (topic,) = (await metadata_response(parts, ["t"])).topics
        assert topic.error_code == ErrorCode.NONE
        assert [one.leader_id for one in topic.partitions] == [BROKER_ID, OTHER]
        assert parts.replicas == {}
        parts.are_logs_prepared.set()
        await publication
    assert set(parts.replicas) == {("t", 0), ("t", 1)}


async def test_a_topic_that_was_created_again_is_visible_when_its_former_replicas_are_deleted() -> None:
    """The name and the id of the new topic must not lead requests to the log of the former one."""
    parts = Parts()
    await parts.publish(*START)
    removed: list[Any] = []
    parts.metadata.on_topics_removed.append(lambda names: removed.append((names, list(parts.applied))))
    parts.metadata.on_topic_ids_removed.append(removed.append)
    parts.are_replicas_stopped.clear()
    parts.is_waiting.clear()
    new = [
        r.RemoveTopicRecord(topic_id=TOPIC_ID),
        r.TopicRecord(name="t", topic_id=NEXT_TOPIC_ID),
        partition(0, BROKER_ID, NEXT_TOPIC_ID),
    ]
    publication = asyncio.create_task(parts.publish(*new))
    async with asyncio.timeout(30):
        await parts.is_waiting.wait()
        (topic,) = (await metadata_response(parts, ["t"])).topics
        assert (topic.error_code, topic.topic_id) == (ErrorCode.NONE, TOPIC_ID)
        assert parts.metadata.topic_name(NEXT_TOPIC_ID) is None
        assert removed == []
        parts.are_replicas_stopped.set()
        await publication
    assert parts.metadata.topic_id("t") == NEXT_TOPIC_ID
    # Between the end of the former topic and the roles of the new one.
    (names, applied), topic_ids = removed
    assert (names, topic_ids) == (["t"], [TOPIC_ID])
    assert sorted(applied) == [("delete", "t-0"), ("delete", "t-1")]


def wide(topics: int, leader: int) -> list[Any]:
    """Topics with two partitions each, of which `leader` leads the first one."""
    found: list[Any] = []
    for number in range(topics):
        topic_id = UUID(int=5000 + number)
        found.append(r.TopicRecord(name=f"wide-{number:04d}", topic_id=topic_id))
        found += [partition(0, leader, topic_id), partition(1, BROKER_ID, topic_id)]
    return found


async def test_no_response_mixes_two_images_of_a_thousand_partitions() -> None:
    topics, turns = 500, 0
    parts = Parts()
    await parts.publish(broker(OTHER), broker(BROKER_ID), *wide(topics, OTHER))
    before = await metadata_response(parts)
    assert {one.leader_id for topic in before.topics for one in topic.partitions} == {OTHER, BROKER_ID}
    elected = [
        r.PartitionChangeRecord(partition_id=0, topic_id=UUID(int=5000 + number), leader=BROKER_ID, isr=[BROKER_ID])
        for number in range(topics)
    ]
    fenced = r.FenceBrokerRecord(id=OTHER, epoch=10 * OTHER)
    publication = asyncio.create_task(parts.publish(fenced, *elected, partition(2, BROKER_ID, UUID(int=5000))))
    responses, descriptions = [], []
    while not publication.done():
        responses.append(asyncio.create_task(metadata_response(parts)))
        descriptions.append(
            asyncio.create_task(
                describe_topic_partitions.handle(
                    client_context(),
                    DescribeTopicPartitionsRequest(response_partition_limit=3000),
                    config=cast(Any, SimpleNamespace(max_request_partition_size_limit=3000)),
                    metadata_cache=parts.metadata,
                    sliced_work=cast(Any, SingleSteps()),
                )
            )
        )
        for _ in range(5):
            turns += 1
            await asyncio.sleep(0)
    after = await metadata_response(parts)
    assert {one.node_id for one in after.brokers} == {BROKER_ID}
    assert all(one.leader_id == BROKER_ID for topic in after.topics for one in topic.partitions)
    found = await asyncio.gather(*responses)
    assert all(one in (before, after) for one in found)
    assert before in found
    assert after in found
    for described in await asyncio.gather(*descriptions):
        leaders = [one.leader_id for topic in described.topics for one in topic.partitions]
        count = leaders.count(OTHER)
        assert (len(leaders), count) in ((2 * topics, topics), (2 * topics + 1, 0))
    # The image was built in steps, and then the roles were changed in steps.
    assert turns > 2 * topics // ITEMS_PER_TURN


async def test_the_loop_serves_other_tasks_while_a_topic_of_ten_thousand_partitions_is_published() -> None:
    parts, count, turns = Parts(), 10_000, 0
    await parts.publish(broker(OTHER), broker(BROKER_ID))
    with_replica = 3000
    records = [
        r.PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=[OTHER], isr=[OTHER], leader=OTHER)
        for index in range(count - with_replica)
    ]
    records += [partition(index, BROKER_ID) for index in range(count - with_replica, count)]
    image = await image_after([START[2], *records], parts.published.image)
    delta = await MetadataDelta.between(parts.published.image, image)
    publication = asyncio.create_task(
        parts.publisher.on_metadata_update(delta, image, Manifest(image.provenance, False, 1, 1))
    )
    while not parts.is_waiting.is_set():
        turns += 1
        await asyncio.sleep(0)
    # The cache and the replicas of this broker are read in steps, and the roles are changed in steps.
    assert turns > count // ITEMS_PER_TURN
    parts.is_waiting.clear()
    while not publication.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > count // ITEMS_PER_TURN + with_replica // ROLES_PER_TURN
    topic = parts.metadata.topic("t")
    assert topic is not None
    assert list(topic.partitions) == list(range(count))
    assert len(parts.replicas) == with_replica


async def test_a_replica_in_a_directory_that_is_offline_now_is_offline_in_the_cache() -> None:
    parts = Parts()
    other = UUID(int=2001)
    registration = broker(OTHER)
    registration.log_dirs = [DIRECTORY, other]
    records = [partition(0, BROKER_ID, directories=[other, DIRECTORY]), partition(1, OTHER)]
    await parts.publish(registration, broker(BROKER_ID), START[2], *records)

    def offline() -> list[tuple[int, ...]]:
        topic = parts.metadata.topic("t")
        assert topic is not None
        return [one.offline_replicas for one in topic.partitions.values()]

    assert offline() == [(), ()]
    # The controller changes no partition whose failed replica is outside of the ISR.
    change = r.BrokerRegistrationChangeRecord(broker_id=OTHER, broker_epoch=10 * OTHER, log_dirs=[DIRECTORY])
    await parts.publish(change)
    assert offline() == [(OTHER,), ()]
    (topic,) = (await metadata_response(parts, ["t"])).topics
    assert [one.offline_replicas for one in topic.partitions] == [[OTHER], []]
    await parts.publish(registration)
    assert offline() == [(), ()]


async def test_a_change_of_the_isr_reaches_the_replica_and_elr_the_cache() -> None:
    parts = Parts()
    await parts.publish(*START)
    change = r.PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[BROKER_ID], eligible_leader_replicas=[OTHER]
    )
    assert await parts.publish(change) == [("leader", "t-0", 1, (BROKER_ID,), 1234)]
    image = parts.metadata.partition(TopicPartition("t", 0))
    assert image is not None
    assert (image.isr, image.eligible_leader_replicas) == ((BROKER_ID,), (OTHER,))


async def test_a_deleted_topic_is_deleted_before_another_topic_of_its_name_is_created() -> None:
    parts = Parts()
    await parts.publish(*START)
    applied = await parts.publish(
        r.RemoveTopicRecord(topic_id=TOPIC_ID),
        r.TopicRecord(name="t", topic_id=NEXT_TOPIC_ID),
        partition(0, BROKER_ID, NEXT_TOPIC_ID),
    )
    assert sorted(applied[:2]) == [("delete", "t-0"), ("delete", "t-1")]
    assert [one[:2] for one in applied[2:]] == [("leader", "t-0")]
    assert parts.metadata.topic_id("t") == NEXT_TOPIC_ID
    await parts.publish(r.RemoveTopicRecord(topic_id=NEXT_TOPIC_ID))
    assert "t" not in parts.metadata
    assert parts.dynamic_config.topic_config("t") == {}


async def test_a_replica_that_moves_to_another_broker_is_deleted() -> None:
    parts = Parts()
    await parts.publish(*START)
    change = r.PartitionChangeRecord(
        partition_id=1, topic_id=TOPIC_ID, replicas=[OTHER], isr=[OTHER], directories=[DIRECTORY]
    )
    assert await parts.publish(change) == [("delete", "t-1")]


async def test_a_replica_that_could_not_be_created_is_retried_with_its_present_state() -> None:
    parts = Parts()
    parts.refused = {TopicPartition("t", 0)}
    assert [one[1] for one in await parts.publish(*START)] == ["t-1"]
    await parts.publisher.retry_replicas()
    assert [one[1] for one in parts.applied] == ["t-1"]
    parts.refused = set()
    parts.applied = []
    await parts.publisher.retry_replicas()
    assert [one[1] for one in parts.applied] == ["t-0"]
    parts.applied = []
    await parts.publisher.retry_replicas()
    assert parts.applied == []


async def test_a_replica_whose_log_fails_does_not_keep_the_others_from_their_roles() -> None:
    parts = Parts()
    parts.failing = {TopicPartition("t", 0)}
    assert [one[:2] for one in await parts.publish(*START)] == [("failed", "t-0"), ("follower", "t-1")]
    assert parts.metadata.topic("t") is not None
    parts.failing = set()
    parts.applied = []
    await parts.publisher.retry_replicas()
    assert [one[:2] for one in parts.applied] == [("leader", "t-0")]


async def test_a_log_that_may_be_in_an_offline_directory_is_not_created() -> None:
    parts = Parts()
    parts.refused = {TopicPartition("t", index) for index in range(3)}
    new = partition(2, BROKER_ID, directories=[DIRECTORY, UNASSIGNED_DIRECTORY])
    await parts.publish(*START, new)
    parts.refused = set()
    parts.lacks_log_dirs = True
    await parts.publisher.retry_replicas()
    assert [one[:2] for one in parts.applied] == [("leader", "t-2")]
    parts.lacks_log_dirs = False
    await parts.publisher.retry_replicas()
    assert sorted(one[1] for one in parts.applied) == ["t-0", "t-1", "t-2"]


async def test_a_new_replica_is_created_in_the_directory_that_the_controller_has_assigned() -> None:
    """It assigns the only directory that is online, so that no log of the replica can be in another one."""
    parts = Parts()
    parts.refused = {TopicPartition("t", index) for index in range(4)}
    later = partition(2, BROKER_ID, partition_epoch=1)
    added = partition(3, OTHER, partition_epoch=1, isr=[OTHER], adding_replicas=[BROKER_ID])
    await parts.publish(*START, later, added)
    parts.refused = set()
    parts.lacks_log_dirs = True
    parts.online_directories = {DIRECTORY}
    await parts.publisher.retry_replicas()
    assert sorted(one[1] for one in parts.applied) == ["t-0", "t-1", "t-3"]
    assert parts.new == {("t", 0), ("t", 1), ("t", 3)}


async def test_elections_of_other_brokers_do_not_interrupt_the_fetches_of_followers() -> None:
    parts = Parts()
    await parts.publish(*START)
    assert parts.followers == {OTHER}
    assert parts.elections == 1
    await parts.publish(partition(2, OTHER))
    assert parts.elections == 1


async def test_a_broker_in_controlled_shutdown_is_marked_and_holds_back_no_high_watermark() -> None:
    parts = Parts()
    await parts.publish(*START)
    registration = r.BrokerRegistrationChangeRecord(
        broker_id=OTHER, broker_epoch=10 * OTHER, fenced=0, in_controlled_shutdown=1
    )
    assert await parts.publish(registration) == ["shrink"]
    # Clients and followers connect to it until it is fenced.
    assert parts.metadata.brokers[OTHER].in_controlled_shutdown
    leader = cast(Any, SimpleNamespace(_metadata=parts.metadata))
    assert not Replication._is_eligible(leader, OTHER, 10 * OTHER)
    assert await parts.publish(r.UnfenceBrokerRecord(id=BROKER_ID, epoch=10 * BROKER_ID)) == []
    assert Replication._is_eligible(leader, BROKER_ID, 10 * BROKER_ID)
    assert not Replication._is_eligible(leader, BROKER_ID, 1)


async def test_logs_that_were_opened_for_a_topic_that_is_deleted_before_the_first_publication_are_deleted() -> None:
    parts = Parts()
    parts.published.image = await image_after(START)
    records = [
        r.RemoveTopicRecord(topic_id=TOPIC_ID),
        r.TopicRecord(name="t", topic_id=NEXT_TOPIC_ID),
        partition(0, BROKER_ID, NEXT_TOPIC_ID),
    ]
    image = await image_after(records, parts.published.image)
    delta = await MetadataDelta.between(EMPTY_IMAGE, image)
    await parts.publisher.on_metadata_update(delta, image, Manifest(image.provenance, True, 1, 1))
    roles = [one[:2] for one in parts.applied]
    assert sorted(roles[:2]) == [("delete", "t-0"), ("delete", "t-1")]
    assert roles[2:] == [("leader", "t-0")]


USER_QUOTA = r.ClientQuotaRecord(
    entity=[r.EntityData(entity_type="user", entity_name="anna")], key="producer_byte_rate", value=5.0, remove=False
)


async def test_a_quota_that_cannot_be_applied_does_not_prevent_changes_of_leaders() -> None:
    parts = Parts()
    await parts.publish(*START)
    assert parts.publisher.first_failure is None
    parts.is_quota_failing = True
    change = r.PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=BROKER_ID)
    assert [one[:2] for one in await parts.publish(USER_QUOTA, change)] == [("leader", "t-1")]
    assert parts.publisher.applied_offset == parts.published.image.provenance.last_contained_offset
    assert parts.publisher.first_failure is None


async def test_changes_of_leaders_do_not_wait_for_the_resolution_of_a_host_name() -> None:
    def limit(host: str, value: float) -> r.ClientQuotaRecord:
        entity = [r.EntityData(entity_type="ip", entity_name=host)]
        return r.ClientQuotaRecord(entity=entity, key="connection_creation_rate", value=value, remove=False)

    parts = Parts()
    async with asyncio.timeout(30):
        await parts.publish(*START, limit("slow.example", 5.0))
        change = r.PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=BROKER_ID)
        applied = await parts.publish(limit("127.0.0.1", 7.0), limit("slow.example", 6.0), change)
        rate = "connection_creation_rate"
        assert applied[:1] == [({"ip": "127.0.0.1"}, {rate: 7.0})]
        assert [one[:2] for one in applied[1:]] == [("leader", "t-1")]
        parts.is_resolved.set()
        while applied[-1] != ({"ip": "slow.example"}, {rate: 6.0}):
            await asyncio.sleep(0)
        await parts.publisher.close()


async def test_the_first_publication_reports_a_part_that_cannot_be_applied() -> None:
    parts = Parts()
    parts.is_quota_failing = True
    await parts.publish(*START, USER_QUOTA)
    assert parts.publisher.has_published.is_set()
    assert isinstance(parts.publisher.first_failure, ValueError)


async def test_quotas_acls_and_settings_are_those_of_the_image() -> None:
    parts = Parts()
    acl_ids = [UUID(int=3000 + number) for number in range(2)]
    acls = [
        r.AccessControlEntryRecord(
            id=acl_id,
            resource_type=AclResourceType.TOPIC,
            resource_name="t",
            pattern_type=AclPatternType.LITERAL,
            principal=principal,
            host="*",
            operation=AclOperation.READ,
            permission_type=AclPermissionType.ALLOW,
        )
        for acl_id, principal in zip(acl_ids, ("User:anna", "User:ben"), strict=True)
    ]
    user = r.EntityData(entity_type="user", entity_name="anna")
    quota = r.ClientQuotaRecord(entity=[user], key="producer_byte_rate", value=5.0, remove=False)
    applied = await parts.publish(*START, *acls, quota)
    assert ({"user": "anna"}, {"producer_byte_rate": 5.0}) in applied
    assert parts.acls == {"t": {"User:anna", "User:ben"}}
    removed = r.ClientQuotaRecord(entity=[user], key="producer_byte_rate", value=0.0, remove=True)
    applied = await parts.publish(r.RemoveAccessControlEntryRecord(id=acl_ids[0]), removed)
    assert applied == [({"user": "anna"}, {})]
    assert parts.acls == {"t": {"User:ben"}}
    cluster_wide = r.ConfigRecord(
        resource_type=ConfigResourceType.BROKER, resource_name="", name="log.retention.ms", value="99"
    )
    await parts.publish(cluster_wide, r.ConfigRecord(**{**_fields(RETENTION), "value": None}))
    assert parts.dynamic_config.topic_log_config("t").retention_ms == 99


def _fields(record: r.ConfigRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("resource_type", "resource_name", "name", "value")}
