"""A batch, a stream and their sinks with the PySpark on the path: run by `test_pyspark_versions.py`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from tests.java import QUICK_FLAGS
from tests.spark.conftest import KEEP_ALL, Cluster

from barnabas import Broker
from barnabas.spark.session import session

COUNT = 1000


def numbers(spark: Any, cluster: Cluster, topic: str) -> list[int]:
    frame = spark.read.format("barnabas").options(**cluster.options(topic)).load()
    return sorted(int(row[0]) for row in frame.selectExpr("cast(value as string)").collect())


def play(spark: Any, cluster: Cluster, folder: Path) -> None:
    for topic in ("t", "copied", "streamed"):
        cluster.broker.create_topic(topic, 2)
    cluster.produce("t", [{"key": b"k", "value": b"%d" % number} for number in range(COUNT)])
    assert numbers(spark, cluster, "t") == list(range(COUNT))
    columns = ("cast(value as string) key", "value", "'copied' topic")
    read = spark.read.format("barnabas").options(**cluster.options("t")).load()
    read.selectExpr(*columns).write.format("barnabas").mode("append").options(**cluster.options()).save()
    assert numbers(spark, cluster, "copied") == list(range(COUNT))

    # Twice, from the same checkpoint: the second query continues after the last record of the first.
    for first in (0, COUNT):
        if first:
            cluster.produce("t", [{"value": b"%d" % number} for number in range(first, first + COUNT)])
        rows = spark.readStream.format("barnabas").options(**cluster.options("t", startingOffsets="earliest")).load()
        writer = rows.selectExpr("value", "'streamed' topic").writeStream.format("barnabas")
        query = writer.options(**cluster.options()).option("checkpointLocation", str(folder / "checkpoint")).start()
        query.processAllAvailable()
        query.stop()
    streamed = numbers(spark, cluster, "streamed")
    assert streamed == list(range(2 * COUNT)), (len(streamed), len(set(streamed)))

    has_limits = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
    available = sizes(spark, cluster, folder / "available", availableNow=True)
    assert sum(available) == 2 * COUNT, available
    assert max(available) <= 600 if has_limits else len(available) == 1, available
    once = sizes(spark, cluster, folder / "once", once=True)
    assert once == [2 * COUNT] if has_limits else sum(once) <= 2 * COUNT, once
    print("available now:", available, "once:", once)


def sizes(spark: Any, cluster: Cluster, checkpoint: Path, **trigger: bool) -> list[int]:
    """Return the rows of each batch of a query with a rate and a trigger that ends."""
    found: list[int] = []
    options = cluster.options("t", startingOffsets="earliest", maxOffsetsPerTrigger="600")
    rows = spark.readStream.format("barnabas").options(**options).load()
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.append(batch.count()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()
    assert query.awaitTermination(120)
    return [size for size in found if size]


def main() -> None:
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(QUICK_FLAGS),
    }
    with tempfile.TemporaryDirectory(dir=os.environ["ROUND_FOLDER"]) as folder, Broker(config=KEEP_ALL) as broker:
        places = {"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.local.dir": f"{folder}/local"}
        spark = session("local[1]", config={**config, **places})
        spark.sparkContext.setLogLevel("ERROR")
        play(spark, Cluster(broker), Path(folder))
        print("PySpark", pyspark.__version__, Path(pyspark.__file__).parent)
        spark.stop()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
