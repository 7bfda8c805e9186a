"""Kills a follower with SIGKILL in each round, and checks after each round that the table has each record once.

`python -m tests.table.kill_rounds BOOTSTRAP TOPIC TABLE ROUNDS SEED append|upsert` prints one line per round, and `ok`
at the end. In every second round the follower dies at the n-th step of a commit, for n = 1, 2, 3 …, and otherwise at a
random time.
Each follower is a fork of this process, which itself uses none of the libraries, so that a round takes a moment.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import confluent_kafka
import deltalake
import duckdb
import pyarrow.parquet
from pyiceberg.catalog.sql import SqlCatalog
from tests.table.conftest import produce, rows_of

from barnabas import Broker
from barnabas.arrow import read_topic
from barnabas.table import FollowSettings, TableFollower, host, open_table
from barnabas.table.duckdb_table import DuckDBTable
from barnabas.table.parquet_files import TableSettings

assert confluent_kafka and deltalake and duckdb
_STEPS: list[tuple[Any, str]] = [
    (host, "sync_file"),
    (host, "replace_file"),
    (Path, "rename"),
    (Path, "replace"),
    (Path, "unlink"),
    (pyarrow.parquet.ParquetWriter, "write_table"),
    (pyarrow.parquet.ParquetWriter, "close"),
    (deltalake.DeltaTable, "create"),
    (deltalake.DeltaTable, "create_write_transaction"),
    (SqlCatalog, "create_table"),
    (SqlCatalog, "commit_table"),
    (DuckDBTable, "prepare"),
    (DuckDBTable, "_insert"),
    (DuckDBTable, "commit"),
]
"""Functions before and after which a follower is killed."""


def die_at(step: int) -> None:
    """Kill this process at the n-th beginning or end of a function in the list."""
    count = 0

    def pass_step() -> None:
        nonlocal count
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            pass_step()
            try:
                return function(*args, **kwargs)
            finally:
                pass_step()

        return call

    for owner, name in _STEPS:
        given = vars(owner)[name]
        is_class_method = isinstance(given, classmethod)
        setattr(owner, name, wrapped(getattr(owner, name) if is_class_method else given))


def in_child(work: Callable[[], None], *, kill_after_s: float | None = None) -> int:
    """Run the work in a fork; return its status, -9 if it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(f"failed: {error!r}", flush=True)
        finally:
            os._exit(status)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def follow(bootstrap: str, topic: str, to: str, mode: Literal["append", "upsert"]) -> None:
    """Commit what exists in several commits."""
    settings = FollowSettings(bootstrap, [topic], most_bytes=20_000, mode=mode)
    with open_table(to, TableSettings(merge_at=8)) as sink:
        TableFollower(sink, settings, is_stopping=lambda: False).run(once=True)
        sink.maintain()


def check_upserts(bootstrap: str, topic: str, to: str) -> None:
    """Raise AssertionError unless the table has the latest value of each key before its offsets."""
    with open_table(to) as sink:
        offsets = sink.load()
    found = [(row["key"], row["offset"]) for row in rows_of(to)] if offsets is not None else []
    wanted: dict[bytes, int] = {}
    if offsets is not None:
        ends = {tp.partition: end for tp, end in offsets.offsets.items()}
        for row in read_topic(bootstrap, topic, partitions=list(ends), end=cast(Any, ends)).to_table().to_pylist():
            wanted.pop(row["key"], None)
            if row["value"] is not None:
                wanted[row["key"]] = row["offset"]
    assert sorted(found) == sorted(wanted.items()), f"{sorted(found)} instead of {sorted(wanted.items())}"


def check(to: str, *, expected: int | None = None) -> None:
    """Raise AssertionError unless the table has the records before its offsets, each of them once."""
    with open_table(to) as sink:
        offsets = sink.load()
        has_rows = sink.schema() is not None
    ends = {} if offsets is None else {tp.partition: end for tp, end in offsets.offsets.items()}
    found = [(row["partition"], row["offset"]) for row in rows_of(to)] if has_rows and any(ends.values()) else []
    assert len(found) == len(set(found)), f"{len(found) - len(set(found))} rows are repeated"
    wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    assert set(found) == wanted, f"{len(found)} rows for offsets {ends}"
    assert expected is None or len(found) == expected, f"{len(found)} rows of {expected}"


def main(
    bootstrap: str, topic: str, to: str, rounds: int, seed: int, mode: Literal["append", "upsert"] = "append"
) -> None:
    """Run the rounds."""
    chance = random.Random(seed)
    step = 0
    broker = cast(Broker, SimpleNamespace(bootstrap=bootstrap))
    rows: list[dict[str, Any]] = [{"value": b"x" * 1000, "partition": i % 2} for i in range(60)]
    for number in range(rounds):
        if mode == "upsert":  # keys 0 to 19, each in one partition, and in a tenth of the records no value
            keys = [chance.randrange(20) for _ in rows]
            rows = [
                {"key": b"%d" % k, "value": None if chance.random() < 0.1 else b"x" * 1000, "partition": k % 2}
                for k in keys
            ]

        def write(rows: list[dict[str, Any]] = rows) -> None:
            produce(broker, topic, rows)

        assert in_child(write) == 0
        if number % 2 == 0:
            step += 1

            def work(step: int = step) -> None:
                die_at(step)
                follow(bootstrap, topic, to, mode)

            status = in_child(work)
            what = f"step {step}"
            if status == 0:
                step = 0
        else:
            after = chance.uniform(0.05, 0.8)
            status = in_child(lambda: follow(bootstrap, topic, to, mode), kill_after_s=after)
            what = f"{after:.2f} s"
        assert status in (0, -signal.SIGKILL), f"round {number}: the follower failed at {what}"
        verify = check if mode == "append" else partial(check_upserts, bootstrap, topic)
        assert in_child(partial(verify, to)) == 0, f"round {number}, {what}"
        print(f"round {number}: {what}, {'finished' if status == 0 else 'killed'}", flush=True)
    assert in_child(lambda: follow(bootstrap, topic, to, mode)) == 0
    if mode == "append":
        assert in_child(lambda: check(to, expected=read_topic(bootstrap, topic).count_rows())) == 0
    else:
        assert in_child(lambda: check_upserts(bootstrap, topic, to)) == 0
    print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), cast(Any, sys.argv[6]))
