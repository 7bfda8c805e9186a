"""Scenarios that never end, block, fail out of sight or want a second simulation."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest

from barnabas.simulation import NotSimulatedError, Simulation, SimulationError, host, loop, simulate

Scenario = Callable[[Simulation], Coroutine[Any, Any, object]]


def cause_of(scenario: Scenario, **arguments: Any) -> BaseException:
    with pytest.raises(SimulationError) as failed:
        simulate(scenario, seeds=1, brokers=1, **arguments)
    assert failed.value.__cause__ is not None
    return failed.value.__cause__


async def swallow(_: Simulation) -> None:
    try:
        time.sleep(1)
    except Exception:
        await asyncio.sleep(1)


async def block(_: Simulation) -> None:
    time.sleep(1)


async def connect(sim: Simulation) -> None:
    host, _, port = sim.bootstrap.partition(":")
    socket.create_connection((host, int(port)))


async def download(_: Simulation) -> None:
    urllib.request.urlopen("http://192.0.2.1/")


async def connect_somewhere_else(_: Simulation) -> None:
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))


async def start_a_thread(_: Simulation) -> None:
    threading.Thread(target=print).start()


async def wait_for_the_clock(_: Simulation) -> None:
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        continue


@pytest.mark.parametrize(
    "scenario", [swallow, block, connect, download, connect_somewhere_else, start_a_thread, wait_for_the_clock]
)
def test_the_real_world_is_refused(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MAX_LOOKS", 1000)
    assert isinstance(cause_of(scenario), NotSimulatedError)


def test_the_real_world_is_back_afterwards() -> None:
    names = [(time, "time"), (time, "sleep"), (socket, "getaddrinfo"), (threading.Thread, "start")]
    before = [getattr(owner, name) for owner, name in names]
    cause_of(block)
    assert [getattr(owner, name) for owner, name in names] == before
    assert "connect" not in vars(socket.socket)


def test_a_name_that_is_taken_meanwhile_is_real_afterwards() -> None:
    """As by a module that says `from time import time` and is imported in a scenario."""
    taken: list[Callable[[], float]] = []

    async def scenario(_: Simulation) -> None:
        taken.append(time.time)
        await asyncio.sleep(100)
        assert {function() for function in taken} == {time.time()}

    simulate(scenario, seeds=2, brokers=1)
    assert all(abs(function() - time.time()) < 3600 for function in taken)


def test_a_simulation_that_cannot_begin_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(_: Simulation) -> None:
        await asyncio.sleep(1)

    before = time.time
    with monkeypatch.context() as patch:
        # An aiokafka of another making.
        patch.setitem(sys.modules, "aiokafka.producer.message_accumulator", ModuleType("message_accumulator"))
        with pytest.raises(AttributeError, match="BatchBuilder"):
            simulate(scenario, seeds=1, brokers=1)
    assert time.time is before
    simulate(scenario, seeds=1, brokers=1)


def test_other_threads_see_nothing_of_it() -> None:
    seen: list[float] = []
    ready, done = threading.Event(), threading.Event()

    def look() -> None:
        ready.wait(30)
        seen.append(time.time())
        done.set()

    async def scenario(_: Simulation) -> None:
        ready.set()
        assert done.wait(30)
        seen.append(time.time())

    thread = threading.Thread(target=look)
    thread.start()
    simulate(scenario, seeds=1, brokers=1)
    thread.join(30)
    real, simulated = seen
    assert abs(real - time.time()) < 3600 < abs(simulated - real)


def test_a_scenario_that_never_ends() -> None:
    async def deeper() -> None:
        await asyncio.Event().wait()

    async def scenario(_: Simulation) -> None:
        await deeper()

    error = cause_of(scenario, most_seconds=20)
    assert isinstance(error, TimeoutError)
    assert "within 20 simulated seconds: it waits at" in str(error)
    assert f"test_attacks.py:{deeper.__code__.co_firstlineno + 1}" in str(error)


def test_a_scenario_that_is_busy_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_STEPS_AT_ONCE", 5000)

    async def scenario(_: Simulation) -> None:
        while True:
            await asyncio.sleep(0)

    assert "is busy without end" in str(cause_of(scenario))


async def raise_in_a_task(_: Simulation) -> None:
    async def fail() -> None:
        raise KeyError("unseen")

    task = asyncio.create_task(fail())
    await asyncio.sleep(1)
    del task
    await asyncio.sleep(1)


async def raise_in_a_callback(_: Simulation) -> None:
    def fail() -> None:
        raise KeyError("unseen")

    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(3600)


async def raise_in_a_program(sim: Simulation) -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise KeyError("unseen")

    sim.program("fails", fail, restart_on=ValueError)
    await asyncio.sleep(3600)


@pytest.mark.parametrize("scenario", [raise_in_a_task, raise_in_a_callback, raise_in_a_program])
def test_what_nobody_catches_fails_the_run(scenario: Scenario) -> None:
    assert isinstance(cause_of(scenario), KeyError)


def test_a_test_that_fails_in_a_program() -> None:
    async def fail() -> None:
        pytest.fail("on purpose")

    async def scenario(sim: Simulation) -> None:
        sim.program("fails", fail)
        await asyncio.sleep(3600)

    with pytest.raises(pytest.fail.Exception, match="on purpose"):
        simulate(scenario, seeds=1, brokers=1)


def test_control_c() -> None:
    async def scenario(_: Simulation) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        simulate(scenario, seeds=1, brokers=1)
    assert stopped.value.__notes__ == ["in the simulation of seed 0"]
    assert abs(time.time() - 1_800_000_000) > 100


async def test_on_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="its own loop"):
        simulate(block)


def test_in_itself() -> None:
    async def scenario(_: Simulation) -> None:
        simulate(block)

    assert "its own loop" in str(cause_of(scenario))


def test_in_two_threads() -> None:
    errors: list[BaseException] = []
    began, ended = threading.Event(), threading.Event()

    async def scenario(_: Simulation) -> None:
        began.set()
        assert ended.wait(30)

    def other() -> None:
        try:
            assert began.wait(30)
            simulate(scenario, seeds=1)
        except RuntimeError as error:
            errors.append(error)
        ended.set()

    thread = threading.Thread(target=other)
    thread.start()
    simulate(scenario, seeds=1, brokers=1)
    thread.join(30)
    assert "only one simulation runs" in str(errors)


def test_tls_is_said_not_to_be_there() -> None:
    async def scenario(sim: Simulation) -> None:
        host, _, port = sim.bootstrap.partition(":")
        await asyncio.open_connection(host, int(port), ssl=True)

    assert isinstance(cause_of(scenario), NotSimulatedError)


def test_programs_of_the_machine_are_said_not_to_be_there() -> None:
    async def scenario(_: Simulation) -> None:
        await asyncio.create_subprocess_exec("true")

    error = cause_of(scenario)
    assert isinstance(error, NotSimulatedError)
    assert "loop.subprocess_exec is not simulated" in str(error)


def test_what_is_left_open_is_let_go_without_a_sound(recwarn: pytest.WarningsRecorder) -> None:
    async def listen(bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            await reader.read()
        finally:
            await writer.wait_closed()

    async def scenario(sim: Simulation) -> None:
        sim.program("killed", listen, sim.bootstrap)
        sim.program("left", listen, sim.bootstrap)
        await asyncio.sleep(1)
        sim.programs["killed"].kill()

    simulate(scenario, seeds=1, brokers=1)
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


def test_calls_in_threads_are_made_in_none() -> None:
    async def scenario(_: Simulation) -> None:
        assert await asyncio.to_thread(threading.current_thread) is threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    simulate(scenario, seeds=1, brokers=1)
