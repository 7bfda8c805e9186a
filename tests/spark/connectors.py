"""Runs the same queries through Spark's own Kafka connector and through this one, under PySpark 4.0.

    python -m tests.spark.connectors BOOTSTRAP FOLDER JARS

Prints one JSON line per query: its name and whether both gave the same rows, with a sample of the difference if not.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from barnabas.spark.session import register, session

FORMATS = ("kafka", "barnabas")
TIME = 1_700_000_000_000


class Comparison:
    """One session with both connectors."""

    def __init__(self, bootstrap: str, folder: str, jars: str) -> None:
        config = {
            "spark.jars": jars,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        }
        self.spark = session("local[2]", config=config)
        self.spark.sparkContext.setLogLevel("ERROR")
        register(self.spark)
        self.bootstrap = bootstrap
        self.folder = folder

    def rows(self, kind: str, options: dict[str, str]) -> list[str]:
        reader = self.spark.read.format(kind).option("kafka.bootstrap.servers", self.bootstrap)
        frame = reader.options(**options).load()
        return sorted(str(row.asDict(recursive=True)) for row in frame.collect())

    def stream(self, kind: str, name: str, options: dict[str, str]) -> list[str]:
        reader = self.spark.readStream.format(kind).option("kafka.bootstrap.servers", self.bootstrap)
        writer = reader.options(**options).load().writeStream.format("memory").queryName(f"{name}_{kind}")
        query = writer.option("checkpointLocation", f"{self.folder}/{name}-{kind}").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return sorted(str(row.asDict(recursive=True)) for row in self.spark.table(f"{name}_{kind}").collect())

    def write(self, kind: str, topic: str, *, streaming: bool) -> None:
        """Copy topic `plain` through a connector."""
        source = self.spark.readStream if streaming else self.spark.read
        reader = source.format(kind).option("kafka.bootstrap.servers", self.bootstrap).option("subscribe", "plain")
        frame = reader.option("startingOffsets", "earliest").option("includeHeaders", "true").load()
        frame = frame.select("key", "value", "headers")
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic}
        if not streaming:
            frame.write.format(kind).options(**options).mode("append").save()
            return
        checkpoint = f"{self.folder}/write-{topic}"
        query = frame.writeStream.format(kind).options(**options).option("checkpointLocation", checkpoint).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def places(self, topic: str) -> list[str]:
        """The partition of each record that has a key; those without may lie anywhere."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        frame = reader.option("subscribe", topic).load().where("key is not null")
        return sorted(str(row) for row in frame.selectExpr("hex(key)", "hex(value)", "partition").collect())

    def compare(self, name: str, get: Callable[[str], Any]) -> None:
        first, second = (get(kind) for kind in FORMATS)
        different = [] if first == second else [str(first)[:300], str(second)[:300]]
        count = len(first) if isinstance(first, list) else None
        print(json.dumps({"query": name, "same": first == second, "rows": count, "different": different}), flush=True)

    def failure(self, kind: str, options: dict[str, str]) -> bool:
        try:
            self.rows(kind, options)
        except Exception:
            return True
        return False


QUERIES: dict[str, dict[str, str]] = {
    "everything": {"subscribe": "plain"},
    "headers": {"subscribe": "plain", "includeHeaders": "true"},
    "two topics": {"subscribe": "plain,packed"},
    "pattern": {"subscribePattern": "p.*ed"},
    "assign": {"assign": '{"plain":[1]}'},
    "offsets": {
        "subscribe": "plain",
        "startingOffsets": '{"plain":{"0":5,"1":-2}}',
        "endingOffsets": '{"plain":{"0":9,"1":-1}}',
    },
    "time": {"subscribe": "plain", "startingTimestamp": str(TIME + 100), "endingTimestamp": str(TIME + 300)},
    "time by partition": {
        "subscribe": "plain",
        "startingOffsetsByTimestamp": json.dumps({"plain": {"0": TIME + 50, "1": TIME + 500}}),
    },
    "min partitions": {"subscribe": "plain", "minPartitions": "7"},
    "compressed": {"subscribe": "packed", "includeHeaders": "true"},
}
REFUSED: dict[str, dict[str, str]] = {
    "latest at the start": {"subscribe": "plain", "startingOffsets": "latest"},
    "earliest at the end": {"subscribe": "plain", "endingOffsets": "earliest"},
    "a partition too many": {"subscribe": "plain", "startingOffsets": '{"plain":{"0":5,"1":1,"2":1}}'},
    "a partition too few": {"subscribe": "plain", "startingOffsets": '{"plain":{"0":5}}'},
    "a time too late": {"subscribe": "plain", "startingTimestamp": str(TIME * 2)},
    "two subscriptions": {"subscribe": "plain", "assign": '{"plain":[1]}'},
    "a reset": {"subscribe": "plain", "kafka.auto.offset.reset": "earliest"},
}


def main(bootstrap: str, folder: str, jars: str) -> None:
    comparison = Comparison(bootstrap, folder, jars)
    for name, options in QUERIES.items():
        comparison.compare(name, lambda kind, options=options: comparison.rows(kind, options))  # type: ignore[misc]
    for name, options in REFUSED.items():
        comparison.compare(f"refused: {name}", lambda kind, o=options: comparison.failure(kind, o))  # type: ignore[misc]
    rate = {"subscribe": "plain", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    comparison.compare("stream", lambda kind: comparison.stream(kind, "stream", rate))
    for streaming in (False, True):
        for kind in FORMATS:
            topic = f"copy-{kind}-{'stream' if streaming else 'batch'}"
            comparison.write(kind, topic, streaming=streaming)
            copied = {"subscribe": topic, "includeHeaders": "true"}

            def facts(reader: str, copied: dict[str, str] = copied) -> list[str]:
                frame = comparison.spark.read.format(reader).option("kafka.bootstrap.servers", bootstrap)
                rows = frame.options(**copied).load().select("key", "value", "headers", "partition").collect()
                return sorted(str(row.asDict(recursive=True)) for row in rows)

            comparison.compare(f"written by {kind}, {'stream' if streaming else 'batch'}", facts)
    comparison.compare("both writers place keys alike", lambda kind: comparison.places(f"copy-{kind}-batch"))
    comparison.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
