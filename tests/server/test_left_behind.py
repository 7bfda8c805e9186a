"""What a connection or a request leaves behind when it is over: nothing that only the garbage collector would find.

A broker's collector goes through everything very seldom, so that what holds itself adds up: of a hundred thousand
logins it was 60 MB and more.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from tests.server.network.open_connections import open_connections
from tests.waiting import until

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.producer import Producer
from barnabas.clients.security import security_of
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.testing.broker import Broker

PATIENCE = 60
PASSWORD = "s3cret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
FAST = {"connection.failed.authentication.delay.ms": "0"}
Talk = Callable[[Broker], Awaitable[None]]


def left_behind(broker: Broker, talk: Talk) -> Counter[str]:
    """By type, the broker's objects that held themselves after three talks; one before has loaded what stays."""

    async def main() -> Counter[str]:
        async with asyncio.timeout(PATIENCE), broker:
            await play(broker, talk)
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    await play(broker, talk)
                gc.set_debug(gc.DEBUG_SAVEALL)
                gc.collect()
                types = [type(one) for one in gc.garbage]
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()
        return Counter(one.__qualname__ for one in types if one.__module__.startswith("barnabas.server"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


async def play(broker: Broker, talk: Talk) -> None:
    await talk(broker)
    sockets = broker.server.sockets
    await until(lambda: not open_connections(sockets) and not any(one.handshakes for one in sockets._acceptors))
    # The loop is done with them one turn later.
    for _ in range(5):
        await asyncio.sleep(0)


async def enter(broker: Broker, mechanism: str, password: str) -> None:
    settings = broker.client_settings(None, mechanism)
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace(PASSWORD, password)
    options = ConnectionOptions(security=security_of(settings))
    connection = await BrokerConnection.open("127.0.0.1", broker.port, options)
    assert (await connection.send(MetadataRequest(topics=None), 12)).brokers
    connection.close()


async def by_password(broker: Broker) -> None:
    for mechanism in MECHANISMS:
        await enter(broker, mechanism, PASSWORD)


async def by_a_wrong_password(broker: Broker) -> None:
    for mechanism in MECHANISMS:
        with pytest.raises(KafkaError, match="Authentication failed"):
            await enter(broker, mechanism, "wrong")


async def with_garbage(broker: Broker) -> None:
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(words)
        writer.write_eof()
        await reader.read()
        writer.close()


@pytest.mark.parametrize("is_secret", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("talk", [by_password, by_a_wrong_password, with_garbage])
def test_a_connection_goes_with_all_that_it_had(talk: Talk, *, is_secret: bool) -> None:
    broker = Broker(sasl={"anna": PASSWORD}, tls=is_secret, config=FAST)
    assert left_behind(broker, talk) == {}


async def transactions(broker: Broker) -> None:
    async with Producer(broker.bootstrap, transactional_id="x") as producer:
        for _ in range(3):
            async with producer.transaction():
                await producer.send("t", b"value")


def test_a_transaction_goes_with_all_who_waited_for_it() -> None:
    assert left_behind(Broker(["t"]), transactions) == {}
