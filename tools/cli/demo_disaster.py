"""The demo's second half: a state in a compacted topic survives the loss of its machine."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from .local_broker import LocalBroker
from .session import fail

TOPIC = "last-flights"
_COMMAND = "import sys; from barnabas.tools.cli import main; sys.exit(main(sys.argv[1:]))"
_ERRORS_ONLY = 3
_READY_SECONDS = 60.0
_QUIET_SECONDS = 10.0
_AFTER_COMPACTION = 10
"""One in this number of flights is sent after the compaction, so that there are uncompacted records to lose."""


Produce = Callable[[str, Sequence[Any]], object]
"""Sends records to a topic; all are acknowledged when it returns."""


def show_recovery(
    ck: Any, flights: Sequence[Any], folder: Path, *, partitions: int, produce: Produce, say: Callable[[str], None]
) -> dict[str, object]:
    """Compact to the last flight of each aircraft, kill the broker, rebuild the state from a copy of its directory.

    Flights without a tail number are omitted: the broker rejects records without a key in a compacted topic.
    """
    keyed = [flight for flight in flights if flight.key is not None]
    truth = {flight.key: flight.value for flight in keyed}
    held_back = len(keyed) // _AFTER_COMPACTION
    original, copy = folder / "original", folder / "copy"
    with _broker(original) as (bootstrap, local, process):
        _create(bootstrap, partitions)
        produce(bootstrap, keyed[:-held_back])
        say(f"compacting {TOPIC}: {len(keyed) - held_back:,} flights, except flights without a tail number …")
        started = time.perf_counter()
        answer = local.post("/compaction", {"topic": TOPIC})
        seconds = time.perf_counter() - started
        before, after = (sum(size[name] for size in answer["sizes"]) for name in ("bytes_before", "bytes_after"))
        say(f"compacted {before:,} bytes to {after:,} in {seconds:.2f} s, one record for each aircraft")
        produce(bootstrap, keyed[-held_back:])
        process.send_signal(signal.SIGKILL)
        process.wait()
        say(f"{held_back:,} more flights, then the broker was killed (SIGKILL) and its directory copied")
        shutil.copytree(original, copy)
    with import_module("barnabas").Broker(data_dir=copy) as broker:
        state, records = _state(ck, broker.bootstrap, partitions)
    if state != truth:
        wrong = next(key for key in truth.keys() | state.keys() if truth.get(key) != state.get(key))
        fail(f"the last flight of aircraft {wrong!r} is {state.get(wrong)!r}, not {truth.get(wrong)!r}")
    say(f"a broker on the copy, read from offset 0: {records:,} records, the last flights of {len(state):,} aircraft")
    say("compared: equal to the data, no record lost")
    return {
        "bytes_before": before,
        "bytes_after": after,
        "seconds": round(seconds, 3),
        "records_read": records,
        "aircraft": len(state),
        "equal": True,
    }


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[str, LocalBroker, subprocess.Popen[str]]]:
    """A broker in its own process, so that it can be killed."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", _COMMAND, "start", "--port", "0", "--data", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    try:
        assert process.stdout is not None
        told = ""
        deadline = time.monotonic() + _READY_SECONDS
        for line in process.stdout:
            told += line
            if line.startswith("ready ") or time.monotonic() > deadline:
                break
        listening = re.search(r"^listening \w+://(\S+)$", told, re.MULTILINE)
        health = re.search(r"^health (http://\S+)/health$", told, re.MULTILINE)
        if listening is None or health is None:
            fail(f"the broker did not start: {told or process.wait()}")
        yield listening[1], LocalBroker(health[1]), process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _create(bootstrap: str, partitions: int) -> None:
    library = import_module("confluent_kafka.admin")
    admin = library.AdminClient({"bootstrap.servers": bootstrap, "log_level": _ERRORS_ONLY})
    admin.create_topics([library.NewTopic(TOPIC, partitions, 1, config={"cleanup.policy": "compact"})])[TOPIC].result()


def _state(ck: Any, bootstrap: str, partitions: int) -> tuple[dict[bytes, bytes], int]:
    """Read all records from offset 0; return the last flight of each aircraft, and the number of records."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    consumer = ck.Consumer(settings | {"enable.partition.eof": True})
    consumer.assign([ck.TopicPartition(TOPIC, index, ck.OFFSET_BEGINNING) for index in range(partitions)])
    state: dict[bytes, bytes] = {}
    ended, records = 0, 0
    while ended < partitions:
        messages = consumer.consume(10_000, timeout=_QUIET_SECONDS)
        if not messages:
            fail("cannot read the copy to its end")
        for message in messages:
            if message.error() is None:
                state[message.key()] = message.value()
                records += 1
            elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                ended += 1
            else:
                fail(str(message.error()))
    consumer.close()
    return state, records
