"""What bounds a stranger's influence: lines in the log, patience with slow readers, buffers lent on an announcement."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.frames import LENT_FREELY, BufferPool, FrameReader
from barnabas.server.network.connection import STALL_BYTES, Connection
from barnabas.server.runtime.log_limit import LINES, MAX_CAUSES, SECONDS, LimitedLog, LimitedLogs


def test_what_strangers_provoke_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    log = LimitedLog(logging.getLogger("limited"), lambda: now[0])
    with caplog.at_level(logging.INFO, "limited"):
        for number in range(10_000):
            log.write(logging.INFO, "bad frame %d", number)
        assert len(caplog.records) == LINES
        now[0] += SECONDS
        log.write(logging.INFO, "bad frame %d", 10_000)
    assert [record.getMessage() for record in caplog.records[LINES:]] == [
        f"{10_000 - LINES} more lines like the following were dropped",
        "bad frame 10000",
    ]


def test_who_is_logged_much_takes_the_lines_of_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    logs = LimitedLogs(logging.getLogger("limited"), lambda: now[0])
    with caplog.at_level(logging.INFO, "limited"):
        for _ in range(1000):
            logs.write("eve", logging.INFO, "eve")
        logs.write("ben", logging.INFO, "ben")
        assert caplog.messages == ["eve"] * LINES + ["ben"]
        for number in range(2 * MAX_CAUSES):
            logs.write(f"stranger {number}", logging.INFO, "a stranger")
        assert caplog.messages.count("a stranger") == MAX_CAUSES - 2 + LINES
        now[0] += SECONDS
        caplog.clear()
        for _ in range(1000):
            logs.write("a newcomer", logging.INFO, "a newcomer")
        logs.write("anna", logging.INFO, "anna")
    assert caplog.messages == ["a newcomer"] * LINES + ["anna"]


def stalled_connection(now: list[float], unsent: list[int]) -> Connection:
    loop = SimpleNamespace(time=lambda: now[0])
    server = SimpleNamespace(loop=loop, response_batcher=None, write_queue=None)
    connection: Any = Connection(server, None, None, SimpleNamespace(buffer=None))  # type: ignore[arg-type]
    connection._transport = SimpleNamespace(get_write_buffer_size=lambda: unsent[0])
    connection.pause_writing()
    return connection  # type: ignore[no-any-return]


def test_a_slow_reader_that_makes_progress_is_served_on() -> None:
    now, unsent = [0.5], [50 << 20]
    connection = stalled_connection(now, unsent)
    for _ in range(100):
        now[0] += 1
        unsent[0] -= STALL_BYTES // 4
        assert connection.stalled_for(now[0]) < 6


def test_a_slow_reader_of_a_small_answer_is_served_on_until_it_makes_no_progress() -> None:
    now, unsent = [0.5], [STALL_BYTES // 2]
    connection = stalled_connection(now, unsent)
    while unsent[0]:
        now[0] += 20
        assert connection.stalled_for(now[0]) == 20
        unsent[0] = (unsent[0] - 1) // 2
        assert connection.stalled_for(now[0]) == 0


def test_an_answer_that_comes_while_another_waits_is_no_lack_of_progress() -> None:
    now, unsent = [0.5], [7000]
    connection = stalled_connection(now, unsent)
    unsent[0] += 50 << 20
    for _ in range(100):
        now[0] += 1
        unsent[0] -= STALL_BYTES // 4
        assert connection.stalled_for(now[0]) < 6


def test_a_reader_that_takes_a_byte_now_and_then_makes_none() -> None:
    now, unsent = [0.5], [50 << 20]
    connection = stalled_connection(now, unsent)
    for second in range(1, 60):
        now[0] += 1
        unsent[0] -= 1
        assert connection.stalled_for(now[0]) == second


def test_announcements_alone_get_few_large_buffers() -> None:
    size = 1 << 20
    pool = BufferPool(size, 4)
    readers = [FrameReader(pool, max_size=100 << 20, max_other_size=100 << 20) for _ in range(200)]
    held = 0
    for reader in readers:
        announced = (100 << 20).to_bytes(4, "big") + bytes(5000)
        view = reader.buffer()
        view[: len(announced)] = announced
        reader.pending += len(announced)
        assert reader.next_frame() is None
        reader.settle()
        held += len(reader.data)
    assert held <= (LENT_FREELY + 1) * size + len(readers) * 20_000
    for reader in readers:
        reader.close()
    assert pool.may_lend(0)
