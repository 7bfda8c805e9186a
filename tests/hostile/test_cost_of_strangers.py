"""What those cost the broker who never say who they are: processor time of each, beside a client that logs in."""

from __future__ import annotations

import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from soak.hostile.attacked_broker import PASSWORD, SUPER, AttackedBroker, AttackerKind
from soak.hostile.healthy_client import TOPIC, HealthyClient
from soak.hostile.wire import ClosedError, Endpoint, Login, Wire, api_versions, request_frame, sasl_frame
from tests.frames import framed
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

PEERS = 100
ROUNDS = 5
MOST = 6.0
"""Times the processor time of a client that logs in by PLAIN at the same listener and asks one thing."""
HEALTHY_ROUNDS = 50
GARBAGE = bytes(range(256)) * 8
TOKEN_OF_KERBEROS = b"\x60\x82\x02\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(500)
Peer = Callable[[Endpoint], None]


def drain(wire: Wire) -> None:
    """Until the broker closes."""
    with suppress(ClosedError):
        while True:
            wire.receive()


def says(mechanism: str, *messages: bytes) -> Peer:
    """Names a mechanism, says this, and is shown the door."""

    def peer(endpoint: Endpoint) -> None:
        wire = endpoint.connect()
        wire.send(request_frame(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism)))
        for message in messages:
            wire.send(sasl_frame(message))
        drain(wire)
        wire.reset()

    return peer


def guesses_by_hash(user: str) -> Peer:
    """All of SCRAM, with a proof that is none: to compute one would cost the client, not the broker."""

    def peer(endpoint: Endpoint) -> None:
        wire = endpoint.connect()
        wire.send(request_frame(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="SCRAM-SHA-512")))
        wire.receive()
        wire.send(sasl_frame(f"n,,n={user},r=mine".encode()))
        nonce = wire.receive().partition(b"r=")[2].partition(b",")[0]
        wire.send(sasl_frame(b"c=biws,r=" + nonce + b",i=1000000000,p=" + b"A" * 86 + b"=="))
        drain(wire)
        wire.reset()

    return peer


def throws(data: bytes) -> Peer:
    """Bytes that are no request which is served before a login."""

    def peer(endpoint: Endpoint) -> None:
        wire = Wire(endpoint.address)
        wire.send(data)
        drain(wire)
        wire.reset()

    return peer


def leaves(data: bytes) -> Peer:
    """Does not wait for anything."""

    def peer(endpoint: Endpoint) -> None:
        wire = Wire(endpoint.address)
        wire.send(data)
        wire.reset()

    return peer


def breaks_off(version: ssl.TLSVersion) -> Peer:
    """Greets, has the broker sign, and goes away without a word."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version

    def peer(endpoint: Endpoint) -> None:
        wire = Wire(endpoint.address)
        heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(heard, said)
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        wire.send(said.read())
        wire.socket.recv(1 << 16)
        wire.reset()

    return peer


def logs_in(endpoint: Endpoint) -> None:
    """A good client that asks one thing."""
    wire = Endpoint(endpoint.address, Login(SUPER, PASSWORD), endpoint.ca).connect()
    wire.send(api_versions(1))
    wire.receive()
    wire.reset()


BY_PASSWORD: dict[str, Peer] = {
    "says nothing": leaves(b""),
    "garbage": throws(framed(GARBAGE)),
    "garbage as SASL": says("PLAIN", GARBAGE),
    "a wrong password": says("PLAIN", b"\0anna\0wrong"),
    "a long name": says("PLAIN", b"\0" + b"x" * 400_000 + b"\0wrong"),
    "a wrong password by SCRAM": guesses_by_hash("anna"),
    "an unknown name by SCRAM": guesses_by_hash("nobody"),
    "many iterations": says("SCRAM-SHA-512", b"n,,n=anna,r=x,i=1000000000", b"i=1000000000,p=AAAA"),
    "a forged token": says("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"e30." * 10_000 + b"\x01\x01", b"\x01"),
    "a token of old, without a request": throws(framed(TOKEN_OF_KERBEROS)),
    "a large frame": throws(struct.pack(">i", 100_000_000) + bytes(1000)),
    "a part of a frame": leaves(struct.pack(">i", 500_000) + bytes(10_000)),
    "versions and nothing else": throws(b"".join(map(api_versions, range(10)))),
    "a request that is for those who are known": throws(request_frame(ApiKey.METADATA, MetadataRequest(topics=[]))),
}
BY_TLS: dict[str, Peer] = {
    "says nothing": leaves(b""),
    "no TLS": throws(b"GET / HTTP/1.1\r\n\r\n"),
    "a part of a greeting": leaves(bytes.fromhex("1603010200010001fc0303") + bytes(100)),
    "breaks off TLS 1.3": breaks_off(ssl.TLSVersion.TLSv1_3),
    "breaks off TLS 1.2": breaks_off(ssl.TLSVersion.TLSv1_2),
    "garbage as SASL": says("PLAIN", GARBAGE),
    "a wrong password": says("PLAIN", b"\0anna\0wrong"),
}


@contextmanager
def besieged(folder: Path) -> Iterator[tuple[AttackedBroker, HealthyClient]]:
    found = AttackedBroker(folder, AttackerKind.UNAUTHENTICATED)
    with found.broker as broker:
        client = HealthyClient(found.admin_endpoint, deadline_seconds=60)
        client.create_topics([TOPIC])
        found.prepare(client)
        client.round(1)
        yield found, client
        client.close()
        assert "Traceback" not in broker.log.read_text()


def processor_ns(pid: int) -> int:
    """What all threads of a process have had."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def settled_ns(pid: int) -> int:
    """The same once what was begun is over: it takes little more for a moment."""
    times = [processor_ns(pid)]

    def is_quiet() -> bool:
        times.append(processor_ns(pid))
        return times[-1] - times[-2] < 500_000

    wait_until(is_quiet, timeout_s=60, what="the broker has nothing to do", interval_s=0.05)
    return times[-1]


def cost(besieged: AttackedBroker, endpoint: Endpoint, peer: Peer) -> float:
    """Of one, in ns."""
    pid = besieged.broker.pid
    began = settled_ns(pid)
    for _ in range(PEERS):
        peer(endpoint)
    return (settled_ns(pid) - began) / PEERS


@pytest.mark.parametrize("is_tls", [False, True], ids=["passwords", "tls"])
def test_none_costs_much_more_than_one_who_is_let_in(tmp_path: Path, *, is_tls: bool) -> None:
    with besieged(tmp_path) as (found, _):
        endpoint = found.attacker_endpoints[-1 if is_tls else 0]
        peers = BY_TLS if is_tls else BY_PASSWORD
        for peer in (logs_in, *peers.values()):
            peer(endpoint)
        usual = min(cost(found, endpoint, logs_in) for _ in range(ROUNDS))
        shares = {name: cost(found, endpoint, peer) / usual for name, peer in peers.items()}
        print(f"one who is let in: {usual / 1000:.0f} us; " + ", ".join(f"{n}: {s:.2f}" for n, s in shares.items()))
        for name in [name for name, share in shares.items() if share > MOST]:
            # Something else may have been done meanwhile.
            shares[name] = min(cost(found, endpoint, peers[name]) for _ in range(ROUNDS)) / usual
        assert max(shares.values()) <= MOST, shares


def test_who_is_known_is_served_in_a_flood_of_those_who_are_not(tmp_path: Path) -> None:
    with besieged(tmp_path) as (found, client):
        sasl, tls = found.attacker_endpoints[0], found.attacker_endpoints[-1]
        kinds = [(sasl, peer) for peer in BY_PASSWORD.values()] + [(tls, peer) for peer in BY_TLS.values()]
        is_over = threading.Event()
        came = count()

        def flood(first: int) -> None:
            for number in count(first):
                endpoint, peer = kinds[number % len(kinds)]
                # Whoever is one too many is let go at any moment.
                with suppress(ClosedError, OSError):
                    peer(endpoint)
                    next(came)
                if is_over.is_set():
                    return

        threads = [threading.Thread(target=flood, args=(number * 5,)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            for number in range(HEALTHY_ROUNDS):
                client.round(-1 if number % 10 == 0 else 1)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert next(came) > HEALTHY_ROUNDS / 2
