"""Images and deltas of a KRaft cluster's metadata."""

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.server.image.metadata_history import History, image_after

from barnabas.protocol import metadata_records as r
from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.protocol.config_resources import ConfigResource, ConfigResourceType
from barnabas.protocol.metadata_records import TYPES, decode_metadata_record, encode_metadata_record
from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.server.image.broker_registration import ListenerEndpoint, VersionRange
from barnabas.server.image.features_image import MAX_VERSION, METADATA_VERSION, MIN_VERSION
from barnabas.server.image.metadata_delta import MetadataDelta
from barnabas.server.image.metadata_error import MetadataError
from barnabas.server.image.metadata_image import EMPTY_IMAGE, MetadataImage
from barnabas.server.image.metadata_provenance import MetadataProvenance
from barnabas.server.image.partition_registration import MIGRATING_DIRECTORY, PartitionRegistration
from barnabas.server.image.scram_image import ScramCredentialData
from barnabas.server.image.topics_image import TopicsDelta
from barnabas.server.metadata.cluster_features import FEATURES

T1, T2 = UUID(int=1), UUID(int=2)
D1, D2, D3 = UUID(int=101), UUID(int=102), UUID(int=103)
FEATURE = r.FeatureLevelRecord(name="metadata.version", feature_level=33)
TOPIC = r.TopicRecord(name="t", topic_id=T1)


def partition(index: int = 0, topic_id: UUID = T1, leader: int = 1, **values: Any) -> r.PartitionRecord:
    given = {"replicas": [1, 2], "isr": [1, 2], "directories": [D1, D2], "leader_epoch": 0, "partition_epoch": 0}
    return r.PartitionRecord(partition_id=index, topic_id=topic_id, leader=leader, **{**given, **values})


def change(index: int = 0, topic_id: UUID = T1, **values: Any) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=index, topic_id=topic_id, **values)


def broker(broker_id: int = 1, epoch: int = 7, **values: Any) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, **values)


def topics_delta(delta: MetadataDelta) -> TopicsDelta:
    assert delta.topics is not None
    return delta.topics


async def test_partition_change_sets_what_it_has_and_increments_epochs() -> None:
    image = await image_after([TOPIC, partition()])
    before = image.topics.partition(T1, 0)
    assert before == PartitionRegistration((1, 2), (D1, D2), (1, 2), (), (), 1, 0, 0, 0)
    image = await image_after([change(isr=[2], leader=2, eligible_leader_replicas=[1])], image)
    assert image.topics.partition(T1, 0) == before._replace(
        isr=(2,), leader=2, leader_epoch=1, partition_epoch=1, elr=(1,)
    )
    # The same leader is elected again: a new leader epoch.
    image = await image_after([change(leader=2)], image)
    after = image.topics.partition(T1, 0)
    assert after is not None
    assert (after.leader, after.leader_epoch, after.partition_epoch, after.isr) == (2, 2, 2, (2,))
    image = await image_after([change(replicas=[2, 3], directories=[D2, D3], adding_replicas=[3])], image)
    after = image.topics.partition(T1, 0)
    assert after is not None
    assert (after.replicas, after.directory(3), after.directory(1)) == ((2, 3), D3, None)
    assert (after.leader_epoch, after.partition_epoch) == (2, 3)


async def test_partition_of_an_old_version_has_replicas_in_migrating_directories() -> None:
    image = await image_after([TOPIC, partition(directories=[])])
    state = image.topics.partition(T1, 0)
    assert state is not None
    assert state.directories == (MIGRATING_DIRECTORY, MIGRATING_DIRECTORY)


async def test_deleted_topic_takes_its_settings_along() -> None:
    config = r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    image = await image_after([TOPIC, partition(), config])
    assert image.configs.config(ConfigResourceType.TOPIC, "t") == {"retention.ms": "1"}
    again = [r.RemoveTopicRecord(topic_id=T1), r.TopicRecord(name="t", topic_id=T2), partition(topic_id=T2)]
    image = await image_after(again, image)
    topic = image.topics.topic("t")
    assert topic is not None
    assert (topic.id, list(image.topics.by_id), image.configs.configs) == (T2, [T2], {})


async def test_topic_created_and_deleted_in_one_delta_leaves_nothing() -> None:
    config = r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in (TOPIC, partition(), config, r.RemoveTopicRecord(topic_id=T1)):
        delta.replay(record)
    assert await delta.apply(EMPTY_IMAGE.provenance) == EMPTY_IMAGE
    assert topics_delta(delta).deleted == {}


@pytest.mark.parametrize("name", ["", "t"])
async def test_elrs_are_cleared(name: str) -> None:
    records = [TOPIC, partition(eligible_leader_replicas=[2]), partition(1, last_known_elr=[1]), partition(2)]
    image = await image_after([*records, r.TopicRecord(name="u", topic_id=T2), partition(0, T2)])
    delta = MetadataDelta(image)
    delta.replay(r.ClearElrRecord(topic_name=name))
    # Partitions without ELRs do not change.
    assert {k: list(v.partition_changes) for k, v in topics_delta(delta).changed.items()} == {T1: [0, 1]}
    after = await delta.apply(image.provenance)
    states = after.topics.by_id[T1].partitions
    assert [(one.elr, one.last_known_elr, one.partition_epoch) for one in states.values()] == [
        ((), (), 1), ((), (), 1), ((), (), 0)
    ]  # fmt: skip


async def test_broker_registration_is_changed_by_each_record() -> None:
    end_points = [r.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)]
    features = [r.BrokerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)]
    image = await image_after([broker(end_points=end_points, features=features, rack="r", log_dirs=[D1])])
    first = image.cluster.brokers[1]
    assert first.listeners == {"PLAINTEXT": ListenerEndpoint("PLAINTEXT", "h", 9092, 0)}
    assert first.supported_features == {"kraft.version": VersionRange(0, 1)}
    assert (first.epoch, first.rack, first.fenced, first.directories) == (7, "r", True, (D1,))
    image = await image_after([r.UnfenceBrokerRecord(id=1, epoch=7)], image)
    assert image.cluster.brokers[1] == first._replace(fenced=False)
    changed = r.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=7, in_controlled_shutdown=1, log_dirs=[D2], cordoned_log_dirs=[D2]
    )
    image = await image_after([changed, r.FenceBrokerRecord(id=1, epoch=7)], image)
    assert image.cluster.brokers[1] == first._replace(
        in_controlled_shutdown=True, directories=(D2,), cordoned_directories=(D2,)
    )
    image = await image_after([r.UnregisterBrokerRecord(broker_id=1, broker_epoch=7)], image)
    assert image.cluster.brokers == {}


async def test_settings_acls_quotas_credentials_tokens_features_and_producer_ids() -> None:
    entity = [
        r.EntityData(entity_type="user", entity_name=None),
        r.EntityData(entity_type="client-id", entity_name="c"),
    ]
    acl = r.AccessControlEntryRecord(
        id=T1, resource_type=2, resource_name="n", pattern_type=4, principal="User:a", host="*", operation=3,
        permission_type=2,
    )  # fmt: skip
    scram = r.UserScramCredentialRecord(
        name="u", mechanism=2, salt=b"a", stored_key=b"b", server_key=b"c", iterations=4096
    )
    set_records = [
        FEATURE,
        r.FeatureLevelRecord(name="share.version", feature_level=1),
        r.ConfigRecord(resource_type=4, resource_name="", name="x", value="1"),
        r.ClientQuotaRecord(entity=entity, key="k", value=1.5),
        acl,
        scram,
        r.DelegationTokenRecord(owner="User:a", requester="User:b", renewers=["User:c"], token_id="i"),
        r.ProducerIdsRecord(broker_id=1, next_producer_id=1000),
        r.RegisterControllerRecord(controller_id=5),
    ]
    image = await image_after(set_records)
    assert image.features.finalized_versions == {"metadata.version": 33, "share.version": 1}
    assert image.configs.configs == {ConfigResource(ConfigResourceType.BROKER, ""): {"x": "1"}}
    assert image.client_quotas.entities == {(("client-id", "c"), ("user", None)): {"k": 1.5}}
    pattern = ResourcePattern(AclResourceType.TOPIC, "n", AclPatternType.PREFIXED)
    entry = AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.DENY)
    assert image.acls.acls == {T1: AclBinding(pattern, entry)}
    assert image.scram.credentials == {("u", 2): ScramCredentialData(b"a", b"b", b"c", 4096)}
    assert "b'b'" not in repr(image.scram)
    assert image.delegation_tokens.tokens["i"].renewers == ("User:c",)
    assert image.producer_ids.next_producer_id == 1000
    assert list(image.cluster.controllers) == [5]
    removals = [
        r.FeatureLevelRecord(name="share.version", feature_level=0),
        r.ConfigRecord(resource_type=4, resource_name="", name="x", value=None),
        r.ClientQuotaRecord(entity=entity[::-1], key="k", remove=True),
        r.RemoveAccessControlEntryRecord(id=T1),
        r.RemoveUserScramCredentialRecord(name="u", mechanism=2),
        r.RemoveDelegationTokenRecord(token_id="i"),
        r.UnregisterControllerRecord(controller_id=5),
    ]
    empty = await image_after(removals, image)
    assert empty.features.finalized_versions == {"metadata.version": 33}
    kept = {name: getattr(EMPTY_IMAGE, name) for name in ("provenance", "producer_ids", "features")}
    assert replace(empty, **kept) == EMPTY_IMAGE


def test_the_range_of_metadata_versions_is_that_of_the_registration() -> None:
    assert FEATURES[METADATA_VERSION][:2] == (MIN_VERSION, MAX_VERSION)


@pytest.mark.parametrize(
    "record",
    [
        change(),
        partition(),
        change(1, T2),
        partition(0, T2, directories=[D1]),
        r.TopicRecord(name="u", topic_id=T2),
        r.RemoveTopicRecord(topic_id=T1),
        r.ClearElrRecord(topic_name="t"),
        r.FeatureLevelRecord(name="metadata.version", feature_level=34),
        r.UnfenceBrokerRecord(id=9, epoch=7),
        r.UnfenceBrokerRecord(id=1, epoch=6),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=2),
        r.RemoveAccessControlEntryRecord(id=T1),
        r.AccessControlEntryRecord(resource_type=99, pattern_type=3, operation=3, permission_type=3),
        r.BeginTransactionRecord(),
        "not a record",
    ],
    ids=lambda record: type(record).__name__,
)
async def test_record_that_contradicts_the_image_raises(record: Any) -> None:
    image = await image_after([r.TopicRecord(name="u", topic_id=T2), partition(0, T2), broker()])
    with pytest.raises(MetadataError):
        MetadataDelta(image).replay(record)


async def test_delta_shares_what_it_does_not_change() -> None:
    records = [TOPIC, partition(), r.TopicRecord(name="u", topic_id=T2), partition(0, T2), broker()]
    before = await image_after(records)
    after = await image_after([change(isr=[1])], before)
    assert after.cluster is before.cluster
    assert after.configs is before.configs
    assert after.topics.ids is before.topics.ids
    assert after.topics.by_id[T2] is before.topics.by_id[T2]
    assert before.topics.by_id[T1].partitions[0].isr == (1, 2)
    assert (await image_after([r.NoOpRecord()], before)).topics is before.topics


async def test_ten_thousand_changed_partitions_copy_their_topic_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 10_000
    before = await image_after([TOPIC, *map(partition, range(count))])

    class Counted(dict[int, PartitionRegistration]):
        reads = 0

        def keys(self) -> Any:
            type(self).reads += 1
            return super().keys()

    topic = before.topics.by_id[T1]
    counted = replace(before.topics, by_id={T1: topic._replace(partitions=Counted(topic.partitions))})
    delta = MetadataDelta(replace(before, topics=counted))
    for index in range(count):
        delta.replay(change(index, isr=[1]))
    assert Counted.reads == 0
    after = await delta.apply(before.provenance)
    assert Counted.reads <= 1
    assert {one.isr for one in after.topics.by_id[T1].partitions.values()} == {(1,)}


async def test_local_changes_of_a_broker() -> None:
    u0, u1, u2 = (TopicIdPartition(T2, "u", index) for index in range(3))
    image = await image_after(
        [
            *(TOPIC, partition(), partition(1, leader=2), partition(2, replicas=[2], directories=[D2], leader=2)),
            *(r.TopicRecord(name="u", topic_id=T2), partition(0, T2), partition(1, T2), partition(2, T2)),
        ]
    )
    delta = MetadataDelta(image)
    for record in (
        r.RemoveTopicRecord(topic_id=T1),
        change(0, T2, isr=[1]),
        change(1, T2, leader=2),
        change(2, T2, replicas=[2], directories=[D2], leader=2),
    ):
        delta.replay(record)
    changes = await topics_delta(delta).local_changes(1)
    assert changes.deletes == {TopicIdPartition(T1, "t", 0), TopicIdPartition(T1, "t", 1), u2}
    assert changes.elected_leaders == {}
    assert list(changes.leaders) == [u0]
    assert list(changes.followers) == [u1]
    assert changes.directory_ids == {}
    changes = await topics_delta(delta).local_changes(2)
    assert (list(changes.elected_leaders), list(changes.followers)) == ([u1, u2], [u0])
    # For a broker that starts, all of the image is new.
    changes = await topics_delta(await MetadataDelta.between(EMPTY_IMAGE, image)).local_changes(1)
    assert len(changes.elected_leaders) == 4
    assert list(changes.followers) == [TopicIdPartition(T1, "t", 1)]
    assert changes.directory_ids[u0] == D1


async def snapshot(image: MetadataImage) -> MetadataImage:
    """The image that the records of an image's snapshot build."""
    values = [encode_metadata_record(record, version) for record, version in image.write()]
    again = await image_after([decode_metadata_record(value) for value in values])
    return replace(again, provenance=image.provenance)


@pytest.mark.parametrize("seed", range(12))
async def test_deltas_snapshots_and_differences_agree(seed: int) -> None:
    history, rng = History(seed), random.Random(seed)
    records: list[Any] = [FEATURE]
    image = EMPTY_IMAGE
    for _ in range(12):
        batch = [history.next() for _ in range(rng.randint(1, 40))]
        records += batch
        before, delta = image, MetadataDelta(image)
        for record in ([FEATURE] if image is EMPTY_IMAGE else []) + batch:
            delta.replay(record)
        image = await delta.apply(MetadataProvenance(len(records), 1, 1))
        assert image == await image_after(records)
        if image.features.metadata_version and image.features.metadata_version >= 30:
            assert await snapshot(image) == image
        for start, end in ((before, image), (EMPTY_IMAGE, image)):
            difference = await MetadataDelta.between(start, end)
            assert await difference.apply(end.provenance) == end


def test_history_has_every_type_of_record() -> None:
    history = History(0)
    seen = {type(history.next()) for _ in range(2000)}
    transactions = {r.BeginTransactionRecord, r.EndTransactionRecord, r.AbortTransactionRecord}
    assert set(TYPES.values()) - seen == {*transactions, r.ZkMigrationStateRecord}


async def test_equal_images_have_no_difference() -> None:
    history = History(1)
    image = await image_after([history.next() for _ in range(300)])
    delta = await MetadataDelta.between(image, await snapshot(replace(image)))
    parts = ("features", "cluster", "topics", "configs", "client_quotas", "producer_ids", "acls", "scram")
    assert [part for part in parts if getattr(delta, part) is not None] in ([], ["features"])


@pytest.mark.parametrize(("level", "versions"), [(7, (1, 0)), (8, (2, 0)), (17, (3, 1)), (23, (3, 2)), (30, (4, 2))])
async def test_snapshot_has_the_versions_of_its_metadata_version(level: int, versions: tuple[int, int]) -> None:
    feature = r.FeatureLevelRecord(name="metadata.version", feature_level=level)
    image = await image_after([feature, broker(log_dirs=[D1]), TOPIC, partition()])
    written = {type(record): version for record, version in image.write()}
    assert (written[r.RegisterBrokerRecord], written[r.PartitionRecord]) == versions
    for record, version in image.write():
        encode_metadata_record(record, version)
