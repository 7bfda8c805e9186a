"""What goes wrong on purpose, each thing by itself, and by chance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.scenarios import RECORDS, follow, produce_all

from barnabas.clients.producer import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.simulation import MENU, ClusterFaults, Simulation, SimulationError, simulate

Scenario = Callable[[Simulation], Coroutine[Any, Any, object]]


async def ready(sim: Simulation) -> int:
    """The broker that leads a new topic of three replicas."""
    await sim.cluster.create_topic("orders")
    return sim.cluster.leader("orders")


async def kill(sim: Simulation) -> None:
    leader = await ready(sim)
    sim.faults.kill(leader)
    assert leader not in sim.cluster.brokers
    await sim.until(lambda: sim.cluster.leader("orders") not in (leader, -1))
    await produce_all(sim, "orders")
    with pytest.raises(RuntimeError, match=f"broker {leader} is not running"):
        sim.faults.kill(leader)
    await sim.faults.start(leader)
    with pytest.raises(RuntimeError, match=f"broker {leader} is running"):
        await sim.faults.start(leader)
    await sim.until(lambda: len(sim.cluster.isr("orders")) == 3)
    assert len(await sim.cluster.records("orders")) == RECORDS


async def lose_power(sim: Simulation) -> None:
    await ready(sim)
    await produce_all(sim, "orders")
    for broker in sim.cluster.brokers:
        sim.faults.lose_power(broker)
    await asyncio.gather(*map(sim.faults.start, (1, 2, 3)))
    await sim.until(lambda: len(sim.cluster.isr("orders")) == 3 and sim.cluster.leader("orders") != -1)
    await produce_all(sim, "orders")
    assert len(await sim.cluster.records("orders")) == 2 * RECORDS


async def stop(sim: Simulation) -> None:
    leader = await ready(sim)
    await sim.faults.stop(leader)
    assert sim.cluster.leader("orders") not in (leader, -1)


async def pause(sim: Simulation) -> None:
    leader = await ready(sim)
    sim.faults.pause(leader)
    await sim.until(lambda: sim.cluster.leader("orders") not in (leader, -1))
    sim.faults.resume(leader)
    await sim.until(lambda: len(sim.cluster.isr("orders")) == 3)


async def cut(sim: Simulation) -> None:
    leader = await ready(sim)
    # A leader that cannot reach the controller cannot change the ISR.
    other = next(broker for broker in sim.cluster.brokers if broker not in (leader, sim.cluster.controller))
    sim.faults.cut(leader, other)
    # As in Kafka, a follower that has all records remains in the ISR.
    async with Producer(sim.bootstrap, acks=1) as producer:
        await producer.send_and_wait("orders", b"")
    await sim.until(lambda: other not in sim.cluster.isr("orders"))
    sim.faults.heal(leader, other)
    await sim.until(lambda: other in sim.cluster.isr("orders"))


async def cut_from_zookeeper(sim: Simulation) -> None:
    leader = await ready(sim)
    sim.faults.cut(leader)
    await sim.until(lambda: sim.cluster.leader("orders") not in (leader, -1))
    sim.faults.heal(leader)
    await sim.until(lambda: len(sim.cluster.isr("orders")) == 3)


async def expire(sim: Simulation) -> None:
    leader = await ready(sim)
    sim.faults.expire(leader)
    await sim.until(lambda: sim.cluster.leader("orders") not in (leader, -1))
    await sim.until(lambda: len(sim.cluster.isr("orders")) == 3)


async def slow(sim: Simulation) -> None:
    leader = await ready(sim)
    for other in set(sim.cluster.brokers) - {leader}:
        sim.faults.slow(other, leader, 1.0)
    before = sim.time
    async with Producer(sim.bootstrap) as producer:
        await (await producer.send("orders", b""))
    assert sim.time - before > 1.0
    sim.faults.heal()


async def lose_answers(sim: Simulation) -> None:
    leader = await ready(sim)
    with sim.faults.requests(leader).disconnect("Produce", handled=True, times=2) as fault:
        await produce_all(sim, "orders")
    assert len(fault.requests) == 2
    assert len(await sim.cluster.records("orders")) == RECORDS


async def refuse(sim: Simulation) -> None:
    """Faults of requests outlast the life of a broker."""
    await ready(sim)
    faults = []
    for broker in (1, 2, 3):
        faults.append(sim.faults.requests(broker).error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1))
        sim.faults.kill(broker)
        await sim.faults.start(broker)
    await sim.until(lambda: len(sim.cluster.isr("orders")) == 3 and sim.cluster.leader("orders") != -1)
    await produce_all(sim, "orders")
    assert any(fault.is_over for fault in faults)


async def zookeeper(sim: Simulation) -> None:
    leader = await ready(sim)
    await produce_all(sim, "orders")
    sim.faults.zookeeper_down()
    await asyncio.sleep(60)
    sim.faults.reset_connections()
    async with Producer(sim.bootstrap, enable_idempotence=False) as producer:
        await (await producer.send("orders", b""))
    sim.faults.zookeeper_up()
    sim.faults.kill(leader)
    await sim.until(lambda: sim.cluster.leader("orders") not in (leader, -1))


async def disks_and_clocks(sim: Simulation) -> None:
    leader = await ready(sim)
    sim.faults.jump_clock(leader, 3600.0)
    sim.faults.fill_disk(leader)
    await sim.until(lambda: sim.cluster.leader("orders") != leader or len(sim.cluster.isr("orders")) == 3)
    sim.faults.free_disk(leader)
    await produce_all(sim, "orders")


async def programs(sim: Simulation) -> None:
    ticks: list[float] = []
    ends: list[str] = []

    async def tick() -> None:
        try:
            while True:
                ticks.append(sim.time)
                await asyncio.sleep(1)
        finally:
            ends.append("finally")

    program = sim.program("ticker", tick)
    with pytest.raises(ValueError, match="the program name 'ticker' is in use"):
        sim.program("ticker", tick)
    with pytest.raises(RuntimeError, match="ticker is running"):
        program.start()
    await asyncio.sleep(2.5)
    sim.faults.pause(program)
    await asyncio.sleep(5)
    assert len(ticks) == 3
    sim.faults.resume(program)
    program.kill()
    await asyncio.sleep(5)
    assert (len(ticks), ends, program.is_running) == (3, [], False)
    program.start()
    await asyncio.sleep(0.5)
    await program.stop()
    await program.wait()
    assert (len(ticks), ends, program.lives) == (4, ["finally"], 2)


async def a_program_that_is_cut_off(sim: Simulation) -> None:
    await ready(sim)
    program = sim.program("producer", produce_all, sim, "orders")
    for broker in sim.cluster.brokers:
        sim.faults.cut(program, broker)
    await asyncio.sleep(3)
    assert program.is_running
    sim.faults.heal()
    await program.wait()
    assert len(await sim.cluster.records("orders")) == RECORDS


async def a_program_that_is_started_anew(sim: Simulation) -> None:
    lives: list[int] = []

    async def crash() -> None:
        lives.append(1)
        if len(lives) < 3:
            raise OSError

    program = sim.program("crashing", crash, restart_on=OSError)
    await program.wait()
    assert len(lives) == program.lives == 3


async def a_program_that_is_stopped_in_a_storm(sim: Simulation) -> None:
    """It is killed before it has come to its end, and nobody starts it again."""

    async def linger() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1000)

    program = sim.program("lingering", linger)
    storm = asyncio.create_task(sim.faults.random(60.0, of={"kill program"}))
    await asyncio.wait_for(program.stop(), 100)
    await storm
    assert not program.is_running
    program.start()
    assert program.is_running


async def a_program_that_fails_while_it_stops(sim: Simulation) -> None:
    async def fail() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            raise OSError

    program = sim.program("failing", fail, restart_on=OSError)
    await asyncio.sleep(1)
    await asyncio.wait_for(program.stop(), 100)
    assert program.lives == 1


async def a_broker_that_does_not_start(sim: Simulation) -> None:
    sim.faults.kill(1)
    sim.faults.pause(1)
    starting = asyncio.create_task(sim.faults.start(1))
    await asyncio.sleep(30)
    assert any(line.endswith("broker 1 did not start: 20 s are over") for line in sim.log)
    sim.faults.resume(1)
    await starting


async def a_broker_that_dies_while_its_disk_is_full(sim: Simulation) -> None:
    brokers = sim._world.brokers
    full = lambda: [number for number, broker in brokers.items() if broker.disk.capacity is not None]  # noqa: E731
    while not full():
        storm = asyncio.create_task(sim.faults.random(2.0, of={"disk full"}))
        while not full() and not storm.done():
            await asyncio.sleep(0.05)
    broker = full()[0]
    sim.faults.kill(broker)
    starting = asyncio.create_task(sim.faults.start(broker))
    await storm
    assert full() == []
    await starting


async def groups_of_a_broker_that_dies(sim: Simulation) -> None:
    """Groups are loaded by the broker, and not by who had them loaded: what a dead one does ends with it."""
    await sim.cluster.create_topic("orders")
    await produce_all(sim, "orders")
    found: list[bytes] = []
    sim.program("reader", follow, sim.bootstrap, ["orders"], found, restart_on=KafkaError)
    await sim.until(lambda: bool(sim.cluster.committed("g")))
    coordinator = sim.cluster.coordinator("g")
    requests = sim.faults.requests(coordinator)
    requests.coordinator_moves()
    sim.faults.kill(coordinator)
    with pytest.raises(RuntimeError, match="the broker is not running"):
        requests.sessions_expire("g")
    with pytest.raises(RuntimeError, match="the broker is not running"):
        requests.coordinator_moves()
    await asyncio.sleep(10)
    await sim.faults.start(coordinator)
    requests.sessions_expire("g")


async def a_broker_that_dies_while_it_stops(sim: Simulation) -> None:
    """Whoever waits for it hears of that."""
    leader = await ready(sim)
    stopping = asyncio.create_task(sim.faults.stop(leader))
    await asyncio.sleep(0.001)
    sim.faults.kill(leader)
    with pytest.raises(KafkaError, match=f"broker {leader} is dead"):
        await stopping
    await sim.faults.start(leader)


async def a_controller_that_dies_while_it_makes_a_topic(sim: Simulation) -> None:
    await sim.cluster.ready()
    controller = sim.cluster.controller
    assert controller is not None
    making = asyncio.create_task(sim.cluster.create_topic("orders"))
    await asyncio.sleep(0.001)
    sim.faults.kill(controller)
    with pytest.raises(KafkaError, match=f"broker {controller} is dead"):
        await making


async def a_leader_that_dies_while_it_is_looked_at(sim: Simulation) -> None:
    """More than is read in one turn."""
    leader = await ready(sim)
    async with Producer(sim.bootstrap, linger_ms=0) as producer:
        for _ in range(3):
            await (await producer.send("orders", bytes(700_000)))
    looking = asyncio.create_task(sim.cluster.records("orders"))
    await asyncio.sleep(0)
    sim.faults.kill(leader)
    with pytest.raises(KeyError):
        await looking


@pytest.mark.parametrize(
    "scenario",
    [
        kill,
        lose_power,
        stop,
        pause,
        cut,
        cut_from_zookeeper,
        expire,
        slow,
        lose_answers,
        refuse,
        zookeeper,
        disks_and_clocks,
        programs,
        a_program_that_is_cut_off,
        a_program_that_is_started_anew,
        a_program_that_is_stopped_in_a_storm,
        a_program_that_fails_while_it_stops,
        a_broker_that_does_not_start,
        a_broker_that_dies_while_its_disk_is_full,
        groups_of_a_broker_that_dies,
        a_broker_that_dies_while_it_stops,
        a_controller_that_dies_while_it_makes_a_topic,
        a_leader_that_dies_while_it_is_looked_at,
    ],
)
def test_it_does_what_it_says(scenario: Scenario) -> None:
    simulate(scenario, seeds=1)


def test_who_is_not_there() -> None:
    async def scenario(sim: Simulation) -> None:
        with pytest.raises(ValueError, match="unknown broker 4"):
            sim.faults.kill(4)
        assert (sim.cluster.leader("nothing"), sim.cluster.isr("nothing"), sim.cluster.coordinator("g")) == (-1, (), -1)
        assert (await sim.cluster.records("nothing"), sim.cluster.committed("g")) == ([], {})
        with pytest.raises(ValueError, match="unknown fault 'fire'"):
            await sim.faults.random(of={"fire"})

    simulate(scenario, seeds=1)


@pytest.mark.verify
@pytest.mark.parametrize("fault", MENU)
def test_each_fault_by_itself_comes_to_an_end(fault: str) -> None:
    async def scenario(sim: Simulation) -> None:
        sim.program("sleeper", asyncio.sleep, 1000.0)
        await sim.faults.random(10.0, of={fault})
        await sim.until(lambda: sim.cluster.brokers == [1, 2, 3])
        assert sim.programs["sleeper"].is_running

    simulate(scenario, seeds=1)


def test_every_fault_is_told_of() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    public = {name for name in dir(ClusterFaults) if not name.startswith("_")}
    assert {name for name in public if f"`{name}(" not in page} == set()


def test_a_run_that_fails_while_things_go_wrong() -> None:
    async def scenario(sim: Simulation) -> None:
        storm = asyncio.create_task(sim.faults.random(60.0))
        await asyncio.sleep(5.0)
        assert not storm.done()
        raise LookupError

    with pytest.raises(SimulationError, match="LookupError"):
        simulate(scenario, seeds=1)
