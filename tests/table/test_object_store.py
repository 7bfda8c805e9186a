"""Folders of segments and Iceberg tables in an object store with S3's protocol: moto's server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.foreign_tools import CHECKOUT, cache_dir, cache_entry, digest, run_checked
from tests.server_process import free_port, wait_until
from tests.table.conftest import location, produce

from barnabas import Broker

pytestmark = [pytest.mark.verify, pytest.mark.nightly, pytest.mark.timeout(600)]

PACKAGES = ("moto[server]==5.2.5", "s3fs")


def packages() -> Path:
    """A folder to put on the Python path, fetched once."""
    with cache_entry(cache_dir("python"), f"s3-{digest(*PACKAGES, sys.version)}") as (entry, scratch):
        if scratch is not None:
            install = ["install", "--quiet", "--disable-pip-version-check", "--target", str(scratch)]
            run_checked([sys.executable, "-m", "pip", *install, *PACKAGES])
    return entry


@pytest.fixture
def environment() -> dict[str, str]:
    paths = [str(packages()), str(CHECKOUT / ".src"), str(CHECKOUT)]
    keys = {"FSSPEC_S3_KEY": "key", "FSSPEC_S3_SECRET": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **keys}


@pytest.fixture
def endpoint(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def is_ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()[-4000:]
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_ready, timeout_s=60, what="the object store responds")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_an_object_store(endpoint: str, environment: dict[str, str], tmp_path: Path) -> None:
    location("iceberg", tmp_path)  # skips the test without pyiceberg
    with Broker(data_dir=tmp_path / "data", config={"log.retention.ms": "-1"}) as broker:
        broker.create_topic("t", 2)
        # 20 keys, each in one partition, and 1000 records per partition.
        produce(broker, "t", [{"key": b"%d" % (i % 20), "value": b"v%d" % i, "partition": i % 2} for i in range(2000)])
        environment = {**environment, "FSSPEC_S3_ENDPOINT_URL": endpoint}
        arguments = [endpoint, broker.bootstrap, str(tmp_path / "data"), str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.table.object_store", *arguments],
            env=environment,
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, object] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    everything = [2000, 2 * sum(range(1000))]
    assert found == {
        "folder": everything,
        "part": [100, sum(range(100, 200))],
        "table": everything,
        "merged": found["merged"],
        "latest": [20, 2 * sum(range(990, 1000))],
    }
