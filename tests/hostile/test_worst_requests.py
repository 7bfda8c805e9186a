"""One request of a megabyte, whatever it asks for, keeps nobody waiting and does not cost the broker its memory."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from soak.hostile.in_process import HostileConnection
from soak.hostile.record_forge import valid_batch
from tests.foreign_tools import skip_or_fail
from tests.frames import request_body
from tests.hostile.worst_about_rules import WORST_ABOUT_RULES
from tests.hostile.worst_about_tokens import (
    MECHANISM,
    OTHER_TOKENS,
    USER,
    WORST_ABOUT_TOKENS,
    WORST_AMONG_OWNERS,
    end,
    others_tokens,
    token_wish,
)
from tests.hostile.worst_between_brokers import (
    FOLLOWED,
    FOLLOWED_PARTITIONS,
    FOLLOWER_ID,
    WISH,
    WORST_BETWEEN_BROKERS,
    WORST_OF_TELEMETRY,
    WORST_WITH_FOLLOWER,
    following_preferred,
    forgotten,
    telemetry_client,
    update,
)
from tests.hostile.worst_of_members import (
    LEAVERS,
    LEFT,
    TRANSACTION,
    WORST_OF_MEMBERS,
    added,
    consumer_joining,
    joining,
    joining_leaver,
    streams_joining,
)
from tests.hostile.worst_of_operators import GROUPS, GROWN, MADE, WORST_OF_OPERATORS
from tests.hostile.worst_of_share_fetches import GROUP as SHARING_GROUP
from tests.hostile.worst_of_share_fetches import WORST_OF_SHARE_FETCHES, begin_session
from tests.hostile.worst_of_share_groups import MEMBERS_GROUP, SHARE_MEMBER, WORST_OF_SHARE_GROUPS, share_beat
from tests.hostile.worst_of_share_state import GROUP as SHARE_GROUP
from tests.hostile.worst_of_share_state import WORST_OF_SHARE_STATE
from tests.hostile.worst_requests import (
    BROKER_ID,
    FRAME_BYTES,
    GROUP,
    NEW_PARTITIONS,
    PACKED,
    PATIENT,
    TOPIC,
    VAST,
    VAST_PARTITIONS,
    WIDE,
    WIDE_PARTITIONS,
    WORST,
    Known,
    NoCode,
    Worst,
    by_name,
    noise_batch,
    produced,
    tiny_batch,
)
from tests.server.coordinator.share.share_requests import initialize, initialize_data

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.schema import fields_of, is_struct
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.apis.services import Services
from barnabas.server.apis.table import ALL, TELEMETRY
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import services
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.controller.admin_manager import CreatedTopic, TopicCreation
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_cache import PartitionImage
from barnabas.server.metadata.metadata_store import MetadataStore
from barnabas.server.runtime.host import host_ports, now_ms
from barnabas.server.security.acl_authorizer import AclAuthorizer
from barnabas.server.security.delegation_token_manager import MAX_TOKENS_PER_OWNER
from barnabas.server.security.sasl_server_authenticator import SaslServerAuthenticator
from barnabas.server.security.session import ANONYMOUS, KafkaPrincipal
from barnabas.server.telemetry.client_metrics_manager import can_be_read
from barnabas.storage.filesystem import FileSlice

MAX_SECONDS = 0.25
"""The most processor time of the loop in one turn, and the longest time for which another client waits."""
ATTEMPTS = 3
MAX_BYTES = 80 << 20
"""64 MB of decompressed records, and the tables of the decompressor. Some of it may be memory that was free before."""
ANSWER_SECONDS = 100.0
SMALL = {ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_CLUSTER}
SMALL |= {ApiKey.LIST_CONFIG_RESOURCES, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALLOCATE_PRODUCER_IDS}
SMALL |= {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}
SMALL |= {ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE}  # refused without a look at the lists
"""APIs whose requests have nothing in them that there could be many of."""
EVERY = (
    *(*WORST, *WORST_OF_OPERATORS, *WORST_OF_MEMBERS, *WORST_ABOUT_RULES, *WORST_ABOUT_TOKENS),
    *(*WORST_OF_SHARE_GROUPS, *WORST_OF_SHARE_FETCHES, *WORST_OF_SHARE_STATE, *WORST_BETWEEN_BROKERS),
    *(*WORST_WITH_FOLLOWER, *WORST_OF_TELEMETRY),
)
BYSTANDERS = "bystanders"
MUCH_TO_PACK = {"compression.type": "zstd", "compression.zstd.level": "22"}
IN_CLUSTER = {"metrics.listeners": "HTTP://127.0.0.1:0", "auto.leader.rebalance.enable": "false"}
GUARDED = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
WITH_TOKENS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": MECHANISM,
    "delegation.token.secret.key": "the key of all brokers",
}
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "broker.id": str(BROKER_ID),
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
}
"""What is produced stays, however old it says that it is."""


class LongestTurn:
    """How much processor time the loop's thread spends in one callback."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        inner = asyncio.Handle._run

        def run(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            try:
                inner(handle)
            finally:
                self.seconds = max(self.seconds, time.thread_time() - began)

        monkeypatch.setattr(asyncio.Handle, "_run", run)


class Peak:
    """The process's resident memory at its highest, above what it was (Linux)."""

    def __init__(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._read("VmRSS")

    @staticmethod
    def _read(what: str) -> int:
        (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(what)]
        return int(line.split()[1]) * 1024

    @property
    def bytes(self) -> int:
        return self._read("VmHWM") - self._before


class Client(HostileConnection):
    """One that keeps the parts of its answer as they are."""

    parts: list[Any]

    def send(self, parts: list[Any], size: int) -> None:
        assert self.answer is None, "answered twice"
        assert size == sum(len(part) for part in parts)
        self.answer, self.parts = b"", parts

    def error(self, worst: Worst) -> int | NoCode | None:
        """What became of the request; None for nothing yet, or for an answer without a code."""
        if self.answer is None:
            if self.is_closed:
                return NoCode.CLOSED
            return NoCode.UNANSWERED if self.is_skipped else None
        data = b"".join(bytes(len(part)) if isinstance(part, FileSlice) else part for part in self.parts)
        codes = Counter(errors_in(read(worst.key, worst.version, data), worst.version))
        # Of two that are there as often one is of the whole answer, and that of the one item counts.
        return max(codes, key=lambda code: (codes[code], abs(code)), default=None)


def read(key: ApiKey, version: int, answer: bytes) -> Any:
    _, position = decode_response_header(key, version, answer, 4, len(answer))
    return decode_response(key, version, answer, position, len(answer))


def errors_in(message: Any, version: int) -> Iterator[int]:
    """All error codes in a message."""
    for field in fields_of(type(message)):
        if version in field.versions:
            value = getattr(message, field.name)
            if field.name in ("error_code", "partition_error_code"):
                yield value
            elif field.is_array and is_struct(field.element):
                for item in value or ():
                    yield from errors_in(item, version)


def held_up() -> float:
    """Seconds that this process's threads have waited for a processor that others had (Linux)."""
    nanoseconds = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended, or the kernel does not tell
            nanoseconds += int((thread / "schedstat").read_text().split()[1])
    return nanoseconds / 1e9


class Bystander:
    """A client on a connection of its own that asks for little, again and again, and notes how long it waited.

    What it waited because others had the processors is no fault of the broker's, and does not count.
    """

    def __init__(self, port: int) -> None:
        self.longest = 0.0
        self._answers = 0
        self._is_over = False
        self._stream = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._thread = threading.Thread(target=self._ask_on, daemon=True)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._stream.close()

    def _ask_on(self) -> None:
        records = valid_batch(random.Random(2))
        data = [TopicProduceData(name=BYSTANDERS, partition_data=[PartitionProduceData(index=0, records=records)])]
        produce = ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)
        asked: list[tuple[ApiKey, int, object]] = [
            (ApiKey.API_VERSIONS, 0, ApiVersionsRequest()),
            (ApiKey.PRODUCE, 9, produce),
        ]
        frames = [request_body(key, version, request, client_id="bystander") for key, version, request in asked]
        with suppress(OSError):  # the broker may stop first
            while not self._is_over:
                for frame in frames:
                    before, began = held_up(), time.perf_counter()
                    self._stream.sendall(len(frame).to_bytes(4, "big") + frame)
                    self._take(int.from_bytes(self._take(4), "big"))
                    waited = time.perf_counter() - began
                    self.longest = max(self.longest, waited - max(0.0, held_up() - before))
                    self._answers += 1
                    time.sleep(0.002)  # so that it is no burden itself

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            piece = self._stream.recv(size - len(taken))
            if not piece:
                raise ConnectionError
            taken += piece
        return taken

    async def is_served(self) -> None:
        """What it asks for now has been answered."""
        before = self._answers
        async with asyncio.timeout(ANSWER_SECONDS):
            while self._answers < before + 2:
                await asyncio.sleep(0.001)


async def no_preparation(worst: Worst) -> None:
    """Nothing has to be asked before."""


def committed(group: str, topic: str, partitions: int) -> OffsetCommitRequest:
    """Offsets of a group that has no members."""
    offsets = [OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in range(partitions)]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=offsets)]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)


class Cluster:
    """A broker that is handed frames."""

    def __init__(self, server: BrokerServer, apis: KafkaApis, known: Known, parts: Services) -> None:
        self.server = server
        self.apis = apis
        self.known = known
        self.services = parts
        self.listener = server.listeners[0]
        self.principal = ANONYMOUS
        self.authentication: SaslServerAuthenticator | None = None

    def client(self) -> Client:
        """One that has come by the listener, and was let in as who it said it is."""
        client = Client(self.listener)
        client.session.principal, client.session.authentication = self.principal, self.authentication
        return client

    async def call(self, frame: bytes) -> Client:
        connection, body = self.client(), bytearray(frame)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(self._handle, connection, body)
        await asyncio.sleep(0.01)
        deadline = time.monotonic() + ANSWER_SECONDS
        while not connection.is_decided and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return connection

    def _handle(self, connection: Any, body: bytearray) -> None:
        try:
            self.apis.handle(connection, memoryview(body), 0, len(body))
        except ProtocolError:
            connection.close()

    def send(self, key: ApiKey, version: int, request: object) -> Client:
        """An honest request, whose turns nobody measures."""
        head = encode_request_header(RequestHeader(key, version, 1, "honest"))
        connection = self.client()
        self._handle(connection, bytearray(head + encode_request(request, version)))
        return connection

    async def ask(self, key: ApiKey, version: int, request: object) -> Any:
        """Likewise, and what is answered."""
        connection = self.send(key, version, request)
        async with asyncio.timeout(ANSWER_SECONDS):
            while not connection.is_decided:
                await asyncio.sleep(0.001)
        assert connection.answer is not None
        return read(key, version, b"".join(connection.parts))

    async def until_served(self, key: ApiKey, version: int, request: object) -> Any:
        """As `ask`, again until nothing is in the way any more."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while (answer := await self.ask(key, version, request)).error_code:
                await asyncio.sleep(0.01)
        return answer

    async def until_gone(self, topic: str) -> None:
        """Delete the topic if it is there."""
        metadata = self.services.metadata_cache
        if metadata.topic_id(topic) is not None:
            await self.server.delete_topic(topic)
        async with asyncio.timeout(ANSWER_SECONDS):
            while metadata.topic_id(topic) is not None:
                await asyncio.sleep(0.01)

    async def until_joined(self, group: str, requests: Sequence[JoinGroupRequest]) -> None:
        """So many are members; what they are answered is of no interest."""
        for request in requests:
            self.send(ApiKey.JOIN_GROUP, 5, request)
        async with asyncio.timeout(ANSWER_SECONDS):
            while len(await self._members(group)) < len(requests):
                await asyncio.sleep(0.01)

    async def _members(self, group: str) -> list[DescribedGroupMember]:
        answer = await self.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[group]))
        members: list[DescribedGroupMember] = answer.groups[0].members
        return members


@asynccontextmanager
async def others_forgotten() -> AsyncIterator[None]:
    """Let no collection of garbage look at what earlier tests of this process have left alive."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@asynccontextmanager
async def serving(
    folder: Path,
    settings: Mapping[str, str] = MappingProxyType({}),
    join_store: Callable[[], Awaitable[MetadataStore]] | None = None,
) -> AsyncIterator[Cluster]:
    """A broker with a topic that has nothing in it."""
    loop = asyncio.get_running_loop()
    config = BrokerConfig.from_properties({"log.dirs": str(folder), **SETTINGS, **settings})
    server = BrokerServer(config, host_ports(loop, WorkerPool(loop)), loop, join_store=join_store)
    await server.start()
    state = server.state
    parts = services(state)
    apis = KafkaApis(
        parts, loop, quotas=state.quotas, turn_queue=state.turn_queue, authorizer=state.security.authorizer
    )
    try:
        await server.create_topic(TOPIC, 1, {})
        await server.create_topic(BYSTANDERS, 1, {})
        topic_id = server.state.metadata.topic_id(TOPIC)
        assert topic_id is not None
        orders = server.state.orders
        known = Known(
            topic_id, 0 if orders is None else orders.controller_epoch, server.state.broker_epoch, str(folder)
        )
        yield Cluster(server, apis, known, parts)
    finally:
        await apis.close()
        await server.stop()


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A broker alone with much in few places, and two log directories."""
    folders = [str(folder / "1"), str(folder / "2")]
    async with serving(folder, {"log.dirs": ",".join(folders)}) as here:
        here.known = here.known._replace(folder=folders[1])
        server = here.server
        await server.create_topic(PACKED, 1, MUCH_TO_PACK)
        await server.create_topic(PATIENT, 1, MUCH_TO_PACK | {"max.message.bytes": "500000000"})
        await server.create_topic(WIDE, WIDE_PARTITIONS, {})
        await server.create_topic(VAST, VAST_PARTITIONS, {})
        chance = random.Random(1)
        batches = [valid_batch(chance, producer_id=n, producer_epoch=0, base_sequence=0) for n in range(2000)]
        for records in [*batches, *[tiny_batch(100_000)] * 10]:
            await here.ask(ApiKey.PRODUCE, 9, produced(TOPIC, 1, records))
        await here.ask(ApiKey.PRODUCE, 9, produced(WIDE, WIDE_PARTITIONS, tiny_batch(10_000)))
        await here.ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
        while server.state.group_coordinator.group_manager.is_loading:
            await asyncio.sleep(0.01)
        await here.ask(ApiKey.OFFSET_COMMIT, 8, committed(GROUP, WIDE, WIDE_PARTITIONS))
        yield here


@asynccontextmanager
async def member(folder: Path, tree: DataTree) -> AsyncIterator[Cluster]:
    """A broker of a cluster, its controller, that wants to hear of its clients."""
    async with serving(folder, IN_CLUSTER, partial(joined, tree)) as here:
        subscription = {"metrics": ",".join(WISH.metrics), "interval.ms": str(WISH.interval_ms)}
        configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in subscription.items()]
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.CLIENT_METRICS, resource_name="all", configs=configs
        )
        await here.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
        yield here


@asynccontextmanager
async def follower(folder: Path, tree: DataTree) -> AsyncIterator[None]:
    """The other broker of a cluster."""
    loop = asyncio.get_running_loop()
    own = {"log.dirs": str(folder), "broker.id": str(FOLLOWER_ID)}
    config = BrokerConfig.from_properties({**SETTINGS, **IN_CLUSTER, **own})
    server = BrokerServer(config, host_ports(loop, WorkerPool(loop)), loop, join_store=partial(joined, tree))
    await server.start()
    try:
        yield
    finally:
        await server.stop()


async def joined(tree: DataTree) -> EmbeddedStore:
    return EmbeddedStore(tree)


async def complaints(
    here: Cluster,
    worst: Iterable[Worst],
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[Worst], Awaitable[None]] = no_preparation,
) -> list[str]:
    """What is wrong with how these are dealt with."""
    found = []
    with Bystander(here.server.listeners[0].port) as bystander:
        for name, one in by_name(worst):
            frame = one.frame(here.known)
            assert len(frame) <= FRAME_BYTES
            turns, waits, size = list[float](), list[float](), 0
            # A machine that is busy elsewhere keeps a client waiting, too, but not each time.
            while not waits or (max(turns[-1], waits[-1]) > MAX_SECONDS and len(waits) < ATTEMPTS):
                await prepare(one)
                await bystander.is_served()
                bystander.longest = 0.0
                with monkeypatch.context() as patch:
                    peak, turn = Peak(), LongestTurn(patch)
                    client = await here.call(frame)
                    turns.append(turn.seconds)
                    if not waits:
                        size = peak.bytes
                await bystander.is_served()
                waits.append(bystander.longest)
            error = client.error(one)
            if (
                error != one.error
                or here.apis.failures
                or max(min(turns), min(waits)) > MAX_SECONDS
                or size > MAX_BYTES
            ):
                waited = ", ".join(f"{wait:.3f}" for wait in waits)
                found.append(
                    f"{name}: {min(turns):.3f} s, {size >> 20} MB, others waited {waited} s, "
                    f"answered: {client.is_decided}, error {error} instead of {one.error!r}"
                )
    return found


@pytest.mark.verify
@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(tmp_path) as here, others_forgotten():
        assert await complaints(here, WORST, monkeypatch) == []

        async def prepare(one: Worst) -> None:
            if one.key is ApiKey.CREATE_TOPICS:
                await here.until_gone(MADE)
            elif one.key is ApiKey.CREATE_PARTITIONS:
                await here.until_gone(GROWN)
                await here.server.create_topic(GROWN, 1, {})
            elif one.key is ApiKey.DELETE_TOPICS:
                await here.until_gone(MADE)
                await here.server.create_topic(MADE, NEW_PARTITIONS, {})
            elif one.key is ApiKey.DELETE_GROUPS:
                for group in GROUPS:
                    await here.ask(ApiKey.OFFSET_COMMIT, 8, committed(group, TOPIC, 1))

        assert await complaints(here, WORST_OF_OPERATORS, monkeypatch, prepare) == []
        assert here.apis.failures == 0


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request_between_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with member(tmp_path, DataTree(now_ms)) as here, others_forgotten():
        assert here.services.served.keys() | TELEMETRY.keys() == ALL.keys()

        async def prepare(one: Worst) -> None:
            if one.key is ApiKey.UPDATE_METADATA:
                await here.ask(ApiKey.UPDATE_METADATA, 8, update(here.known))  # there is one broker again
            elif one.key is ApiKey.LEADER_AND_ISR:
                await here.ask(ApiKey.STOP_REPLICA, 2, forgotten(here.known))

        assert await complaints(here, WORST_BETWEEN_BROKERS, monkeypatch, prepare) == []


async def initialize_share_state(here: Cluster, group: str) -> None:
    """Store the share state of partition 0 of the known topic; the coordinator may have to load its log first."""
    request = initialize(group, here.known.topic_id, initialize_data())
    key = SharePartitionKey(group, here.known.topic_id, 0).coordinator_key
    async with asyncio.timeout(ANSWER_SECONDS):
        while any(errors_in(await here.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, request), 0)):
            await here.ask(ApiKey.FIND_COORDINATOR, 6, FindCoordinatorRequest(key_type=2, coordinator_keys=[key]))


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request_about_share_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as here, others_forgotten():

        async def prepare(_: Worst) -> None:
            await initialize_share_state(here, SHARE_GROUP)

        assert await complaints(here, WORST_OF_SHARE_STATE, monkeypatch, prepare) == []


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_share_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as here, others_forgotten():
        await initialize_share_state(here, SHARING_GROUP)

        async def prepare(_: Worst) -> None:
            assert (await here.ask(ApiKey.SHARE_FETCH, 2, begin_session(here.known))).error_code == ErrorCode.NONE

        assert await complaints(here, WORST_OF_SHARE_FETCHES, monkeypatch, prepare) == []


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_push_of_telemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_be_read():
        skip_or_fail("no package for telemetry: pip install barnabas[telemetry]")
    async with member(tmp_path, DataTree(now_ms)) as here, others_forgotten():

        async def prepare(one: Worst) -> None:
            client = GetTelemetrySubscriptionsRequest(client_instance_id=telemetry_client(one.name))
            await here.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client)

        assert await complaints(here, WORST_OF_TELEMETRY, monkeypatch, prepare) == []


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request_about_followers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = DataTree(now_ms)
    async with member(tmp_path / "1", tree) as here, follower(tmp_path / "2", tree), others_forgotten():
        both = (BROKER_ID, FOLLOWER_ID)
        metadata, controller = here.server.state.metadata, here.server.state.controller
        wish = TopicCreation(FOLLOWED, assignments=[(index, both) for index in range(FOLLOWED_PARTITIONS)])

        async def until_all(are: Callable[[PartitionImage], bool]) -> None:
            partitions = [TopicPartition(FOLLOWED, index) for index in range(FOLLOWED_PARTITIONS)]
            async with asyncio.timeout(ANSWER_SECONDS):
                while not all((image := metadata.partition(one)) and are(image) for one in partitions):
                    await asyncio.sleep(0.01)

        async def prepare(one: Worst) -> None:
            await here.until_gone(FOLLOWED)
            assert isinstance((await controller.create_topics([wish]))[FOLLOWED], CreatedTopic)
            await until_all(lambda image: image.isr == both)
            if one.key is ApiKey.ELECT_LEADERS:
                await here.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, following_preferred())
                await until_all(lambda image: image.replicas == both[::-1])

        assert await complaints(here, WORST_WITH_FOLLOWER, monkeypatch, prepare) == []


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request_about_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path, GUARDED) as here, others_forgotten():
        assert await complaints(here, WORST_ABOUT_RULES, monkeypatch) == []
        authorizer = here.server.state.security.authorizer
        assert isinstance(authorizer, AclAuthorizer)
        assert not list(authorizer._index.patterns()), "the last request deletes all"


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request_about_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path, WITH_TOKENS) as here, others_forgotten():
        here.listener, here.principal = here.server.listeners[1], KafkaPrincipal("User", USER)
        for _ in range(OTHER_TOKENS):
            await here.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, token_wish())
        tokens = here.server.state.security.delegation_tokens
        first, *_ = [token.token_id async for token in tokens.all()]
        here.known = here.known._replace(token=tokens.secret(first))

        door = here.server.state.security.listener_security[here.listener.name]

        async def prepare(one: Worst) -> None:
            here.authentication = None
            if one.key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                assert door.sasl is not None
                here.authentication = SaslServerAuthenticator(door.sasl, asyncio.get_running_loop().time)
                if one.key is ApiKey.SASL_AUTHENTICATE:
                    await here.authentication.begin_exchange(MECHANISM, raw=False)
            if one.error is ErrorCode.NONE and one.key is ApiKey.CREATE_DELEGATION_TOKEN:
                _, *others = [token.token_id async for token in tokens.all()]
                for token_id in others[OTHER_TOKENS - 1 :]:
                    await here.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, end(tokens.secret(token_id)))

        assert await complaints(here, WORST_ABOUT_TOKENS, monkeypatch, prepare) == []
        assert len([token async for token in tokens.all()]) == MAX_TOKENS_PER_OWNER
        others = others_tokens()
        for more, worst in WORST_AMONG_OWNERS:
            for token in islice(others, more):
                await tokens._store.add(token)
            assert await complaints(here, [worst], monkeypatch, prepare) == []


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request_of_a_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as here, others_forgotten():
        await here.server.create_topic(WIDE, WIDE_PARTITIONS, {})
        for kind, name in ((0, GROUP), (1, TRANSACTION)):
            await here.ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]))
        member = await here.until_served(ApiKey.JOIN_GROUP, 3, joining())
        consumer = await here.until_served(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, consumer_joining())
        await here.until_served(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, streams_joining())
        begin = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=600_000)
        producer = await here.until_served(ApiKey.INIT_PRODUCER_ID, 4, begin)
        here.known = here.known._replace(
            member_id=member.member_id,
            generation=member.generation_id,
            member_epoch=consumer.member_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )

        async def prepare(one: Worst) -> None:
            if one.key is ApiKey.LEAVE_GROUP and one.error is ErrorCode.NONE:
                await here.until_joined(LEFT, [joining_leaver(number) for number in range(LEAVERS)])
            assert (await here.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, consumer_joining())).error_code == 0
            everything = added(here.known, [(WIDE, list(range(WIDE_PARTITIONS)))])
            async with asyncio.timeout(ANSWER_SECONDS):
                while any(errors_in(await here.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, everything), 3)):
                    await asyncio.sleep(0.01)  # the markers of the transaction before are being written

        assert await complaints(here, WORST_OF_MEMBERS, monkeypatch, prepare) == []


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request_about_share_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as here, others_forgotten():
        await here.server.create_topic(WIDE, WIDE_PARTITIONS, {})
        await here.ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[MEMBERS_GROUP]))
        await here.until_served(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_beat(SHARE_MEMBER, WIDE))
        deletions = [one for one in WORST_OF_SHARE_GROUPS if one.key is ApiKey.DELETE_SHARE_GROUP_OFFSETS]

        async def prepare(one: Worst) -> None:
            if one in deletions:
                altered = next(one for one in WORST_OF_SHARE_GROUPS if one.key is ApiKey.ALTER_SHARE_GROUP_OFFSETS)
                await here.ask(altered.key, altered.version, altered.make(WIDE_PARTITIONS, here.known))

        assert await complaints(here, WORST_OF_SHARE_GROUPS, monkeypatch, prepare) == []


@pytest.mark.parametrize("said", [ErrorCode.NONE, NoCode.UNANSWERED, NoCode.CLOSED])
async def test_what_becomes_of_a_request_is_looked_at(
    said: ErrorCode | NoCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, closed = [
        one
        for one in WORST
        if one.key is ApiKey.PRODUCE and one.name in ("unknown partitions", "unknown partitions, no answer wanted")
    ]
    async with serving(tmp_path) as here, others_forgotten():
        (complaint,) = await complaints(here, [refused._replace(error=said)], monkeypatch)
        assert f"error 3 instead of {said!r}" in complaint
        other = closed._replace(error=said)
        assert len(await complaints(here, [other], monkeypatch)) == (said is not NoCode.CLOSED)


def test_every_api_is_tried() -> None:
    assert {one.key for one in EVERY} | SMALL == set(ALL)


def test_something_of_every_api_is_carried_out() -> None:
    assert {one.key for one in EVERY if one.error is ErrorCode.NONE} | SMALL == set(ALL)


async def test_what_came_first_is_first_in_the_log_whatever_it_takes_to_validate(tmp_path: Path) -> None:
    async with serving(tmp_path) as here:
        await here.server.create_topic(PACKED, 1, MUCH_TO_PACK)

        def ask(records: bytes, topic: str) -> HostileConnection:
            data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)
            head = encode_request_header(RequestHeader(ApiKey.PRODUCE, 9, 1, "honest"))
            connection, body = HostileConnection(here.listener), bytearray(head + encode_request(request, 9))
            here.apis.handle(connection, memoryview(body), 0, len(body))  # type: ignore[arg-type]
            body[:] = bytes(len(body))  # as the connection's next request would
            return connection

        small = valid_batch(random.Random(1))
        asked = [ask(records, PACKED) for records in (noise_batch(300_000), small, noise_batch(200_000), small)]
        elsewhere = ask(small, TOPIC)
        assert elsewhere.is_decided and not any(one.is_decided for one in asked)
        async with asyncio.timeout(ANSWER_SECONDS):
            while not all(one.is_decided for one in asked):
                await asyncio.sleep(0.01)
        offsets = []
        for one in asked:
            assert one.answer is not None
            _, position = decode_response_header(ApiKey.PRODUCE, 9, one.answer, 4, len(one.answer))
            response = decode_response(ApiKey.PRODUCE, 9, one.answer, position, len(one.answer))
            (partition,) = response.responses[0].partition_responses
            assert partition.error_code == 0
            offsets.append(partition.base_offset)
        assert offsets[0] == 0
        assert offsets == sorted(set(offsets))
