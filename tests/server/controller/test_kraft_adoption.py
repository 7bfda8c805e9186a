"""Adoption of the metadata of a KRaft quorum by a single broker."""

import base64
import logging
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from tests.protocol.random_messages import random_message
from tests.server.controller.metadata_folder import ImmediateWork, MetadataFolder, batch

from barnabas import Broker
from barnabas.protocol import metadata_records as r
from barnabas.protocol.acl_bindings import AccessControlEntry, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas.protocol.sasl_server import ScramCredential
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.controller import kraft_adoption
from barnabas.server.controller.kraft_adoption import METADATA_FOLDER, KraftAdoption, KraftTopic
from barnabas.server.controller.kraft_metadata_log import KraftMetadataLog
from barnabas.server.metadata import znodes
from barnabas.server.metadata.acl_store import AclStore
from barnabas.server.metadata.cluster_features import ClusterFeatures
from barnabas.server.metadata.cluster_store import ClusterStore
from barnabas.server.metadata.config_store import ConfigStore
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import Operation, OperationResult, StoreUnavailableError
from barnabas.server.metadata.producer_id_manager import ZkProducerIdManager
from barnabas.server.metadata.scram_store import ScramStore
from barnabas.server.metadata.token_store import DelegationToken, TokenStore
from barnabas.server.quotas.stored_quotas import stored_quotas
from barnabas.storage.filesystem import OsFileSystem

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
FOLDER_OF_KAFKA = Path(__file__).parents[2] / "vectors" / "kraft-4.4.0" / METADATA_FOLDER
T1 = UUID(int=1)


def now_ms() -> int:
    return 1


def config(resource_type: int, resource: str, name: str, value: str | None = "1") -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)


def scram(name: str, mechanism: int = 1) -> r.UserScramCredentialRecord:
    return r.UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"a", stored_key=b"b", server_key=b"c", iterations=4096
    )


def acl(number: int, name: str, principal: str, pattern_type: int = 3) -> r.AccessControlEntryRecord:
    return r.AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=3,
        resource_name=name,
        pattern_type=pattern_type,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )


def quota(key: str, value: float, **entity: str | None) -> r.ClientQuotaRecord:
    parts = [r.EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    return r.ClientQuotaRecord(entity=parts, key=key, value=value)


RECORDS = (
    r.FeatureLevelRecord(name="metadata.version", feature_level=33),
    r.FeatureLevelRecord(name="transaction.version", feature_level=1),
    r.FeatureLevelRecord(name="group.version", feature_level=1),
    r.FeatureLevelRecord(name="share.version", feature_level=2),
    r.FeatureLevelRecord(name="streams.version", feature_level=1),
    r.TopicRecord(name="t", topic_id=T1),
    *(r.PartitionRecord(partition_id=n, topic_id=T1, replicas=[1], isr=[1], leader=1) for n in range(3)),
    config(TOPIC, "t", "retention.ms", "12345"),
    config(TOPIC, "t", "cleanup.policy", "compact"),
    config(BROKER, "", "log.cleaner.backoff.ms", "4321"),
    config(BROKER, "1", "message.max.bytes", "99999"),
    config(GROUP, "a/group", "consumer.session.timeout.ms", "50000"),
    config(CLIENT_METRICS, "m", "interval.ms", "7000"),
    quota("producer_byte_rate", 1000.0, user="anna"),
    quota("consumer_byte_rate", 2000.0, client_id=None, user="anna"),
    quota("consumer_byte_rate", 3000.0, user=None),
    quota("connection_creation_rate", 5.0, ip="10.0.0.1"),
    scram("anna"),
    scram("anna", 2),
    acl(1, "a/b", "User:anna"),
    acl(2, "a/b", "User:bert"),
    acl(3, "pre", "User:anna", 4),
    r.DelegationTokenRecord(
        owner="User:anna", requester="User:bert", renewers=["User:c"], issue_timestamp=1, max_timestamp=3,
        expiration_timestamp=2, token_id="token",
    ),
    r.ProducerIdsRecord(broker_id=1, next_producer_id=5000),
)  # fmt: skip


class FailingStore(EmbeddedStore):
    """A store whose writes fail from a number of them on, as if the broker were killed."""

    writes_left = 1_000_000

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise StoreUnavailableError(operations[0].path)
        return await super().multi(operations)


class Start:
    """The start of a single broker up to its metadata."""

    def __init__(self, log_dir: Path, tree: DataTree | None = None, settings: dict[str, str] | None = None) -> None:
        self.tree = tree or DataTree(now_ms)
        self.store = FailingStore(self.tree)
        self.dynamic_config = DynamicConfig(BrokerConfig({"broker.id": "1", **(settings or {})}))
        work = cast(Any, ImmediateWork())
        self.adoption = KraftAdoption(self.store, self.dynamic_config, OsFileSystem(), work, [str(log_dir)])
        self.configs = ConfigStore(self.store, now_ms=now_ms)

    async def run(self) -> "Start":
        await self.adoption.begin()
        cluster = ClusterStore(self.store, now_ms=now_ms, token_bytes=lambda count: b"x" * count)
        await cluster.prepare()
        await self.adoption.adopt(1)
        self.topics = await self.adoption.topics([T1, UUID(int=2)])
        await self.adoption.finish()
        return self

    async def content(self) -> dict[str, bytes]:
        """The data of all nodes."""
        found, paths = {}, ["/"]
        while paths:
            path = paths.pop()
            found[path], _ = await self.store.get(path)
            paths += [f"{path.rstrip('/')}/{name}" for name in await self.store.children(path)]
        return found


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    folder = MetadataFolder(tmp_path)
    folder.snapshot(len(RECORDS) - 4, *RECORDS[:-4])
    folder.log().write_bytes(batch(0, *RECORDS))
    return tmp_path


async def test_each_kind_of_metadata_is_in_the_store(log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    start = await Start(log_dir).run()
    configs = start.configs
    assert await configs.broker_config(None) == {"log.cleaner.backoff.ms": "4321"}
    assert await configs.broker_config(1) == {"message.max.bytes": "99999"}
    assert await configs.named_configs("groups") == {"a/group": {"consumer.session.timeout.ms": "50000"}}
    assert await configs.named_configs("client-metrics") == {"m": {"interval.ms": "7000"}}
    quotas = [(dict(entity), limits) async for entity, limits in stored_quotas(configs) if limits]
    assert quotas == [
        ({"user": None}, {"consumer_byte_rate": 3000.0}),
        ({"user": "anna"}, {"producer_byte_rate": 1000.0}),
        ({"user": "anna", "client-id": None}, {"consumer_byte_rate": 2000.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
    ]
    users = ScramStore(configs)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert await users.credential("anna", mechanism) == ScramCredential(b"a", b"b", b"c", 4096)
    acls = AclStore(start.store, now_ms=now_ms)
    await acls.prepare()
    entries = [
        AccessControlEntry(f"User:{name}", "*", AclOperation.READ, AclPermissionType.ALLOW) for name in ("anna", "bert")
    ]
    assert await acls.load() == {
        ResourcePattern(AclResourceType.GROUP, "a/b"): frozenset(entries),
        ResourcePattern(AclResourceType.GROUP, "pre", AclPatternType.PREFIXED): frozenset(entries[:1]),
    }
    tokens = TokenStore(start.store, now_ms=now_ms)
    await tokens.prepare()
    assert await tokens.get("token") == DelegationToken("token", "User:anna", "User:bert", ("User:c",), 1, 3, 2)
    assert await ZkProducerIdManager(start.store, 1).generate_producer_id() == 5000
    features = ClusterFeatures(start.store, ClusterStore(start.store, now_ms=now_ms, token_bytes=bytes))
    await features.start()
    assert features.level("transaction.version") == 1
    assert start.topics == {T1: KraftTopic("t", {"retention.ms": "12345", "cleanup.policy": "compact"}, 3)}
    assert "not adopted" not in caplog.text
    assert f"up to offset {len(RECORDS) - 1}: " in caplog.text


async def test_metadata_that_this_broker_cannot_have_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = MetadataFolder(tmp_path)
    folder.log().write_bytes(
        batch(
            0,
            r.FeatureLevelRecord(name="share.version", feature_level=3),
            r.FeatureLevelRecord(name="group.version", feature_level=1),
            r.FeatureLevelRecord(name="streams.version", feature_level=1),
            r.FeatureLevelRecord(name="transaction.version", feature_level=2),
            config(BROKER, "2", "message.max.bytes", "99999"),
            config(BROKER, "1", "log.dirs", "/elsewhere"),
            config(BROKER, "", "a.later.setting", "1"),
            config(BROKER, "", "log.retention.ms", "7"),
            config(GROUP, "evil\n2026 ERROR", "a.later.setting", "1"),
            config(GROUP, "evil\n2026 ERROR", "consumer.session.timeout.ms", "50000"),
            config(TOPIC, "t", "remote.storage.enable", "true"),
            config(TOPIC, "t", "retention.ms", "7"),
            config(64, "x", "y"),
            quota("a_later_rate", 1.0, user="u"),
            scram("u", 9),
            r.DelegationTokenRecord(token_id="../x"),
            r.TopicRecord(name="t", topic_id=T1),
            r.PartitionRecord(partition_id=0, topic_id=T1, replicas=[2], isr=[2], leader=2),
        )
    )
    start = await Start(tmp_path).run()
    assert await start.configs.broker_config(None) == {"log.retention.ms": "7"}
    assert await start.configs.named_configs("groups") == {"evil\n2026 ERROR": {"consumer.session.timeout.ms": "50000"}}
    assert start.topics == {T1: KraftTopic("t", {"retention.ms": "7"}, 0)}
    lines = [line.getMessage().partition(f"{METADATA_FOLDER}: ")[2] for line in caplog.records]
    for text in (
        "feature share.version 3: the level of this broker is 2",
        "settings of broker 2: message.max.bytes",
        "settings of broker 1: log.dirs: ",
        "settings of all brokers: unknown: a.later.setting",
        "settings of evil\\n2026 ERROR in groups: a.later.setting: ",
        "settings of topic t: remote.storage.enable: ",
        "settings of 'x': unknown type of resource",
        "quotas of user=u: ",
        "credential of user 'u': unknown mechanism 9",
        "delegation token ../x: the id is not valid",
    ):
        assert sum(line.startswith(text) for line in lines) == 1, text
    assert len(lines) == 10


async def test_crash_during_the_adoption_is_repaired_by_the_next_start(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kraft_adoption, "NODES_PER_WRITE", 2)
    expected = await (await Start(log_dir).run()).content()
    assert znodes.KRAFT_ADOPTION not in expected

    async def survives(start: Start, writes: int) -> bool:
        start.store.writes_left = writes
        try:
            await start.run()
        except StoreUnavailableError:
            return False
        return True

    count = 0
    while not await survives(first := Start(log_dir), count):
        # A second kill, and then a start that ends.
        await survives(Start(log_dir, first.tree), count // 2)
        last = await Start(log_dir, first.tree).run()
        assert await last.content() == expected, count
        count += 1
    assert count >= 8


async def test_later_starts_keep_what_was_changed_since(log_dir: Path) -> None:
    first = await Start(log_dir).run()
    await first.configs.set_broker_config(None, {"log.cleaner.backoff.ms": "1"})
    second = await Start(log_dir, first.tree).run()
    assert await second.configs.broker_config(None) == {"log.cleaner.backoff.ms": "1"}


async def test_store_that_is_not_new_gets_settings_of_topics_only(
    log_dir: Path, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    empty = await Start(tmp_path_factory.mktemp("empty")).run()
    later = await Start(log_dir, empty.tree).run()
    assert await later.configs.broker_config(None) == {}
    assert later.topics[T1].config["retention.ms"] == "12345"
    assert "only settings of topics are adopted" in caplog.text


async def test_metadata_log_in_a_directory_of_its_own(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("logs")
    start = await Start(other, settings={"metadata.log.dir": str(log_dir)}).run()
    assert await start.configs.broker_config(1) == {"message.max.bytes": "99999"}


@pytest.mark.parametrize("content", [b"", bytes(100), b"damaged"], ids=["empty", "zeros", "damaged"])
async def test_damaged_metadata_do_not_prevent_the_start(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder = MetadataFolder(tmp_path)
    folder.log().write_bytes(content)
    start = await Start(tmp_path).run()
    assert start.topics == {}
    assert "no metadata are adopted from" in caplog.text
    assert znodes.KRAFT_ADOPTION not in await start.content()


async def test_metadata_of_kafka_4_4(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(FOLDER_OF_KAFKA, tmp_path / METADATA_FOLDER)
    image = await KraftMetadataLog(OsFileSystem(), cast(Any, ImmediateWork()), str(FOLDER_OF_KAFKA)).read_image()
    assert {name: len(image.topics.by_id[one].partitions) for name, one in image.topics.ids.items()} == {
        "orders": 3,
        "plain": 1,
    }
    assert image.features.metadata_version == 33
    assert (len(image.acls.acls), len(image.scram.credentials), len(image.delegation_tokens.tokens)) == (5, 2, 1)
    start = await Start(tmp_path).run()
    assert await start.configs.broker_config(None) == {"log.cleaner.backoff.ms": "12345", "min.insync.replicas": "1"}
    (found,) = (await start.adoption.topics([image.topics.ids["orders"]])).values()
    assert found.config == {
        "retention.ms": "7654321",
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "100000",
    }
    assert caplog.text == ""


@pytest.mark.parametrize("seed", range(6))
async def test_random_metadata_do_not_prevent_the_start(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    types: tuple[type, ...] = (
        r.ConfigRecord, r.ClientQuotaRecord, r.UserScramCredentialRecord, r.DelegationTokenRecord,
        r.FeatureLevelRecord, r.ProducerIdsRecord, r.AccessControlEntryRecord,
    )  # fmt: skip
    records = [random_message(rng.choice(types), 0, rng) for _ in range(300)]
    for record in records:
        # Types that exist, with values for filters among them.
        if isinstance(record, r.AccessControlEntryRecord):
            record.resource_type, record.pattern_type = rng.choice(range(1, 8)), rng.choice(range(1, 5))
            record.operation, record.permission_type = rng.choice(range(1, 15)), rng.choice((1, 2, 3))
        elif isinstance(record, r.ConfigRecord):
            record.resource_type = rng.choice((2, 4, 8, 16, 32))
            record.resource_name = rng.choice(("", "1", record.resource_name))
            if rng.random() < 0.8:
                record.name = rng.choice(("retention.ms", "log.retention.ms", "interval.ms", "share.isolation.level"))
        elif isinstance(record, r.ClientQuotaRecord) and rng.random() < 0.8:
            record.entity = [r.EntityData(entity_type=rng.choice(("user", "client-id", "ip")), entity_name="\0/é")]
            record.key = rng.choice(("producer_byte_rate", "request_percentage", "connection_creation_rate"))
    records.append(r.TopicRecord(name="t", topic_id=T1))
    MetadataFolder(tmp_path).log().write_bytes(b"".join(batch(n, record) for n, record in enumerate(records)))
    start = await Start(tmp_path).run()
    assert T1 in start.topics
    await start.dynamic_config.load(start.configs, 1)
    async for _ in stored_quotas(start.configs):
        continue
    await AclStore(start.store, now_ms=now_ms).prepare()
    await AclStore(start.store, now_ms=now_ms).load()
    await TokenStore(start.store, now_ms=now_ms).prepare()
    async for _ in TokenStore(start.store, now_ms=now_ms).all():
        continue


def topic_id_of(folder: Path) -> UUID:
    """From `partition.metadata`."""
    text = (folder / "partition.metadata").read_text().split("topic_id: ")[1].strip()
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def test_broker_adopts_a_topic_with_its_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=tmp_path / "first", topics={"t": 1, "unknown": 1}) as broker:
        broker.produce("t", [b"1"])
        broker.produce("unknown", [b"1"])
    data = tmp_path / "second"
    folder = MetadataFolder(data)
    for name in ("t-0", "unknown-0"):
        (tmp_path / "first" / name).rename(data / name)
    topic_id = topic_id_of(data / "t-0")
    records = [
        r.TopicRecord(name="t", topic_id=topic_id),
        *(r.PartitionRecord(partition_id=n, topic_id=topic_id, replicas=[1], isr=[1], leader=1) for n in range(3)),
        config(TOPIC, "t", "max.message.bytes", "12345"),
        config(BROKER, "", "log.cleaner.backoff.ms", "4321"),
    ]
    folder.log().write_bytes(batch(0, *records))
    for _ in range(2):
        with Broker(data_dir=data) as broker:
            state = broker.server.state
            assert dict(state.dynamic_config.topic_config("t")) == {"max.message.bytes": "12345"}
            assert state.dynamic_config.topic_config("unknown")["retention.ms"] == "-1"
            assert state.config.log_cleaner_backoff_ms == 4321
            topic = state.metadata.topic("t")
            assert topic is not None
            assert len(topic.partitions) == 3
    assert "not adopted from" not in caplog.text
