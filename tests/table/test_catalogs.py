"""Iceberg catalogs other than the SQLite catalog in a folder: the REST catalog of Iceberg's own test fixture."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.java import JVM_FLAGS, jars, join_classpath, require_java
from tests.server_process import free_port, wait_until
from tests.table.conftest import produce
from tests.table.test_follow import follow, values

from barnabas import Broker
from barnabas.table import TableConflictError, open_table
from barnabas.table.parquet_files import TableSettings
from barnabas.table.partitioning import parse_partitioning

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(400)]

ICEBERG = "1.11.0"
FIXTURE = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.14",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.14",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.14",
)


@pytest.fixture(scope="module")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableSettings]:
    """The options of a catalog that runs."""
    require_java()
    pytest.importorskip("pyiceberg", reason="pip install 'barnabas[iceberg]'")
    folder, port = tmp_path_factory.mktemp("catalog"), free_port()
    env = {
        **os.environ,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
    }
    command = ["java", *JVM_FLAGS, "-cp", join_classpath(jars(*FIXTURE)), "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"{url}/v1/config", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    try:
        wait_until(is_ready, timeout_s=60, what="the catalog responds")
        yield TableSettings(options=(("type", "rest"), ("uri", url)))
    finally:
        process.kill()
        process.wait()


def rows_of(settings: TableSettings, name: str) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    return list(load_catalog("other", **dict(settings.options)).load_table(name).scan().to_arrow().to_pylist())


@pytest.mark.parametrize("partitions", ["", "day(timestamp),partition"])
def test_a_rest_catalog(broker: Broker, topic: str, rest_catalog: TableSettings, partitions: str) -> None:
    from dataclasses import replace

    name = f"db.{'plain' if not partitions else 'parts'}"
    to = f"iceberg://rest#{name}"
    layout = replace(rest_catalog, partition_by=parse_partitioning(partitions), merge_at=2)
    for first in (0, 100):
        produce(broker, topic, values(100, first))
        assert follow(broker, topic, to, layout) == 100
    assert follow(broker, topic, to, layout) == 0
    with open_table(to, layout) as sink:
        sink.load()
        assert sink.maintain() == 2
    rows = rows_of(rest_catalog, name)
    assert sorted(row["value"] for row in rows) == sorted(b"v%d" % i for i in range(200))
    produce(broker, topic, values(10, 200))
    with open_table(to, layout) as first_sink, open_table(to, layout) as second:
        offsets = first_sink.load()
        assert offsets == second.load() and offsets is not None
        first_sink.commit(offsets)
        with pytest.raises(TableConflictError):
            second.commit(offsets)
    assert follow(broker, topic, to, layout) == 10


def test_a_catalog_that_does_not_respond_is_one_line(broker: Broker, topic: str, tmp_path: Path) -> None:
    layout = TableSettings(options=(("type", "rest"), ("uri", f"http://127.0.0.1:{free_port()}")))
    with pytest.raises(ValueError, match="catalog 'rest': "):
        follow(broker, topic, "iceberg://rest#db.rows", layout)
