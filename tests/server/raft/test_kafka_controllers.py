"""The observer of the metadata log against controllers of Apache Kafka."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest
from tests.kafka import KafkaControllers, KafkaTools
from tests.server.raft.test_kafka_raft_client import FOLDER

from barnabas.clients.errors import BrokerUnreachableError
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.metadata_records import ConfigRecord, decode_metadata_record
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.image.broker_registration import BrokerRegistration
from barnabas.server.image.metadata_batch_loader import CommittedBatch
from barnabas.server.image.metadata_loader import LoadedSnapshot, MetadataLoader
from barnabas.server.kraft.quorum_settings import controller_listener
from barnabas.server.metadata.cluster_features import FEATURES
from barnabas.server.raft.broker_lifecycle_manager import AdvertisedListener, BrokerLifecycleManager, LifecycleConfig
from barnabas.server.raft.controller_connections import ControllerConnections
from barnabas.server.raft.kafka_raft_client import KafkaRaftClient
from barnabas.server.raft.kafka_raft_log import KafkaRaftLog, MetadataLogConfig
from barnabas.server.raft.node_to_controller_channel_manager import NodeToControllerChannelManager
from barnabas.server.raft.observer_state import QuorumConfig, parse_bootstrap_servers
from barnabas.server.raft.snapshot_generator import SnapshotGenerator
from barnabas.server.runtime.host import ThreadWork
from barnabas.server.security.inter_broker_security import InterBrokerSecurity
from barnabas.storage.filesystem import OsFileSystem

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(300)]

NODE_ID = 7
BROKER = 4
"""The type of a resource."""


class GroupSettings:
    """A listener that keeps the settings of brokers."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str | None] = {}
        self.next_offset = 0
        self.snapshots = 0

    def _apply(self, value: bytes) -> None:
        record = decode_metadata_record(value)
        if isinstance(record, ConfigRecord):
            self.values[record.resource_name, record.name] = record.value

    async def handle_commit(self, batch: CommittedBatch) -> None:
        assert batch.base_offset == self.next_offset
        self.next_offset = batch.last_offset + 1
        for value in batch.records:
            self._apply(value)

    async def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.snapshots += 1
        self.values.clear()
        async for values in snapshot.batches:
            for value in values:
                self._apply(value)
        self.next_offset = snapshot.last_contained_offset + 1


class KafkaObserver:
    """An observer of real controllers, with its folder."""

    def __init__(self, folder: Path, controllers: KafkaControllers) -> None:
        self.folder = folder
        self.controllers = controllers
        self.errors: list[BaseException] = []
        self.settings = GroupSettings()
        self.outgoing: InterBrokerSecurity | None = None
        self.connections: ControllerConnections
        self.client: KafkaRaftClient

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.folder.mkdir(exist_ok=True)
        self.settings = GroupSettings()
        self.work = ThreadWork(loop)
        self.connections = ControllerConnections(NODE_ID, random.Random(1), timeout_ms=2000, outgoing=self.outgoing)
        self.client = KafkaRaftClient(
            node_id=NODE_ID,
            cluster_id=self.controllers.cluster_id,
            directory_id=UUID(int=1 << 100),
            config=QuorumConfig(parse_bootstrap_servers(self.controllers.bootstrap.split(","))),
            open_log=lambda: KafkaRaftLog.open(
                str(self.folder), config=MetadataLogConfig(), fs=OsFileSystem(), now_ms=lambda: 0, rng=random.Random(1)
            ),
            send_request=self.connections.send_request,
            work=self.work,
            loop=loop,
            rng=random.Random(2),
            now_ms=lambda: 0,
            on_fatal=self.errors.append,
        )
        self.client.register(self.settings)
        await self.client.start()

    async def close(self) -> None:
        await self.client.close()
        self.connections.close()
        self.work.close()
        assert self.errors == []

    async def set(self, name: str, value: str, *, resource: str = "") -> None:
        """Set a setting of brokers through the active controller."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=BROKER,
                    resource_name=resource,
                    configs=[AlterableConfig(name=name, config_operation=0, value=value)],
                )
            ]
        )
        async with asyncio.timeout(60):
            while True:
                if (endpoint := self.client.leader_endpoint) is not None:
                    try:
                        response = await self.connections.send_request(endpoint, request)
                    except (BrokerUnreachableError, KafkaError):
                        pass
                    else:
                        code = ErrorCode(response.responses[0].error_code)
                        if code is ErrorCode.NONE:
                            return
                        assert code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT), code
                await asyncio.sleep(0.05)

    async def until(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                assert self.errors == []
                await asyncio.sleep(0.02)


def play(story: Callable[[KafkaObserver], Awaitable[None]], observer: KafkaObserver) -> None:
    async def main() -> None:
        await observer.start()
        try:
            await story(observer)
        finally:
            await observer.close()

    asyncio.run(main())


def test_an_observer_follows_three_controllers_through_leader_changes(tmp_path: Path) -> None:
    with KafkaControllers(tmp_path / "kafka", count=3) as controllers:
        observer = KafkaObserver(tmp_path / "observer", controllers)

        async def story(observer: KafkaObserver) -> None:
            for number in range(20):
                await observer.set("log.cleaner.threads", str(number + 1))
            await observer.until(lambda: observer.settings.values.get(("", "log.cleaner.threads")) == "20")
            leader = observer.client.leader_and_epoch
            controllers.servers[leader.leader_id - 3000].kill()
            await observer.set("log.cleaner.threads", "21")
            await observer.until(lambda: observer.settings.values.get(("", "log.cleaner.threads")) == "21")
            changed = observer.client.leader_and_epoch
            assert changed.epoch > leader.epoch
            assert changed.leader_id != leader.leader_id
            # After a restart of the observer the records are read from its own disk.
            end = observer.settings.next_offset
            await observer.close()
            await observer.start()
            await observer.until(lambda: observer.settings.next_offset >= end)
            assert observer.settings.values["", "log.cleaner.threads"] == "21"
            described = await asyncio.to_thread(
                KafkaTools().output,
                "kafka-metadata-quorum",
                "--bootstrap-controller",
                controllers.bootstrap,
                "describe",
                "--replication",
            )
            (line,) = [line.split() for line in described.splitlines() if line.startswith(f"{NODE_ID} ")]
            assert line[-1] == "Observer"
            assert int(line[3]) <= 2, "the lag"

        play(story, observer)
        segment = tmp_path / "observer" / FOLDER.rpartition("/")[2] / "00000000000000000000.log"
        dumped = KafkaTools().output("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(segment))
        assert '"name":"log.cleaner.threads","value":"21"' in dumped
        assert "LeaderChange" in dumped


def test_an_observer_loads_a_snapshot_of_kafka(tmp_path: Path) -> None:
    properties = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with KafkaControllers(tmp_path / "kafka", properties=properties) as controllers:
        observer = KafkaObserver(tmp_path / "observer", controllers)

        async def story(observer: KafkaObserver) -> None:
            folder = controllers.servers[0].log_dir / "__cluster_metadata-0"
            number = 0
            async with asyncio.timeout(60):
                # The snapshot at offset 0 has the first records of the cluster.
                while all(int(path.name[:20]) == 0 for path in folder.glob("*.checkpoint")):
                    number += 1
                    await observer.set("log.cleaner.threads", str(number % 100 + 1))
            await observer.set("log.cleaner.threads", "200")
            # A leader with a snapshot sends it to a replica without records.
            await observer.close()
            observer.folder = tmp_path / "another"
            await observer.start()
            await observer.until(lambda: observer.settings.values.get(("", "log.cleaner.threads")) == "200")
            assert observer.settings.snapshots == 1
            await observer.close()
            await observer.start()
            await observer.until(lambda: observer.settings.values.get(("", "log.cleaner.threads")) == "200")

        play(story, observer)
        (snapshot,) = (tmp_path / "another" / "__cluster_metadata-0").glob("*.checkpoint")
        dumped = KafkaTools().output("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(snapshot))
        assert "SnapshotHeader" in dumped
        assert "SnapshotFooter" in dumped
        assert int(snapshot.name[:20]) > 0


class KafkaMember(KafkaObserver):
    """An observer with the registration of its broker."""

    def __init__(self, folder: Path, controllers: KafkaControllers, *, incarnation: int = 1) -> None:
        super().__init__(folder, controllers)
        self.incarnation = incarnation
        self.registration_timeout_ms = 60_000
        self.cluster_id = controllers.cluster_id
        self.features = {name: (feature.lowest, feature.highest) for name, feature in FEATURES.items()}
        self.lifecycle: BrokerLifecycleManager

    async def start(self) -> None:
        await super().start()
        self.loader = MetadataLoader(high_watermark=lambda: self.client.high_watermark, lock=asyncio.Lock())
        self.generator = SnapshotGenerator(
            self.client, asyncio.get_running_loop(), max_record_bytes=100, on_fatal=self.errors.append
        )
        await self.loader.install_publishers(self.generator)
        self.client.register(self.loader)
        self.lifecycle = BrokerLifecycleManager(
            node_id=NODE_ID,
            cluster_id=self.cluster_id,
            rack="rack-1",
            log_dirs=[UUID(int=1 << 100)],
            incarnation_id=UUID(int=(1 << 90) + self.incarnation),
            config=LifecycleConfig(initial_registration_timeout_ms=self.registration_timeout_ms),
            loop=asyncio.get_running_loop(),
            on_shutdown_required=lambda: None,
        )

    def begin(self, previous_broker_epoch: int = -1) -> None:
        connections = ControllerConnections(NODE_ID, random.Random(3), timeout_ms=4500)
        channel = NodeToControllerChannelManager(lambda: self.client.leader_endpoint, connections)
        listeners = [AdvertisedListener("PLAINTEXT", "127.0.0.1", 19092, 0)]
        self.lifecycle.start(
            lambda: self.loader.image.provenance.last_contained_offset,
            channel,
            listeners,
            self.features,
            previous_broker_epoch,
        )

    async def close(self) -> None:
        await self.lifecycle.close()
        await self.generator.close()
        await super().close()

    @property
    def registration(self) -> BrokerRegistration | None:
        """This broker in the image of the metadata."""
        return self.loader.image.cluster.brokers.get(NODE_ID)

    async def create_topic(self, name: str) -> ErrorCode:
        """Have the controller create a topic with one replica, for which it needs a broker that is not fenced."""
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        response = await self.connections.send_request(self.client.leader_endpoint, request)
        return ErrorCode(response.topics[0].error_code)


def test_a_broker_is_registered_unfenced_and_leaves(tmp_path: Path) -> None:
    with KafkaControllers(tmp_path / "kafka") as controllers:

        async def story(member: KafkaObserver) -> None:
            assert isinstance(member, KafkaMember)
            member.begin()
            await member.lifecycle.initial_catch_up()
            await member.until(lambda: member.registration is not None)
            registration = member.registration
            assert registration.epoch == member.lifecycle.broker_epoch
            assert registration.fenced
            assert registration.rack == "rack-1"
            assert registration.directories == (UUID(int=1 << 100),)
            assert registration.listeners["PLAINTEXT"].port == 19092
            assert await member.create_topic("early") is ErrorCode.INVALID_REPLICATION_FACTOR
            # Another process with this id is refused while the session lasts.
            second = KafkaMember(tmp_path / "second", controllers, incarnation=2)
            await second.start()
            second.begin()
            await second.until(lambda: "DUPLICATE_BROKER_REGISTRATION" in second.lifecycle._last_error)
            await second.close()
            await member.lifecycle.ready_to_unfence()
            await member.until(lambda: not member.registration.fenced)
            assert await member.create_topic("t") is ErrorCode.NONE
            await member.until(lambda: "t" in member.loader.image.topics.ids)
            assert member.loader.image.topics.topic("t").partitions[0].leader == NODE_ID
            # The topic has no other replica, so its leader becomes unknown.
            assert await member.lifecycle.begin_controlled_shutdown(timeout_s=30)
            await member.until(lambda: member.loader.image.topics.topic("t").partitions[0].leader == -1)
            assert member.registration.fenced or member.registration.in_controlled_shutdown

        play(story, KafkaMember(tmp_path / "broker", controllers))
        # Kafka reads the snapshots of this broker.
        snapshot = max((tmp_path / "broker" / "__cluster_metadata-0").glob("*.checkpoint"))
        dumped = KafkaTools().output("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(snapshot))
        assert "SnapshotHeader" in dumped
        assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"t"' in dumped
        assert '"type":"REGISTER_BROKER_RECORD"' in dumped
        assert "SnapshotFooter" in dumped


def test_a_broker_that_cannot_be_registered_reports_the_reason(tmp_path: Path) -> None:
    with KafkaControllers(tmp_path / "kafka") as controllers:
        other = KafkaMember(tmp_path / "other", controllers)
        other.cluster_id = "another-cluster-id0000"
        old = KafkaMember(tmp_path / "old", controllers)
        del old.features["share.version"]
        old.registration_timeout_ms = 3000
        for member, reason in ((other, "INCONSISTENT_CLUSTER_ID"), (old, "UNSUPPORTED_VERSION")):

            async def story(member: KafkaObserver, reason: str = reason) -> None:
                assert isinstance(member, KafkaMember)
                member.begin()
                with pytest.raises(KafkaError, match=reason):
                    await member.lifecycle.initial_catch_up()

            play(story, member)


def test_the_connections_to_the_controllers_authenticate(tmp_path: Path) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="secret"'
    properties = {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{login} user_broker="secret";',
    }
    with KafkaControllers(tmp_path / "kafka", properties=properties) as controllers:
        own = {
            "process.roles": "broker",
            "node.id": str(NODE_ID),
            "listeners": "PLAINTEXT://127.0.0.1:19092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controllers.bootstrap,
        }
        protocols = {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"}
        config = BrokerConfig.from_properties({**properties, **own, **protocols})
        observer = KafkaObserver(tmp_path / "observer", controllers)
        observer.outgoing = InterBrokerSecurity(
            config, controller_listener(config), mechanism_key="sasl.mechanism.controller.protocol"
        )

        async def story(observer: KafkaObserver) -> None:
            await observer.set("log.cleaner.threads", "3")
            await observer.until(lambda: observer.settings.values.get(("", "log.cleaner.threads")) == "3")

        play(story, observer)
