"""Delta and Iceberg tables as what `barnabas spark` writes: each record once, and the old version kept."""

import json
from pathlib import Path

import pytest
from tests.java import jars
from tests.spark.conftest import Cluster
from tests.spark.jvm import run_with_pyspark_4_0

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(600)]

DELTA, ICEBERG = "io.delta:delta-spark_4.0_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"
NEEDED = ("delta-", "unitycatalog-", "RoaringBitmap", "shims", "iceberg-")
"""The rest of what Maven resolves is part of Spark."""


def test_tables_of_a_lake(cluster: Cluster, tmp_path: Path) -> None:
    cluster.broker.create_topic("t", 2)
    cluster.produce("t", [{"key": b"k%d" % (i % 4), "value": b"%d" % i, "partition": i % 2} for i in range(40)])
    found = ",".join(str(path) for path in jars(DELTA, ICEBERG) if path.name.startswith(NEEDED))
    arguments = [cluster.bootstrap, str(tmp_path), found]
    printed = run_with_pyspark_4_0("tests.spark.lake_tables", arguments, timeout_s=560)
    export, exported, delta, iceberg = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
    assert export == {"export": [0, 0]}
    assert exported == {"exported": [["t", partition, offset] for partition in range(2) for offset in range(20)]}
    rows = [["k0", "36"], ["k1", "37"], ["k2", "38"], ["k3", "39"]]
    assert delta == {"delta": [0, 1, 0], "rows": rows, "versions": 2}
    assert iceberg == {"iceberg": [0, 1, 0], "rows": rows, "versions": 2}
