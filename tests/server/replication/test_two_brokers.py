"""Replicas on brokers of their own, over the network: simulated machines, and requests that the test gives by hand."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.data_plane import at, batch, fetch, only_fetched, only_produced, produce, values_in
from tests.waiting import until

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.fetch import FetchPartition, ReplicaState
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata.metadata_cache import PartitionImage, TopicImage
from barnabas.server.metadata.znodes import BrokerEndpoint, BrokerInfo
from barnabas.server.network.broker_connections import BrokerConnections
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.replication.delayed_fetch import FetchedPartition, FetchParams, FetchResult
from barnabas.server.replication.leader_and_isr import IsrChange, LeaderAndIsr, LeaderAndIsrState
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replication import Replication
from barnabas.server.runtime.scheduler import Scheduler
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import PORT, SimBroker, World
from barnabas.storage.log_validator import CLIENT_RULES
from barnabas.storage.log_values import FetchIsolation

TOPIC_ID = UUID(int=77)
NAME = TopicPartition("t", 0)


class Member:
    """One broker of the cluster."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.host = f"10.0.0.{broker_id}"
        self.broker = SimBroker(cluster.world, self.host)
        self.epoch = 0

    @property
    def partition(self) -> Partition:
        assert self.broker.server is not None
        found = self.broker.server.state.replica_manager.get_partition(*NAME)
        assert found is not None
        return found

    async def start(self) -> None:
        await self.broker.start()
        self.epoch += 1
        await self.cluster.world.spawn(self.broker.node, self._join())

    async def _join(self) -> None:
        cluster, server = self.cluster, self.broker.server
        assert server is not None
        state, loop = server.state, cluster.world.loop
        metadata, rng = state.metadata, random.Random(self.id)
        # As a broker alone it has taken over what it found.
        await state.replica_manager.stop_replicas([NAME], delete=False)
        epoch = self.epoch
        replication = Replication(
            state.replica_manager,
            broker_id=self.id,
            broker_epoch=lambda: epoch,
            config=state.config,
            metadata=metadata,
            isr_changes=cluster,
            connect=lambda timeout_ms: BrokerConnections(self.id, cluster.endpoint, rng, timeout_ms=timeout_ms),
            paused=state.cleaner.paused,
            stopwatch=lambda: 0.0,
            loop=loop,
        )
        replication.schedule(Scheduler(loop))
        self.tell()

    def tell(self) -> None:
        """What UpdateMetadata says."""
        cluster, server = self.cluster, self.broker.server
        assert server is not None
        metadata = server.state.metadata
        metadata.set_brokers(
            {
                one.id: BrokerInfo(one.id, (BrokerEndpoint("PLAINTEXT", one.host, PORT),), f"rack-{one.id}", one.epoch)
                for one in cluster.members.values()
                if one.broker.server is not None
            }
        )
        replicas = tuple(cluster.members)
        image = PartitionImage(0, cluster.leader, cluster.leader_epoch, 0, replicas, replicas)
        metadata.put_topics([TopicImage("t", TOPIC_ID, {0: image})])

    def order(self) -> None:
        """LeaderAndIsr."""
        cluster, server = self.cluster, self.broker.server
        assert server is not None
        manager = server.state.replica_manager
        order = LeaderAndIsrState(
            NAME,
            TOPIC_ID,
            cluster.leader,
            cluster.leader_epoch,
            cluster.partition_epoch,
            tuple(cluster.members),
            cluster.isr,
            is_new=True,
        )
        if cluster.leader == self.id:
            manager.become_leader(order)
        else:
            manager.become_follower(order)


class Cluster:
    """The brokers, and the controller in one: it grants every change of the in-sync replicas."""

    def __init__(self, world: World, size: int) -> None:
        self.world = world
        self.leader, self.leader_epoch, self.partition_epoch = 1, 0, 0
        self.members: dict[int, Member] = {}
        for number in range(1, size + 1):
            self.members[number] = Member(self, number)
        self.isr = tuple(self.members)
        self.changes: list[IsrChange] = []

    def endpoint(self, broker_id: int) -> tuple[str, int] | None:
        member = self.members[broker_id]
        return (member.host, PORT) if member.broker.server is not None else None

    async def submit(self, change: IsrChange) -> LeaderAndIsr:
        self.changes.append(change)
        await asyncio.sleep(0.01)
        if change.leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "old")
        if change.partition_epoch != self.partition_epoch:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "old")
        self.partition_epoch, self.isr = self.partition_epoch + 1, change.isr
        return LeaderAndIsr(self.leader, self.leader_epoch, self.partition_epoch, self.isr)

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        self.leader, self.leader_epoch, self.partition_epoch = leader, self.leader_epoch + 1, self.partition_epoch + 1
        self.isr = self.isr if isr is None else isr
        for member in self.members.values():
            if member.broker.server is not None:
                self.world.spawn(member.broker.node, _called(member.tell, member.order))

    async def connect(self, broker_id: int) -> BrokerConnection:
        options = ConnectionOptions(client_id="test", request_timeout_ms=600_000)
        return await BrokerConnection.open(self.members[broker_id].host, PORT, options)

    async def append(self, *values: bytes, acks: int = -1) -> ErrorCode:
        connection = await self.connect(self.leader)
        response = await connection.send(produce(batch(*values), acks=acks, timeout_ms=30_000), 9)
        connection.close()
        return ErrorCode(only_produced(response).error_code)

    @property
    def ends(self) -> list[int]:
        return [one.partition.log.log_end_offset for one in self.members.values() if one.broker.server is not None]

    @property
    def is_even(self) -> bool:
        marks = [one.partition.log.high_watermark for one in self.members.values() if one.broker.server is not None]
        return len({*self.ends, *marks}) == 1


async def _called(*functions: Callable[[], None]) -> None:
    for function in functions:
        function()


def play(story: Callable[[Cluster], Awaitable[None]], size: int = 2, settings: Mapping[str, str] | None = None) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = Cluster(World(loop, 1, settings={"min.insync.replicas": "1", **(settings or {})}), size)
        for member in cluster.members.values():
            await member.start()
        cluster.elect(1)
        await asyncio.sleep(0.1)
        await story(cluster)

    run(main, 1)


@pytest.mark.parametrize("durability", ["disk", "page-cache"])
@pytest.mark.parametrize("protocol", ["3.9-IV0", "2.6", "2.0", "0.11.0"])
def test_a_follower_has_the_very_bytes_and_acks_all_waits_for_it(durability: str, protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(20):
            assert await cluster.append(b"%d" % number) is ErrorCode.NONE
            assert cluster.ends == [number + 1, number + 1]
        await until(lambda: cluster.is_even)
        logs = [one.partition.log for one in cluster.members.values()]
        assert len({bytes(log.read(0, 1 << 20).data) for log in logs}) == 1
        if durability == "disk":
            assert [log.recovery_point for log in logs] == [20, 20]

    play(story, settings={"acks.all.durability": durability, "inter.broker.protocol.version": protocol})


def test_fetches_of_followers_wait_shortly_after_an_election(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cannot contain the partitions of the new leader before the present one returns."""

    async def story(cluster: Cluster) -> None:
        server = cluster.members[1].broker.server
        assert server is not None
        manager, loop = server.state.replica_manager, cluster.world.loop
        fetched: list[float] = []
        original = manager.fetch_records

        def fetch_records(params: FetchParams, *args: Any, **kwargs: Any) -> Any:
            if params.follower == 2:
                fetched.append(loop.time())
            return original(params, *args, **kwargs)

        monkeypatch.setattr(manager, "fetch_records", fetch_records)
        consumer = await cluster.connect(1)
        waiting = consumer.send(fetch(at(0), max_wait_ms=60_000), 12)
        await until(lambda: len(fetched) > 1 and manager.delayed_operations["Fetch"] == 2)
        assert fetched[-1] - fetched[-2] > 0.4, "there is nothing to fetch"
        elected = loop.time()
        manager.on_leaders_elected([2, 3])
        await asyncio.sleep(3.0)
        after = [moment - elected for moment in fetched if moment > elected]
        assert after[0] < 0.1
        assert sum(moment < 1.0 for moment in after) >= 8
        assert sum(moment > 1.6 for moment in after) <= 4
        assert not waiting.done()
        consumer.close()

    play(story)


def test_appends_of_one_turn_reach_a_follower_in_one_response() -> None:
    async def story(cluster: Cluster) -> None:
        server = cluster.members[1].broker.server
        assert server is not None
        manager, partition = server.state.replica_manager, cluster.members[1].partition
        cluster.members[2].broker.crash("kill")
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        params = FetchParams([("t", wanted)], 60_000, 1, 1 << 20, FetchIsolation.LOG_END, follower=2)
        results: list[list[FetchResult]] = []
        manager.fetch_records(params, results.append)
        for value in (b"first", b"second"):
            records = memoryview(bytearray(batch(value)))
            partition.append_records_to_leader(records, AppendRequest(1, 0, print, CLIENT_RULES))
            assert not results, "more records may be appended in this turn"
        await asyncio.sleep(0.001)
        ((result,),) = results
        assert isinstance(result, FetchedPartition)
        found = [record.value for one in iter_batches(bytes(cast(bytes, result.records))) for record in one.records()]
        assert found == [b"first", b"second"]

    play(story)


def test_a_dead_follower_leaves_the_set_and_comes_back_into_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(b"a")
        cluster.members[2].broker.crash("kill")
        cluster.members[1].tell()
        began = cluster.world.loop.time()
        assert await cluster.append(b"b") is ErrorCode.NONE, "when the follower is given up"
        assert 5 <= cluster.world.loop.time() - began <= 16
        assert cluster.isr == (1,)
        await cluster.members[2].start()
        cluster.elect(1)
        await until(lambda: cluster.isr == (1, 2))
        assert cluster.changes[-1].broker_epochs == (-1, 2)
        assert await cluster.append(b"c") is ErrorCode.NONE
        assert cluster.ends == [3, 3]

    play(story, settings={"replica.lag.time.max.ms": "10000"})


def test_too_few_in_sync_are_told_before_and_after() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.members[2].broker.crash("kill")
        cluster.members[1].tell()
        waiting = asyncio.ensure_future(cluster.append(b"a"))
        await until(lambda: cluster.isr == (1,))
        assert await cluster.append(b"b") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.members[1].partition.log.high_watermark == 0
        assert await waiting is ErrorCode.REQUEST_TIMED_OUT

    play(story, settings={"min.insync.replicas": "2", "replica.lag.time.max.ms": "1000"})


@pytest.mark.parametrize("protocol", ["3.9-IV0", "2.6"])
def test_what_only_the_old_leader_has_is_cut_off(protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(b"a")
        await until(lambda: cluster.is_even)
        old, new = cluster.members[1], cluster.members[2]
        cluster.world.network.cut(old.broker.node, new.broker.node)
        assert await cluster.append(b"lost", acks=1) is ErrorCode.NONE
        lost = asyncio.ensure_future(cluster.append(b"lost, too"))
        await asyncio.sleep(0.5)
        cluster.elect(2, isr=(2,))
        assert await lost is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await cluster.append(b"b") is ErrorCode.NONE
        assert cluster.ends == [3, 2]
        cluster.world.network.heal()
        await until(lambda: cluster.isr == (2, 1) and cluster.is_even)
        read = [bytes(one.partition.log.read(0, 1 << 20).data) for one in (old, new)]
        assert read[0] == read[1]
        assert await cluster.append(b"c") is ErrorCode.NONE

    play(story, settings={"inter.broker.protocol.version": protocol})


def test_a_leader_that_does_not_lead_yet_is_logged_at_the_first_attempt(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(b"a")
        await until(lambda: cluster.is_even)
        leader = cluster.members[1].partition
        for _ in range(2):
            leader.is_leader = False
            caplog.clear()
            await until(lambda: len(levels()) > 3)
            assert levels() == [logging.INFO, *[logging.DEBUG] * (len(levels()) - 1)]
            leader.is_leader = True
            assert await cluster.append(b"b") is ErrorCode.NONE

    def levels() -> list[int]:
        return [one.levelno for one in caplog.records if "returned NOT_LEADER_OR_FOLLOWER" in one.getMessage()]

    with caplog.at_level(logging.DEBUG, "barnabas.replication"):
        play(story)


def test_a_follower_without_the_beginning_starts_where_the_leader_does() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.elect(1, isr=(1,))
        member = cluster.members[2]
        member.broker.crash("kill")
        cluster.members[1].tell()
        for number in range(10):
            await cluster.append(b"%d" % number, b"x")
        connection = await cluster.connect(1)
        deletion = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=7)])
        response = await connection.send(DeleteRecordsRequest(topics=[deletion], timeout_ms=1000), 2)
        assert response.topics[0].partitions[0].low_watermark == 7
        await member.start()
        cluster.elect(1)
        await until(lambda: cluster.isr == (1, 2) and cluster.is_even)
        log = member.partition.log
        assert (log.log_start_offset, log.segments.first.base_offset) == (7, 6)
        leader = cluster.members[1].partition.log
        assert bytes(log.read(7, 1 << 20).data) == bytes(leader.read(7, 1 << 20).data)

    play(story)


def test_a_deletion_of_records_is_over_when_the_followers_have_followed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(*[b"v"] * 10)
        connection = await cluster.connect(1)
        deletion = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])
        response = await connection.send(DeleteRecordsRequest(topics=[deletion], timeout_ms=5000), 2)
        assert (response.topics[0].partitions[0].error_code, response.topics[0].partitions[0].low_watermark) == (0, 5)
        assert [one.partition.log.log_start_offset for one in cluster.members.values()] == [5, 5]
        cluster.world.network.cut(cluster.members[1].broker.node, cluster.members[2].broker.node)
        deletion.partitions[0].offset = 6
        response = await connection.send(DeleteRecordsRequest(topics=[deletion], timeout_ms=500), 2)
        assert response.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT

    play(story)


def test_consumers_are_sent_to_their_rack_and_served_there() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(b"a", b"b")
        await until(lambda: cluster.is_even)
        leader, follower = await cluster.connect(1), await cluster.connect(2)
        wanted = at(0, current_leader_epoch=cluster.leader_epoch)
        told = only_fetched(await leader.send(fetch(wanted, rack_id="rack-2", min_bytes=1, max_wait_ms=500), 12))
        assert (told.preferred_read_replica, bytes(told.records or b"")) == (2, b"")
        near = only_fetched(await follower.send(fetch(wanted, rack_id="rack-2"), 12))
        assert (values_in(near), near.high_watermark) == ([b"a", b"b"], 2)
        far = only_fetched(await leader.send(fetch(wanted, rack_id="rack-9"), 12))
        assert (values_in(far), far.preferred_read_replica) == ([b"a", b"b"], -1)
        old = only_fetched(await follower.send(fetch(at(0)), 10))
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        waiting = follower.send(fetch(at(2), rack_id="rack-2", max_wait_ms=60_000), 12)
        await cluster.append(b"c")
        began = cluster.world.loop.time()
        assert values_in(only_fetched(await waiting)) == [b"c"]
        assert cluster.world.loop.time() - began < 0.2, "it hears of the high watermark at once"
        beyond = only_fetched(await follower.send(fetch(at(9), rack_id="rack-2"), 12))
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        waiting = follower.send(fetch(at(3), rack_id="rack-2", max_wait_ms=60_000), 12)
        await asyncio.sleep(0.1)
        cluster.elect(2)
        assert only_fetched(await waiting).error_code == ErrorCode.NONE, "the end of a role ends the wait"

    play(story, settings={"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"})


def test_a_new_leader_does_not_let_consumers_jump_back() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(b"a", b"b")
        cluster.world.network.cut(cluster.members[1].broker.node, cluster.members[2].broker.node)
        cluster.members[2].partition.log.high_watermark = 1
        cluster.elect(2, isr=(2, 1))
        await asyncio.sleep(0.1)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        connection = await cluster.connect(2)
        codes = [
            (await connection.send(request, version)).topics[0].partitions[0].error_code for version in (2, 4, 5, 10)
        ]
        assert codes == [ErrorCode.LEADER_NOT_AVAILABLE] * 2 + [ErrorCode.OFFSET_NOT_AVAILABLE] * 2
        cluster.world.network.heal()
        await until(lambda: cluster.is_even)
        assert (await connection.send(request, 5)).topics[0].partitions[0].offset == 2

    play(story)


def test_coordinators_move_with_their_partitions() -> None:
    async def story(cluster: Cluster) -> None:
        told: list[tuple[int, bool]] = []
        for member in cluster.members.values():
            assert member.broker.server is not None
            manager = member.broker.server.state.replica_manager
            manager.on_role_change(lambda name, member=member: told.append((member.id, member.partition.is_leader)))  # type: ignore[misc]
        cluster.elect(2)
        await asyncio.sleep(0.1)
        assert sorted(told) == [(1, False), (2, True)]
        cluster.elect(2)
        await asyncio.sleep(0.1)
        assert sorted(told[2:]) == [(1, False), (2, True)]

    play(story)


def test_who_lags_is_throttled_at_the_leader_and_at_the_follower() -> None:
    async def story(cluster: Cluster) -> None:
        for member in cluster.members.values():
            assert member.broker.server is not None
            state = member.broker.server.state
            rate = {f"{role}.replication.throttled.rate": "2000" for role in ("leader", "follower")}
            state.dynamic_config.broker_config_changed(rate, per_broker=False)
            lists = {f"{role}.replication.throttled.replicas": "*" for role in ("leader", "follower")}
            state.dynamic_config.topic_config_changed("t", lists)
        cluster.world.network.cut(cluster.members[1].broker.node, cluster.members[2].broker.node)
        cluster.elect(1, isr=(1,))
        await asyncio.sleep(0.1)
        for _ in range(100):
            await cluster.append(b"x" * 1000, acks=1)
        cluster.world.network.heal()
        began = cluster.world.loop.time()
        await until(lambda: cluster.isr == (1, 2), seconds=100)
        assert 35 < cluster.world.loop.time() - began < 90, "a hundred kilobytes at two a second"
        began = cluster.world.loop.time()
        for _ in range(10):
            await cluster.append(b"x" * 1000)
        assert cluster.world.loop.time() - began < 1, "who is in sync is not held back"

    play(story, settings={"replica.fetch.max.bytes": "3000"})


def test_a_fetch_of_an_earlier_life_counts_for_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(b"a", b"b")
        connection = await cluster.connect(1)
        wanted = at(0, current_leader_epoch=cluster.leader_epoch)
        name: dict[str, Any] = {"topic_id": TOPIC_ID}
        asked = fetch(wanted, **name, replica_state=ReplicaState(replica_id=2, replica_epoch=0))
        assert only_fetched(await connection.send(asked, 15)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        followers = cluster.members[1].partition.followers
        assert followers is not None
        assert followers.replicas[2].log_end_offset == 2
        stranger = fetch(wanted, **name, replica_state=ReplicaState(replica_id=9, replica_epoch=0))
        assert only_fetched(await connection.send(stranger, 15)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    play(story)


def test_a_follower_keeps_smaller_segments_than_the_leader_had() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.world.network.cut(cluster.members[1].broker.node, cluster.members[2].broker.node)
        cluster.elect(1, isr=(1,))
        await asyncio.sleep(0.1)
        await cluster.append(b"x" * 3000)
        for _ in range(40):
            await cluster.append(b"x" * 100)
        for member in cluster.members.values():
            log = member.partition.log
            log.config = replace(log.config, segment_bytes=2000)
        cluster.world.network.heal()
        await until(lambda: cluster.isr == (1, 2) and cluster.is_even)
        follower = cluster.members[2].partition.log
        assert [one.size <= 2000 for one in follower.segments] == [False, *[True] * (len(follower.segments) - 1)]
        assert len(follower.segments) > 3

    play(story)
