"""What containers are made of, as far as it can be tried without an engine. `make containers` tries the rest."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from barnabas.clients.cli.start import environment_properties

DOCKER = Path(__file__).parents[2] / "docker"


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A port that answers GET /health like this."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Nothing: a test is no place for an access log."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def probe(port: int) -> int:
    return subprocess.run(["bash", DOCKER / "health.sh", str(port)], capture_output=True, timeout=30).returncode


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_a_probe_goes_by_the_brokers_answer(status: int, healthy: bool) -> None:
    with answering(status) as port:
        assert (probe(port) == 0) is healthy
    assert probe(port) != 0


def test_settings_in_the_environment() -> None:
    environment = {
        "BARNABAS_CONFIG_NUM_PARTITIONS": "3",
        "BARNABAS_CONFIG_A__B_C___D": "x",
        "BARNABAS_PORT": "1",
        "HOME": "/",
    }
    assert environment_properties(environment) == {"num.partitions": "3", "a_b.c-d": "x"}


def test_images_have_what_the_package_needs() -> None:
    """Each dependency is pinned, what the recipe copies is there, and a server opens zstd the fast way."""
    pinned = (DOCKER / "constraints.txt").read_text().lower()
    for package in (
        "construct",
        "cramjam",
        "crc32c",
        "cryptography",
        "kazoo",
        "rich",
        "typer",
        "uvloop",
        "zstandard",
        "pyspark",
    ):
        assert f"\n{package}==" in pinned
    recipe = (DOCKER / "Dockerfile").read_text()
    assert "pip install '.[tls,fast-zstd]'" in recipe
    for line in recipe.splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and "--from" not in line:
            assert [name for name in words[1:-1] if not (DOCKER.parent / name).exists()] == []
