"""TLS and a password, over a real socket, on either event loop, from either shell."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from tests.foreign_tools import require_tool, run_checked
from tests.protocol.bare_broker import PASSWORD, BareBroker

from barnabas.arrow.connection import BlockingConnection
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.errors import BrokerUnreachableError
from barnabas.clients.security import Security, security_of
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

BROKERS = 5_000
"""As many as fill a large response."""


class LargeCluster(BareBroker):
    def _on_metadata(self, header: RequestHeader, request: object) -> None:
        brokers = [MetadataResponseBroker(node_id=number, host="h" * 20, port=1) for number in range(BROKERS)]
        self._answer(header, MetadataResponse(brokers=brokers))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_tool("openssl", "it makes the certificates")
    pem = tmp_path_factory.mktemp("tls") / "both.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    run_checked([*request, "-keyout", str(pem), "-out", str(pem.with_suffix(".crt"))])
    pem.write_text(pem.read_text() + pem.with_suffix(".crt").read_text())
    return pem


@contextmanager
def served(certificate: Path) -> Iterator[tuple[str, int]]:
    """Serve one connection."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    def serve() -> None:
        broker = LargeCluster(has_sasl=True)
        # A client that does not trust us hangs up in the middle.
        with suppress(OSError), context.wrap_socket(listening.accept()[0], server_side=True) as stream:
            while data := stream.recv(1 << 16):
                broker.receive(data)
                stream.sendall(broker.out)
                broker.out = bytearray()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            thread.join()


def security(certificate: Path) -> Security:
    return security_of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "ann",
            "sasl.password": PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificate),
        }
    )


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_on_an_event_loop(certificate: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def talk(address: tuple[str, int], how: Security) -> list[int]:
        connection = await BrokerConnection.open(*address, ConnectionOptions(security=how))
        try:
            answers = [connection.send(MetadataRequest(topics=[])) for _ in range(5)]
            return [len(answer.brokers) for answer in await asyncio.gather(*answers)]
        finally:
            connection.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        with served(certificate) as address:
            assert runner.run(talk(address, security(certificate))) == [BROKERS] * 5
        trusting_others = Security(ssl.create_default_context(), "PLAIN", "ann", PASSWORD)
        with served(certificate) as address, pytest.raises(BrokerUnreachableError, match=r"(?i)certificate"):
            runner.run(talk(address, trusting_others))


def test_blocking(certificate: Path) -> None:
    with served(certificate) as address:
        connection = BlockingConnection(address, security(certificate), 60.0)
        for _ in range(5):
            connection.send(MetadataRequest(topics=[]))
        assert [len(connection.receive().brokers) for _ in range(5)] == [BROKERS] * 5
        connection.close()
