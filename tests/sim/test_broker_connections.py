"""A broker asks another one, over the network, by the clients' connection: crashes, silence, new addresses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from barnabas.clients.errors import BrokerUnreachableError, RequestTimeoutError, UnsupportedVersionError
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.network.broker_connections import BrokerConnections, Endpoint
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import HOST, PORT, SimBroker, World

OTHER_HOST = "10.0.0.2"


class TwoBrokers:
    """The asker runs on the machine of a broker of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = world.broker
        self.asking = SimBroker(world, OTHER_HOST)
        self.endpoints: dict[int, Endpoint] = {7: (HOST, PORT)}
        self.connections = BrokerConnections(3, self.endpoints.get, random.Random(1), timeout_ms=2000)

    async def ask(self, broker_id: int = 7) -> str | None:
        response = await self.connections.send_request(broker_id, MetadataRequest(topics=[]))
        return response.cluster_id

    async def ask_until_answered(self) -> int:
        """As a replica fetcher does: again and again. Returns how often it was not answered."""
        failures = 0
        while True:
            try:
                await self.ask()
            except KafkaError as error:
                assert error.code.retriable
                failures += 1
            else:
                return failures

    @property
    def connection_count(self) -> int:
        """Each has two ends."""
        return len(self.world.network.connections) // 2


def play(story: Callable[[TwoBrokers], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        brokers = TwoBrokers(World(loop, seed=1))
        await brokers.asked.start()
        await brokers.asking.start()
        await brokers.world.spawn(brokers.asking.node, story(brokers))  # type: ignore[arg-type]

    run(main, 1)


def test_a_broker_asks_another_over_one_connection() -> None:
    async def story(brokers: TwoBrokers) -> None:
        assert len(set(await asyncio.gather(*(brokers.ask() for _ in range(20))))) == 1
        told = await brokers.connections.send_request(
            7, ApiVersionsRequest(client_software_name="barnabas", client_software_version="1")
        )
        assert told.error_code == 0
        assert brokers.connection_count == 1
        with pytest.raises(UnsupportedVersionError, match="does not support METADATA"):
            await brokers.connections.send_request(7, MetadataRequest(topics=[]), lowest=14)
        with pytest.raises(BrokerUnreachableError, match="broker 8 is not alive"):
            await brokers.ask(8)
        brokers.connections.close()
        with pytest.raises(BrokerUnreachableError):
            await brokers.ask()

    play(story)


def test_a_crash_is_waited_out_with_growing_pauses() -> None:
    async def story(brokers: TwoBrokers) -> None:
        loop = brokers.world.loop
        before = await brokers.ask()
        brokers.asked.crash("kill")
        crashed_at = loop.time()
        asking = brokers.world.spawn(brokers.asking.node, brokers.ask_until_answered())
        await asyncio.sleep(20)
        assert not asking.done()
        await brokers.asked.start()
        failures = await asking
        assert loop.time() - crashed_at < 20 + 1.2 + 1, "the pause is at most a second and a fifth"
        assert 20 <= failures <= 30, "as often as the pauses allow, never in a tight loop"
        assert await brokers.ask() == before
        assert brokers.connection_count == 1

    play(story)


def test_a_broker_that_drops_every_connection_is_not_run_at() -> None:
    async def story(brokers: TwoBrokers) -> None:
        loop, network = brokers.world.loop, brokers.world.network
        attempts = 0
        while loop.time() < 10:
            attempts += 1
            asking = asyncio.ensure_future(brokers.ask())
            await asyncio.sleep(0)
            while not asking.done():
                # Only once it is ready does it break, so that no attempt to connect counts as failed.
                if brokers.connections._peers[7][1].open_connection is not None:
                    network.reset_some(1.0)
                await asyncio.sleep(0.0001)
            asking.exception()
        assert attempts <= 10 / 0.05 + 1

    play(story)


def test_silence_ends_with_the_timeout_and_the_next_request_is_another_connections() -> None:
    async def story(brokers: TwoBrokers) -> None:
        loop = brokers.world.loop
        await brokers.ask()
        brokers.world.network.cut(brokers.asked.node, brokers.asking.node)
        cut_at = loop.time()
        waiting = [brokers.ask() for _ in range(3)]
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, RequestTimeoutError)
        assert loop.time() - cut_at == pytest.approx(2.0)
        with pytest.raises(BrokerUnreachableError, match=f"cannot reach broker at {HOST}:{PORT}"):
            await brokers.ask()
        brokers.world.network.heal()
        await brokers.ask_until_answered()

    play(story)


def test_a_broker_that_has_moved_is_asked_at_its_new_address() -> None:
    async def story(brokers: TwoBrokers) -> None:
        first = await brokers.ask()
        brokers.endpoints[7] = (OTHER_HOST, PORT)
        assert await brokers.ask() != first
        del brokers.endpoints[7]
        with pytest.raises(BrokerUnreachableError, match="not alive"):
            await brokers.ask()

    play(story)
