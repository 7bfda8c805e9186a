"""One thing at a time, where seeds have found a hole."""

from __future__ import annotations

import asyncio
import random

import pytest
from soak.sim.cluster.plan import ClusterPlan
from soak.sim.cluster.scenario import ClusterRun
from soak.sim.workload import TOPIC
from tests.waiting import until

from barnabas.clients.consumer import Consumer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC
from barnabas.server.replication.leader_and_isr import IsrChange
from barnabas.server.replication.partition import Partition
from barnabas.simulation.cluster import ClusterWorld
from barnabas.simulation.loop import SimLoop, run

TP = TopicPartition(TOPIC, 0)


async def running(loop: SimLoop) -> ClusterRun:
    """A cluster of which all brokers serve, and which nothing befalls."""
    cluster = ClusterRun(loop, ClusterPlan.draw(1, quick=True).with_faults(frozenset()))
    await asyncio.gather(*map(cluster.nemesis.bring_up, cluster.world.brokers.values()))
    return cluster


def controller(world: ClusterWorld) -> int | None:
    states = {broker.broker_id: broker.server.state for broker in world.running if broker.server is not None}
    return next((broker_id for broker_id, state in states.items() if state.controller.is_active), None)


def epoch(run_: ClusterRun) -> int:
    found: int = run_.invariants.state(TP)["leader_epoch"]
    return found


def test_a_leader_that_is_back_before_the_next_controller_looks_leads_in_a_new_epoch() -> None:
    """What it writes next could else not be told from what it has lost, and followers have still."""

    async def main(loop: SimLoop) -> None:
        cluster = await running(loop)
        world = cluster.world
        await cluster._create_topic()
        leader = cluster.invariants.state(TP)["leader"]
        while controller(world) != leader:
            await cluster.nemesis._move_controller()
            await until(lambda: controller(world) is not None)
            await asyncio.sleep(0.1)
        before = epoch(cluster)
        # The next controller is slow: by the time it looks, the leader has registered again.
        others = [broker for broker in world.brokers.values() if broker.broker_id != leader]
        for broker in others:
            loop.frozen.add(broker.node)
        broker = world.brokers[leader]
        former = world.ensemble.tree.look(f"/kafka/brokers/ids/{leader}")
        broker.crash("kill")
        world.ensemble.expire_all_of(broker.node)
        starting = broker.begin()
        await until(lambda: world.ensemble.tree.look(f"/kafka/brokers/ids/{leader}") not in (None, former))
        for other in others:
            loop.frozen.discard(other.node)
        await starting
        await until(lambda: epoch(cluster) > before)
        await until(lambda: all(_knows(world, one.broker_id) == epoch(cluster) for one in world.running))

    run(main, 1)


def test_a_restarted_leader_leads_in_a_new_epoch_though_the_state_was_written_since() -> None:
    """A request of the leader's former life, to a controller that has not heard of the new one yet and dies then."""

    async def main(loop: SimLoop) -> None:
        cluster = await running(loop)
        world = cluster.world
        await cluster._create_topic()
        leader = cluster.invariants.state(TP)["leader"]
        while controller(world) in (None, leader):
            await cluster.nemesis._move_controller()
            await asyncio.sleep(0.1)
        chief = world.brokers[controller(world) or 0]
        (third,) = world.brokers.keys() - {leader, chief.broker_id}
        before = epoch(cluster)
        assert chief.server is not None
        orders = chief.server.state.controller
        run_of = orders.broker_epoch(leader)
        assert run_of is not None
        written = world.ensemble.tree.look(f"/kafka/brokers/topics/{TOPIC}/partitions/0/state")
        assert written is not None
        wish = IsrChange(TP, before, written.version, (leader, third))
        # What goes from ZooKeeper to the controller is late, what the controller writes is not.
        world.network.cut(world.ensemble.node, chief.node, both_ways=False)
        path = f"/kafka/brokers/ids/{leader}"
        former = world.ensemble.tree.look(path)
        broker = world.brokers[leader]
        broker.crash("A")
        world.ensemble.expire_all_of(broker.node)
        starting = broker.begin()
        await until(lambda: world.ensemble.tree.look(path) not in (None, former))
        world.spawn(chief.node, orders.alter_partitions(leader, run_of, [wish]))
        await until(lambda: sorted(cluster.invariants.in_sync()[TP]) == sorted((leader, third)))
        assert epoch(cluster) == before
        chief.crash("kill")
        world.ensemble.expire_all_of(chief.node)
        await starting
        await until(lambda: controller(world) is not None)
        await until(lambda: epoch(cluster) > before)
        await until(lambda: all(_knows(world, one.broker_id) == epoch(cluster) for one in world.running))
        assert not cluster.invariants.violations

    run(main, 1)


def test_who_asks_a_controller_whose_session_ends_is_sent_to_the_next() -> None:
    async def main(loop: SimLoop) -> None:
        world = (await running(loop)).world
        await until(lambda: controller(world) is not None)
        broker = world.brokers[controller(world) or 0]
        assert broker.server is not None
        wish = TopicCreation("other", num_partitions=1, replication_factor=1)
        asking = world.spawn(broker.node, broker.server.state.controller.create_topics([wish]))
        world.ensemble.expire_all_of(broker.node)
        with pytest.raises(KafkaError) as refused:
            await asking
        assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(main, 1)


def test_a_coordinator_that_was_followed_by_another_tells_no_stable_offsets() -> None:
    """It has not heard of it, and knows nothing of what the other one took."""

    async def main(loop: SimLoop) -> None:
        cluster = await running(loop)
        world = cluster.world
        await cluster._create_topic()
        place = TopicPartition(GROUP_METADATA_TOPIC, 0)
        client = world.machine("client")

        async def commit(offset: int) -> None:
            async with Consumer(world.bootstrap, group_id="g", rng=random.Random(offset)) as consumer:
                await consumer.commit({TP: offset})

        await world.spawn(client, commit(5))
        state = cluster.invariants.state(place)
        former = world.brokers[state["leader"]]
        assert former.server is not None
        groups = former.server.state.group_coordinator.group_manager
        assert not await world.spawn(former.node, groups.find_unconfirmed_groups(["g"]))
        others = [one.node for one in world.brokers.values() if one is not former]
        # The client would else ask it, and commit nothing.
        for machine in (world.ensemble.node, client, *others):
            world.network.cut(former.node, machine)
        world.ensemble.expire_all_of(former.node)
        await until(lambda: cluster.invariants.state(place)["leader"] not in (-1, former.broker_id))
        await world.spawn(client, commit(9))
        group = groups.find_group("g")
        assert group is not None
        assert group.offsets.committed[TP].offset == 5, "it coordinates the group still, for all it knows"
        assert await world.spawn(former.node, groups.find_unconfirmed_groups(["g", "other"])) == {
            "g",
            "other",
        }

    run(main, 1)


def test_a_leader_that_has_asked_to_be_alone_in_sync_is_needed_before_that_is_written() -> None:
    """Its request may be carried out when it is dead, and then nobody can lead but that broker."""

    async def main(loop: SimLoop) -> None:
        cluster = await running(loop)
        world = cluster.world
        await cluster._create_topic()
        leader = world.brokers[cluster.invariants.state(TP)["leader"]]
        while controller(world) in (None, leader.broker_id):
            await cluster.nemesis._move_controller()
            await asyncio.sleep(0.1)
        assert leader.server is not None
        others = [broker for broker in world.brokers.values() if broker is not leader]
        third = next(one for one in others if one.broker_id in _in_sync(cluster) - {controller(world)})
        world.spawn(world.machine("writer"), cluster._produce(0, 0))
        # The leader asks a first time, and so has a connection to the controller.
        loop.frozen.add(third.node)
        await until(lambda: third.broker_id not in _in_sync(cluster))
        loop.frozen.discard(third.node)
        await until(lambda: len(_in_sync(cluster)) == 3 and not cluster.is_needed(leader))
        partition = leader.server.state.replica_manager.get_partition(*TP)
        while _asked_for(partition) != (leader.broker_id,):
            # Who lags is looked for now and then: once it is both in one look.
            world.network.heal()
            await until(lambda: len(_in_sync(cluster)) == 3 and _asked_for(partition) is None)
            await asyncio.sleep(0.3)
            for other in others:
                world.network.cut(leader.node, other.node)
            await until(lambda: _asked_for(partition) is not None)
        await asyncio.sleep(0.01)
        assert len(_in_sync(cluster)) == 3
        world.network.heal()
        assert cluster.is_needed(leader)
        leader.crash("kill")
        await until(lambda: _in_sync(cluster) == {leader.broker_id})

    run(main, 1)


def test_a_broker_that_is_back_before_the_controller_hears_of_it_does_not_count_for_alive() -> None:
    """The controller takes it out of sync first, and what others it has for alive may be dead by then."""

    async def main(loop: SimLoop) -> None:
        cluster = await running(loop)
        world = cluster.world
        await until(lambda: controller(world) is not None)
        chief = world.brokers[controller(world) or 0]
        broker = next(one for one in world.brokers.values() if one is not chief)
        await until(lambda: cluster.counts_for_alive(broker.broker_id))
        world.network.cut(world.ensemble.node, chief.node, both_ways=False)
        path = f"/kafka/brokers/ids/{broker.broker_id}"
        former = world.ensemble.tree.look(path)
        broker.crash("kill")
        world.ensemble.expire_all_of(broker.node)
        assert not cluster.counts_for_alive(broker.broker_id)
        starting = broker.begin()
        await until(lambda: world.ensemble.tree.look(path) not in (None, former))
        assert controller(world) == chief.broker_id
        assert not cluster.counts_for_alive(broker.broker_id)
        world.network.heal()
        await starting
        await until(lambda: cluster.counts_for_alive(broker.broker_id))

    run(main, 1)


def test_a_broker_that_its_controller_has_told_nothing_yet_tells_of_brokers() -> None:
    """librdkafka lets go of each broker that it is not told of, and of none it would ask no more at all."""

    async def main(loop: SimLoop) -> None:
        world = (await running(loop)).world
        await until(lambda: controller(world) is not None)
        chief = world.brokers[controller(world) or 0]
        broker = next(one for one in world.brokers.values() if one is not chief)
        world.network.cut(chief.node, broker.node)
        broker.crash("kill")
        world.ensemble.expire_all_of(broker.node)
        await broker.begin()
        assert broker.server is not None
        assert broker.server.state.metadata.brokers.keys() == world.brokers.keys()

    run(main, 1)


def _in_sync(cluster: ClusterRun) -> set[int]:
    return set(cluster.invariants.in_sync()[TP])


def _asked_for(partition: Partition | None) -> tuple[int, ...] | None:
    """The in-sync replicas that a leader has asked for and has no answer about."""
    followers = None if partition is None else partition.followers
    return None if followers is None or followers.pending is None else followers.pending.isr


def _knows(world: ClusterWorld, broker_id: int) -> int:
    """The leader epoch that a broker tells clients."""
    server = world.brokers[broker_id].server
    assert server is not None
    image = server.state.metadata.partition(TP)
    return -1 if image is None else image.leader_epoch
