"""Connections in numbers, on real sockets: limits, idle ones, slow readers, dribblers, and the end of file handles."""

from __future__ import annotations

import resource
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from soak.hostile.healthy_client import TOPIC, HealthyClient
from soak.hostile.storm import GROWTH_BYTES, resident_bytes
from soak.hostile.wire import ClosedError, Endpoint, Wire, api_versions
from tests.barnabas_server import BarnabasServer
from tests.frames import framed, request_body
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

PATIENCE_S = 60
HEALTHY_S = 10
"""For a request of a good client, whatever others are at."""
IDLE_CONNECTION_BYTES = 40 << 10
SETTINGS = {"log.index.size.max.bytes": "4096", "log.segment.bytes": "1000000"}


class QuickStallServer(BarnabasServer):
    """A broker that disconnects a client which takes no responses after 3 seconds instead of 30."""

    def command(self) -> list[str]:
        *_, settings = super().command()
        program = (
            "import sys; from barnabas.server.network import socket_server; socket_server.STALL_SECONDS = 3.0; "
            "from barnabas.tools.cli import main; sys.exit(main())"
        )
        return [sys.executable, "-c", program, "start", settings]


@contextmanager
def running(
    folder: Path, server: type[BarnabasServer] = BarnabasServer, /, **settings: str
) -> Iterator[tuple[BarnabasServer, tuple[str, int]]]:
    properties = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
    with server(folder, properties=properties) as broker:
        yield broker, ("127.0.0.1", broker.port)
    assert "Traceback" not in broker.log.read_text()


def is_served(wire: Wire) -> bool:
    """Whether a request on this connection is answered."""
    try:
        wire.send(api_versions(3))
        return wire.receive()[:4] == struct.pack(">i", 3)
    except ClosedError:
        return False


def is_closed(wire: Wire) -> bool:
    """Whether the broker has closed a connection that nothing is expected on."""
    wire.socket.setblocking(False)
    try:
        return wire.socket.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        wire.socket.settimeout(PATIENCE_S)


@pytest.mark.parametrize(
    ("setting", "value"), [("max_connections", "5"), ("max_connections_per_ip_overrides", "127.0.0.1:5")]
)
def test_more_connections_than_allowed_are_refused(tmp_path: Path, setting: str, value: str) -> None:
    with running(tmp_path, **{setting: value}) as (_, address):
        wires = [Wire(address) for _ in range(5)]
        assert all(map(is_served, wires))
        surplus = [Wire(address) for _ in range(20)]
        assert not any(map(is_served, surplus))
        assert all(map(is_served, wires))
        wires.pop().close()
        wait_until(lambda: is_served(Wire(address)), timeout_s=60, what="the place is free again")


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    with running(tmp_path, connections_max_idle_ms="4000") as (_, address):
        idle, busy = Wire(address), Wire(address)
        assert is_served(idle)
        wait_until(lambda: not is_served(busy) or is_closed(idle), timeout_s=60, what="the idle connection is closed")
        assert is_served(busy)


def test_a_thousand_idle_connections_cost_little(tmp_path: Path) -> None:
    with running(tmp_path) as (broker, address), ExitStack() as stack:
        client = HealthyClient(Endpoint(address), deadline_seconds=HEALTHY_S)
        client.create_topics([TOPIC])
        client.round(1)
        for _ in range(20):
            stack.callback(Wire(address).close)
        before = resident_bytes(broker.pid)
        for _ in range(1000):
            wire = Wire(address)
            stack.callback(wire.close)
            assert is_served(wire)
        each = (resident_bytes(broker.pid) - before) / 1000
        assert each <= IDLE_CONNECTION_BYTES, f"{each / 1024:.1f} KiB for each idle connection"
        client.round(1)


def test_a_thousand_announced_giants_cost_what_they_send(tmp_path: Path) -> None:
    """100 MB announced and little sent, piece by piece: memory follows the bytes, not the announcement.

    All of them are granted theirs: with a budget for few a slow machine has these cut off, as others wait.
    """
    budget = str(1000 * (100 << 20))
    with running(tmp_path, queued_max_request_bytes=budget) as (broker, address), ExitStack() as stack:
        client = HealthyClient(Endpoint(address), deadline_seconds=HEALTHY_S)
        client.create_topics([TOPIC])
        client.round(1)
        before = resident_bytes(broker.pid)
        wires = []
        for _ in range(1000):
            wire = Wire(address)
            wires.append(wire)
            stack.callback(wire.close)
            assert is_served(wire)
        # All are there before the first begins: from then on the broker does not wait for it for ever.
        for wire in wires:
            wire.send(struct.pack(">i", 100 << 20) + b"\0\0\0\x09")
        for _ in range(5):
            for wire in wires:
                wire.send(b"x" * 1000)
            client.round(1)
        growth = resident_bytes(broker.pid) - before
        assert growth <= GROWTH_BYTES, f"{growth >> 20} MiB"
        assert not any(map(is_closed, wires))


def test_giants_that_are_no_produce_requests_are_refused_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as (_, address):
        wire = Wire(address)
        wire.send(struct.pack(">i", 50 << 20) + struct.pack(">hhi", ApiKey.METADATA, 1, 1))
        with pytest.raises(ClosedError):
            wire.receive()


def fetch_all(max_bytes: int) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(max_wait_ms=0, max_bytes=max_bytes, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
    return framed(request_body(ApiKey.FETCH, 12, request))


def slow_reader(address: tuple[str, int]) -> Wire:
    """A connection that takes as little as it can."""
    wire = Wire.__new__(Wire)
    wire.socket = socket.socket()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.socket.settimeout(PATIENCE_S)
    wire.socket.connect(address)
    return wire


def test_readers_that_do_not_read_hold_one_answer_each(tmp_path: Path) -> None:
    with running(tmp_path) as (broker, address), ExitStack() as stack:
        client = HealthyClient(Endpoint(address), deadline_seconds=HEALTHY_S)
        client.create_topics([TOPIC])
        client.write_much(900_000)
        before = resident_bytes(broker.pid)
        for _ in range(10):
            wire = slow_reader(address)
            stack.callback(wire.close)
            wire.send(fetch_all(1 << 20) * 200)
        for _ in range(20):
            client.round(1)
        growth = resident_bytes(broker.pid) - before
        assert growth <= 10 * (4 << 20), f"{growth >> 20} MiB for 10 readers with answers of 0.9 MB"


def test_a_refused_client_that_does_not_read_keeps_nothing(tmp_path: Path) -> None:
    """Its connection is to be closed after what is ready was sent, and it takes nothing of that."""
    with (
        running(tmp_path, QuickStallServer, connections_max_idle_ms="2000") as (broker, address),
        ExitStack() as stack,
    ):
        client = HealthyClient(Endpoint(address), deadline_seconds=HEALTHY_S)
        client.create_topics([TOPIC])
        client.write_much(100_000)
        handles = open_handles(broker.pid)
        # How much the kernel takes is not known: of so many numbers of answers, some leave a rest in the broker.
        for answers in range(1, 61):
            wire = slow_reader(address)
            stack.callback(wire.close)
            wire.send(fetch_all(100_000) * answers + struct.pack(">i", -1))
        wait_until(lambda: open_handles(broker.pid) > handles + 5, timeout_s=60, what="some are connected")

        def let_go() -> bool:
            client.round(1)
            return open_handles(broker.pid) <= handles + 2

        wait_until(let_go, timeout_s=60, what="the connections are gone")


def open_handles(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_the_end_of_file_handles_stops_accepting_and_nothing_else(tmp_path: Path) -> None:
    with running(tmp_path) as (broker, address), ExitStack() as stack:
        client = HealthyClient(Endpoint(address), deadline_seconds=HEALTHY_S)
        client.create_topics([TOPIC])
        client.round(1)
        _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (open_handles(broker.pid) + 100, hard))
        wires = []
        for _ in range(300):
            wires.append(Wire(address))
            stack.callback(wires[-1].close)
        for _ in range(30):
            client.write_much(300_000)
            client.round(-1)
        client.create_topics(["another"])
        for wire in wires:
            wire.close()
        wait_until(lambda: is_served(Wire(address)), timeout_s=60, what="new connections are accepted again")
        client.round(-1)
