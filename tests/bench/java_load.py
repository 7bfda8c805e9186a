"""Kafka's own tools of release 4.1.1 as load, to see whether the figures of librdkafka hold for Java's clients.

kafka-consumer-perf-test and EndToEndLatency are not among them: the first reads as a member of a group and the second
commits offsets, which not every server compared here knows. Fetching is measured with kafka-console-consumer, which is
assigned its partition and prints nothing.
"""

import re
import time

from tests.java import run_java
from tests.kafka import NEWEST, SERVER_FLAGS, TOOL_CLASSES, kafka_jars, logging_flags

NO_OUTPUT = "org.apache.kafka.tools.consumer.NoOpMessageFormatter"
PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


def run_tool(main: str, arguments: list[str]) -> str:
    """Run a tool with the flags of Kafka's own scripts and return what it printed."""
    flags = [*SERVER_FLAGS, "-Xms512m", "-Xmx512m", *logging_flags(NEWEST, "warn")]
    result = run_java(main, kafka_jars(NEWEST), arguments, timeout=300, flags=flags)
    if result.returncode != 0:
        raise RuntimeError(f"{main} exited {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def produce(bootstrap: str, topic: str, *, size: int, records: int, codec: str = "none") -> dict[str, float]:
    """kafka-producer-perf-test with the producer's defaults but acks 1 (which excludes idempotence)."""
    properties = [f"bootstrap.servers={bootstrap}", "acks=1", "enable.idempotence=false", f"compression.type={codec}"]
    load = ["--num-records", str(records), "--record-size", str(size), "--throughput", "-1"]
    printed = run_tool(
        TOOL_CLASSES["kafka-producer-perf-test"], ["--topic", topic, *load, "--producer-props", *properties]
    )
    found = PRODUCED.findall(printed)
    if not found or int(found[-1][0]) != records:
        raise RuntimeError(f"kafka-producer-perf-test said:\n{printed}")
    per_second = float(found[-1][1])
    return {"records": records, "seconds": records / per_second, "mb_per_s": per_second * size / 1e6}


def consume(bootstrap: str, topic: str, *, size: int, records: int) -> dict[str, float]:
    """kafka-console-consumer of partition 0; the time of a run for few records is taken off, it is the JVM's start."""

    def seconds(count: int) -> float:
        begin = time.perf_counter()
        where = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(count)]
        run_tool(
            TOOL_CLASSES["kafka-console-consumer"],
            ["--bootstrap-server", bootstrap, *where, "--formatter", NO_OUTPUT],
        )
        return time.perf_counter() - begin

    few = 1000
    spent = seconds(records) - seconds(few)
    return {"records": records - few, "seconds": spent, "mb_per_s": (records - few) * size / spent / 1e6}
