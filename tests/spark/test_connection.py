"""The blocking connection: the same broker of bytes as the others, over a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.protocol.bare_broker import NEWEST, PASSWORD, BareBroker

from barnabas.arrow import connection
from barnabas.arrow.connection import BlockingConnection
from barnabas.clients.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from barnabas.clients.security import PLAINTEXT, Security
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest

ASKED = MetadataRequest(topics=[])
PATIENCE_S = 60.0


@contextmanager
def served(broker: BareBroker, *, answers: int = 1 << 30, last_words: bytes = b"") -> Iterator[tuple[str, int]]:
    """Serve one connection in a thread; after so many reads say the last words, and nothing more."""

    def serve() -> None:
        stream, _ = listening.accept()
        with stream:
            for _ in range(answers):
                data = stream.recv(1 << 16)
                if not data:
                    return
                broker.receive(data)
                stream.sendall(broker.out)
                broker.out = bytearray()
                if broker.hung_up:
                    return
            stream.sendall(last_words)
            if not last_words:
                over.wait(30)

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            over.set()
            thread.join()


def test_requests_are_pipelined_and_answered_in_order() -> None:
    with served(BareBroker()) as address:
        connection = BlockingConnection(address, PLAINTEXT, PATIENCE_S)
        assert connection.version_for(ApiKey.METADATA, highest=5) == 5
        assert connection.supports(ApiKey.METADATA) and not connection.supports(ApiKey.FETCH)
        with pytest.raises(UnsupportedVersionError):
            connection.send(FetchRequest())
        for _ in range(10):
            connection.send(ASKED)
        # The scripted broker tells the correlation id as the controller's; the first was that of ApiVersions.
        assert [connection.receive().controller_id for _ in range(10)] == list(range(2, 12))
        connection.close()


@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_passwords(mechanism: str, handshake: int) -> None:
    newest = NEWEST | {ApiKey.SASL_HANDSHAKE: handshake}
    with served(BareBroker(newest, has_sasl=True)) as address:
        connection = BlockingConnection(address, Security(None, mechanism, "ann", PASSWORD), PATIENCE_S)
        assert connection.ask(ASKED).controller_id > 0
        connection.close()
    with served(BareBroker(newest, has_sasl=True)) as address, pytest.raises(KafkaError) as failed:
        BlockingConnection(address, Security(None, mechanism, "ann", "wrong"), PATIENCE_S)
    assert isinstance(failed.value, ConnectionLostError) == (handshake == 0)


def test_a_broker_that_does_not_answer_in_time_is_left() -> None:
    with served(BareBroker(), answers=1) as address:
        connection = BlockingConnection(address, PLAINTEXT, PATIENCE_S)
        connection._timeout_s = 0.2  # from now on: the versions have had their time
        connection.send(ASKED)
        with pytest.raises(RequestTimeoutError):
            connection.receive()
        with pytest.raises(ConnectionLostError):
            connection.send(ASKED)


@pytest.mark.parametrize("last_words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04\0\0\0\x63", b"\0\0\0\x09\0"])
def test_a_peer_that_is_no_broker_or_hangs_up_is_left(last_words: bytes) -> None:
    with served(BareBroker(), answers=1, last_words=last_words) as address, pytest.raises(ConnectionLostError):
        BlockingConnection(address, PLAINTEXT, PATIENCE_S).ask(ASKED)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
    with pytest.raises(BrokerUnreachableError, match="cannot reach broker"):
        BlockingConnection(address, PLAINTEXT, PATIENCE_S)


@pytest.mark.parametrize(("then_ms", "handshakes"), [(1000, 3), (0, 2)])
def test_an_authentication_is_renewed_before_the_session_ends(
    monkeypatch: pytest.MonkeyPatch, then_ms: int, handshakes: int
) -> None:
    """If it ends: the second time the broker may say that it does not."""
    monkeypatch.setattr(connection, "_BEFORE_THE_END", 0.0)
    broker = BareBroker(has_sasl=True, session_ms=1000)
    with served(broker) as address:
        near = BlockingConnection(address, Security(None, "SCRAM-SHA-256", "ann", PASSWORD), 30)
        broker.session_ms = then_ms
        near.send(ASKED)
        near.send(ASKED)
        near.receive()
        near.receive()
        near.close()
    assert [key for key, _ in broker.asked].count(ApiKey.SASL_HANDSHAKE) == handshakes
