"""The simulator itself: virtual time, seeded order, dead machines that stay silent, a network that keeps streams."""

from __future__ import annotations

import asyncio
import random

import pytest

from barnabas.simulation.loop import DeadlockError, SimLoop, run
from barnabas.simulation.network import NetworkFaults, SimNetwork
from barnabas.simulation.node import SimNode


def test_hours_pass_in_no_time() -> None:
    async def main(loop: SimLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert run(main, seed=1) == pytest.approx(3600)


def test_a_hang_is_found() -> None:
    async def main(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(DeadlockError):
        run(main, seed=1)


def trace_of(seed: int) -> list[str]:
    async def main(loop: SimLoop) -> list[str]:
        trace: list[str] = []
        nodes = [SimNode(name) for name in "abc"]
        for node in nodes:
            for number in range(5):
                node.run(loop.call_soon, trace.append, f"{node.name}{number}")
        await asyncio.sleep(1)
        return trace

    return run(main, seed)


def test_order_between_machines_is_seeded_and_within_one_is_kept() -> None:
    traces = [trace_of(seed) for seed in range(6)]
    assert traces[0] == trace_of(0)
    assert len({tuple(trace) for trace in traces}) > 1
    for trace in traces:
        for name in "abc":
            assert [step for step in trace if step[0] == name] == [f"{name}{number}" for number in range(5)]


def test_a_dead_machine_does_nothing_more() -> None:
    async def main(loop: SimLoop) -> list[str]:
        trace: list[str] = []
        node = SimNode("a")

        async def life() -> None:
            try:
                await asyncio.sleep(10)
                trace.append("survived")
            finally:
                trace.append("finally")

        node.run(lambda: loop.keep(loop.create_task(life())))
        await asyncio.sleep(1)
        node.kill()
        await asyncio.sleep(60)
        return trace

    assert run(main, seed=3) == []


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
def test_streams_keep_their_bytes_in_order(seed: int) -> None:
    async def main(loop: SimLoop) -> bytes:
        SimNetwork(loop, random.Random(seed), NetworkFaults(tail_chance=0.3, split_chance=0.9))
        server, client = SimNode("server"), SimNode("client")
        sent = bytes(random.Random(seed).randbytes(200_000))

        async def serve() -> None:
            await loop.create_server(Echo, "10.0.0.1", 9092)

        async def talk() -> bytes:
            reader, writer = await asyncio.open_connection("10.0.0.1", 9092)
            for start in range(0, len(sent), 7000):
                writer.write(sent[start : start + 7000])
            return await reader.readexactly(len(sent))

        await server.run(loop.create_task, serve())
        assert await client.run(loop.create_task, talk()) == sent
        return sent

    run(main, seed)


def test_a_killed_peer_is_noticed() -> None:
    async def main(loop: SimLoop) -> None:
        SimNetwork(loop, random.Random(1))
        server = SimNode("server")

        async def serve() -> None:
            await loop.create_server(Echo, "10.0.0.1", 9092)

        await server.run(loop.create_task, serve())
        reader, _ = await asyncio.open_connection("10.0.0.1", 9092)
        await asyncio.sleep(1)
        server.kill()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)

    run(main, seed=1)
