"""A few rounds of what `python -m soak.cluster` does by the hundred, and the doors between processes themselves."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from soak.cluster.__main__ import outcomes
from soak.cluster.network import Network
from soak.cluster.rounds import OF_BROKERS, OF_ZOOKEEPER, Plan
from tests.nightly import mark_rest_nightly

ROUNDS = (range(6), range(6, 12))


def test_rounds_do_all_there_is() -> None:
    drawn = {(fault.role, fault.what) for number in range(200) for fault in Plan.draw(number).faults}
    whom = ("leader", "controller", "follower")
    assert drawn == {(one, what) for one in whom for what in OF_BROKERS} | {
        ("zookeeper", what) for what in OF_ZOOKEEPER
    }
    assert Plan.draw(7) == Plan.draw(7) != Plan.draw(8)


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("rounds", mark_rest_nightly(ROUNDS, 1), ids=str)
def test_nothing_acknowledged_is_lost(tmp_path: Path, rounds: range) -> None:
    failed = {str(one.plan): one.violations[:5] for one in outcomes(rounds, tmp_path) if one.violations}
    assert not failed, failed


def test_a_way_that_is_shut_holds_back_and_a_reset_ends() -> None:
    with ThreadPoolExecutor() as threads, socket.create_server(("127.0.0.1", 0)) as server, Network(dict) as network:
        port = network.forward("b", server.getsockname()[1], "a")

        def echo() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(ConnectionError):
                while data := connection.recv(100):
                    connection.sendall(data)

        echoing = threads.submit(echo)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"one")
            assert client.recv(3) == b"one"
            network.cut([("b", "a")])
            client.sendall(b"two")
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(3)
            client.settimeout(30)
            network.heal()
            assert client.recv(3) == b"two"
            network.cut([("a", "b")], reset=True)
            assert has_ended(client)
        echoing.result(30)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            assert has_ended(client)


def has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
