"""What containers are made of, as far as it can be tried without an engine. `make containers` tries the rest."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from barnabas.tools.cli.start import environment_properties

DOCKER = Path(__file__).parents[2] / "docker"
REQUIREMENTS = DOCKER / "requirements"


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


def probe(*port: int, **environment: str) -> int:
    command = ["bash", str(DOCKER / "health.sh"), *map(str, port)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, timeout=30).returncode


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_a_probe_goes_by_the_brokers_answer(status: int, healthy: bool) -> None:
    with answering(status) as port:
        assert (probe(port) == 0) is healthy
        assert (probe(BARNABAS_CONFIG_HEALTH_PORT=str(port)) == 0) is healthy
    assert probe(port) != 0


def test_settings_in_the_environment() -> None:
    environment = {
        "BARNABAS_CONFIG_NUM_PARTITIONS": "3",
        "BARNABAS_CONFIG_A__B_C___D": "x",
        "BARNABAS_PORT": "1",
        "HOME": "/",
    }
    assert environment_properties(environment) == {"num.partitions": "3", "a_b.c-d": "x"}


def hashed(name: str) -> set[str]:
    """The packages that a file of requirements pins; each has a hash."""
    entries = re.split(r"\n(?=\S)", (REQUIREMENTS / f"{name}.txt").read_text().lower())
    pinned = [entry for entry in entries if not entry.startswith("#")]
    assert [entry for entry in pinned if not re.match(r"[\w.-]+==[^ ]+.*\\\n +--hash=sha256:[0-9a-f]{64}", entry)] == []
    return {entry.partition("==")[0] for entry in pinned}


def test_images_have_what_the_package_needs() -> None:
    """Each dependency is pinned with its hash, and everything that the recipe copies exists."""
    project = tomllib.loads((DOCKER.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = {
        "broker": [
            *project["dependencies"],
            *(needed for extra in ("tls", "fast-zstd", "console", "schema-registry") for needed in extras[extra]),
        ],
        "demo": [*project["dependencies"], *extras["demo"]],
        "spark": [*project["dependencies"], *extras["spark"], *extras["spark-java"]],
    }
    for image, requirements in needed.items():
        names = {re.split(r"[<>=~;\[ ]", requirement)[0].lower().replace(".", "-") for requirement in requirements}
        assert names - hashed(image) - {"barnabas"} == set(), f"docker/requirements/compile makes {image}.txt anew"
    assert "hatchling" in hashed("build")
    recipe = (DOCKER / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:--python \S+ )?install (\S+)", recipe)
    assert set(installs) == {"--require-hashes", "--no-deps"}
    for line in recipe.splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and "--from" not in line:
            assert [name for name in words[1:-1] if not (DOCKER.parent / name).exists()] == []
    packages = {
        path.name for path in (DOCKER.parent / ".src" / "barnabas").iterdir() if path.is_symlink() and path.is_dir()
    }
    assert packages - set(re.findall(r"^COPY (\w+) \w+$", recipe, re.MULTILINE)) == set()
    assert packages - set(re.findall(r"^!(\w+)$", (DOCKER.parent / ".dockerignore").read_text(), re.MULTILINE)) == set()


DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def test_images_and_actions_are_pinned() -> None:
    recipe = (DOCKER / "Dockerfile").read_text()
    bases = re.findall(r"(?m)^ARG \w+=(.+)$", recipe)
    stages = re.findall(r"(?m)^FROM (\S+)(?: AS (\S+))?$", recipe)
    known = {name for _, name in stages} | {"${BUILD_IMAGE}", "${IMAGE}"}
    assert len(bases) == 2 and not {image for image, _ in stages} - known
    compose = yaml.safe_load((DOCKER / "docker-compose.yml").read_text())["services"].values()
    others = [service["image"] for service in compose if not service["image"].startswith("barnabas-")]
    workflows = "".join(path.read_text() for path in (DOCKER.parent / ".github/workflows").glob("*.yml"))
    containers = re.findall(r"(?m)^ +container: (\S+)", workflows)
    images = [*bases, *(re.sub(r"\$\{\w+:-(.*)\}", r"\1", image) for image in others), *containers]
    assert len(others) == 3 and containers
    assert [image for image in images if not DIGEST.search(image)] == []
    uses = re.findall(r"uses: (\S+)(.*)", workflows)
    assert uses and [action for action, _ in uses if not re.search(r"@[0-9a-f]{40}$", action)] == []
    assert [action for action, comment in uses if not re.fullmatch(r" # v\d+\.\d+\.\d+", comment)] == []
