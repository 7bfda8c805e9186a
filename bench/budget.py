"""Time the steps of one small produce request in this process.

python -m bench.budget

The figures are thread time, the best of many rounds, so that other load on the machine has little effect. A server's
time per request beyond their sum is spent in the event loop and the sockets.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import crc32c
from bench.published import markdown_table
from bench.wire import produce_request, small_batch

from barnabas.protocol.produce_entries import CompactProduceResponse, read_generally, read_produce, write_generally
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_validator import CLIENT_RULES, validate_messages_and_assign_offsets

ROUNDS, CALLS = 30, 1000
NOW_MS = int(time.time() * 1000)


def microseconds(step: Callable[[], object]) -> float:
    """Return the microseconds per call in the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for _ in range(CALLS):
            step()
        best = min(best, (time.thread_time() - begin) / CALLS)
    return best * 1e6


def budget(folder: Path) -> list[list[str]]:
    """Return a row for each step: its name and its microseconds."""
    frame = memoryview(bytearray(produce_request("topic", [(0, small_batch())])))[4:]
    batch = memoryview(bytearray(small_batch()))

    def received() -> memoryview:
        """Return the batch as a client sends it, without the offset that the last validation has written."""
        batch[:8] = bytes(8)
        return batch

    config = LogConfig(segment_bytes=2**31 - 1)
    log = Log.open(
        str(folder / "topic-0"),
        config=config,
        fs=OsFileSystem(),
        now_ms=lambda: NOW_MS,
        recovery_point=0,
        log_start_offset=0,
        clean_shutdown=True,
        rng=random.Random(1),
    )
    bare = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    answer = CompactProduceResponse([("topic", 0)], [(1, 1, NOW_MS, -1, 0)])
    steps: list[tuple[str, Callable[[], object]]] = [
        ("header and Produce v7 decoded", lambda: read_produce(7, frame, 0, len(frame))),
        ("… the same with the general codecs", lambda: read_generally(7, frame, 0, len(frame))),
        (
            "batch validated, offset assigned",
            lambda: validate_messages_and_assign_offsets(received(), CLIENT_RULES, 1, NOW_MS, config, 0),
        ),
        ("… of that the CRC-32C of 151 bytes", lambda: crc32c.crc32c(batch[21:])),
        ("appended to the log, with the validation", lambda: log.append_as_leader(received(), leader_epoch=0)),
        ("… of that the `pwrite`, measured alone", lambda: os.pwrite(bare, batch, 0)),
        ("response encoded", lambda: answer.frame(7, 1)),
        ("… the same with the general codecs", lambda: write_generally(answer, 7, 1)),
    ]
    made = [[name, f"{microseconds(step):.1f}"] for name, step in steps]
    os.close(bare)
    log.close()
    return made


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(markdown_table(["step", "µs"], budget(Path(scratch))))
