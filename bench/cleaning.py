"""Measure the speed of the cleaner and its offset map: `python -m bench.cleaning --help`.

A pass reads a folder of segments that were never cleaned, writes the cleaned segments and syncs them. MB/s counts the
bytes of the log once, as Apache Kafka's cleaner does.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.storage.cleaning.key_columns import add_key

from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.protocol.record_columns import RecordColumns
from barnabas.storage.cleaning.clean_job import CleanJob, PassFinished, SourceSegment
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.offset_map import new_offset_map
from barnabas.storage.file_records import FileRecords
from barnabas.storage.filesystem import OsFileSystem

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 16 * 1024
CASES = ((1024, 90), (1024, 10), (100, 90), (100, 10))
"""Bytes of a record, and the percentage of records that a later record overwrites."""


def dirty_batches(total: int, record_bytes: int, duplicates: int) -> Iterator[tuple[int, bytes]]:
    """Yield the base offset and the bytes of uncompressed batches of about 16 KB, up to `total` bytes."""
    rng = random.Random(record_bytes * 100 + duplicates)
    keys = max(1, total // record_bytes * (100 - duplicates) // 100)
    value = rng.randbytes(record_bytes - 24)
    fresh = iter(rng.sample(range(keys), keys)) if duplicates < 50 else iter(())
    offset = written = 0
    while written < total:
        builder = RecordBatchBuilder(base_offset=offset, max_size=BATCH_BYTES, partition_leader_epoch=0)
        while builder.append(b"%016d" % next(fresh, rng.randrange(keys)), value, (), NOW_MS):
            pass
        batch = builder.build()
        yield offset, batch
        offset += len(builder)
        written += len(batch)


def make_folder(directory: Path, total: int, record_bytes: int, duplicates: int, segment_bytes: int) -> None:
    """Write a folder of dirty segments."""
    directory.mkdir(parents=True)
    parts: list[bytes] = []
    base_offset = size = 0
    for offset, batch in dirty_batches(total, record_bytes, duplicates):
        if size + len(batch) > segment_bytes:
            _write(directory, base_offset, parts)
            parts, base_offset, size = [], offset, 0
        parts.append(batch)
        size += len(batch)
    _write(directory, base_offset, parts)


def _write(directory: Path, base_offset: int, parts: list[bytes]) -> None:
    with (directory / f"{base_offset:020d}.log").open("wb") as file:
        file.writelines(parts)


def job_of(directory: Path) -> CleanJob:
    """Return the job that cleans all segments of a folder, none of which was cleaned before."""
    paths = sorted(directory.glob("*.log"))
    segments = tuple(SourceSegment(int(path.stem), path.stat().st_size) for path in paths)
    records = FileRecords(str(paths[-1]), OsFileSystem())
    end_offset = max(batch.last_offset for batch in records.batch_positions()) + 1
    records.close_handle()
    return CleanJob(str(directory), segments, 0, end_offset, now_ms=NOW_MS)


def clean_once(job: CleanJob, *, use_native: bool) -> tuple[PassFinished, float, float]:
    """Run one pass and delete its output. Return its final message, the elapsed seconds and the processor seconds."""
    started, started_cpu = time.perf_counter(), time.process_time()
    *_, last = clean(job, OsFileSystem(), lambda _: None, use_native=use_native)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    assert isinstance(last, PassFinished)
    for path in Path(job.directory).glob("*.cleaned"):
        path.unlink()
    return last, seconds, cpu_seconds


def puts_per_second(keys: int, hash_name: str, *, use_native: bool) -> float:
    """Return the rate of `put_many` with buffers of 5000 distinct 16-byte keys, which fill the map to two thirds."""
    offset_map = new_offset_map(keys * 36 if hash_name == "MD5" else keys * 96, hash_name, use_native=use_native)
    seconds = 0.0
    for first in range(0, keys, 5000):
        buffer = b"".join(b"%016d" % number for number in range(first, first + 5000))
        records = RecordColumns(5000)
        for row in range(5000):
            add_key(records, first + row, 16 * row, 16)
        started = time.perf_counter()
        assert offset_map.put_many(buffer, records) == 5000
        seconds += time.perf_counter() - started
    return keys / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="parent of the dirty folders (default: a temporary folder)")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--segment-megabytes", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", type=int, choices=range(len(CASES)), action="append", help="measure only this case")
    parser.add_argument("--hash", default="MD5")
    parser.add_argument("--plain", action="store_true", help="use Python instead of the compiled code")
    parser.add_argument("--keep", action="store_true", help="keep the folders, and reuse existing folders")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cleaning-"))
    for number in options.case or range(len(CASES)):
        record_bytes, duplicates = CASES[number]
        directory = folder / f"{record_bytes}-{duplicates}-{options.megabytes}"
        if not directory.exists():
            make_folder(directory, options.megabytes << 20, record_bytes, duplicates, options.segment_megabytes << 20)
        job = replace(job_of(directory), hash_name=options.hash)
        for _ in range(options.rounds):
            finished, seconds, cpu_seconds = clean_once(job, use_native=not options.plain)
            stats = finished.stats
            print(
                f"{record_bytes} B, {duplicates} % duplicates: {stats.bytes_read / seconds / 1e6:.0f} MB/s "
                f"({stats.bytes_read / cpu_seconds / 1e6:.0f} of processor time), "
                f"{stats.messages_read / seconds / 1e6:.2f} M records/s, "
                f"kept {stats.bytes_written / stats.bytes_read:.2f}, "
                f"collisions {stats.map_collision_rate:.3f}, "
                f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB resident"
            )
    for hash_name in (options.hash,) if options.hash == "exact" else (options.hash, "exact"):
        rate = puts_per_second(20_000 if options.plain else 2_000_000, hash_name, use_native=not options.plain)
        print(f"{hash_name} map: {rate / 1e6:.2f} million puts/s")
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
