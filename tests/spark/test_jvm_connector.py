"""Spark's own Kafka connector works against the broker, and gives the same rows by the same queries as this one."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import KEEP_ALL, Cluster
from tests.spark.connectors import QUERIES, REFUSED, TIME
from tests.spark.jvm import connector_jars, run_with_pyspark_4_0

pytestmark = [pytest.mark.verify, pytest.mark.nightly, pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from barnabas import Broker

    topics = ["plain", "packed"] + [f"copy-{k}-{m}" for k in ("kafka", "barnabas") for m in ("batch", "stream")]
    with Broker(dict.fromkeys(topics, 2), config=KEEP_ALL) as broker:
        cluster = Cluster(broker)
        rows = [
            {
                "key": None if i % 5 == 0 else b"k%d" % (i % 40),
                "value": None if i % 7 == 0 else b"v%d" % i,
                "timestamp": TIME + i,
                "headers": [("h", b"%d" % i), ("n", None)] if i % 3 == 0 else None,
                "partition": i % 2,
            }
            for i in range(1000)
        ]
        cluster.produce("plain", rows)
        cluster.produce("packed", rows, **{"compression.type": "zstd"})
        folder: Path = tmp_path_factory.mktemp("connectors")
        jars = ",".join(map(str, connector_jars()))
        printed = run_with_pyspark_4_0("tests.spark.connectors", [broker.bootstrap, str(folder), jars], timeout_s=560)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {line["query"]: line for line in lines}


@pytest.mark.parametrize("query", [*QUERIES, "stream"])
def test_the_same_rows(told: dict[str, Any], query: str) -> None:
    assert told[query]["same"], told[query]
    assert told[query]["rows"] > 0


@pytest.mark.parametrize("query", REFUSED)
def test_the_same_refusals(told: dict[str, Any], query: str) -> None:
    assert told[f"refused: {query}"]["same"], told[f"refused: {query}"]


@pytest.mark.parametrize("mode", ["batch", "stream"])
@pytest.mark.parametrize("writer", ["kafka", "barnabas"])
def test_what_one_writes_both_read(told: dict[str, Any], writer: str, mode: str) -> None:
    line = told[f"written by {writer}, {mode}"]
    assert line["same"] and line["rows"] == 1000, line


def test_both_place_keys_alike(told: dict[str, Any]) -> None:
    line = told["both writers place keys alike"]
    assert line["same"] and line["rows"] == 800, line
