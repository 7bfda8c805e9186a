"""Loads by the command-line tools of Kafka 4.4.0, to check that the figures of librdkafka hold for Java's clients.

kafka-consumer-perf-test and EndToEndLatency are not used: the first reads as a group member and the second commits
offsets, and not every server in the comparison supports groups. Fetches are measured with kafka-console-consumer, which
is assigned its partition and prints nothing.
"""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.payloads import payloads
from tests.java import run_java
from tests.kafka import NEWEST, SERVER_FLAGS, TOOL_CLASSES, kafka_jars, logging_flags

NO_OUTPUT = "org.apache.kafka.tools.consumer.NoOpMessageFormatter"
PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


def run_tool(main: str, arguments: list[str]) -> str:
    """Run a tool with the JVM flags of Kafka's own scripts and return its output."""
    flags = [*SERVER_FLAGS, "-Xms512m", "-Xmx512m", *logging_flags(NEWEST, "warn")]
    result = run_java(main, kafka_jars(NEWEST), arguments, timeout=300, flags=flags)
    if result.returncode != 0:
        raise RuntimeError(f"{main} exited {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def produce(
    bootstrap: str, topic: str, *, size: int, records: int, codec: str = "none", producers: int = 1
) -> dict[str, float]:
    """Run kafka-producer-perf-test with the producer's defaults except acks 1, which excludes idempotence.

    The records are read from a text file, because generating a record costs the tool more than sending it. `producers`
    processes send `records` in total at the same time. Their reported rates are added.
    """
    properties = [f"bootstrap.servers={bootstrap}", "acks=1", "enable.idempotence=false", f"compression.type={codec}"]
    share = records // producers

    def rate(values: Path) -> float:
        load = ["--num-records", str(share), "--payload-file", str(values), "--throughput", "-1"]
        arguments = ["--topic", topic, *load, "--producer-props", *properties]
        printed = run_tool(TOOL_CLASSES["kafka-producer-perf-test"], arguments)
        found = PRODUCED.findall(printed)
        if not found or int(found[-1][0]) != share:
            raise RuntimeError(f"kafka-producer-perf-test printed:\n{printed}")
        return float(found[-1][1])

    with TemporaryDirectory(prefix="barnabas-bench-") as folder, ThreadPoolExecutor(producers) as pool:
        values = Path(folder) / "values"
        values.write_bytes(b"\n".join(payloads(size, compressible=True)))
        per_second = sum(pool.map(rate, [values] * producers))
    sent = share * producers
    return {"records": sent, "seconds": sent / per_second, "mb_per_s": per_second * size / 1e6}


def consume(bootstrap: str, topic: str, *, size: int, records: int) -> dict[str, float]:
    """Run kafka-console-consumer on partition 0. The time of a short run, the start of the JVM, is subtracted."""

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
