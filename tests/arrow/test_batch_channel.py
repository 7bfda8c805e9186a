"""Reading threads: what remains of them after the read."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from barnabas.arrow.batch_channel import BatchChannel


class Buffer:
    """Stands for the bytes of a response."""


def test_a_read_that_ends_early_releases_its_buffers_without_a_garbage_collection() -> None:
    channel: BatchChannel[int] = BatchChannel(1)
    interrupted = threading.Event()
    buffers: list[weakref.ref[Buffer]] = []

    def read() -> Iterator[tuple[int, int]]:
        buffer = Buffer()
        buffers.append(weakref.ref(buffer))
        channel.on_close(interrupted.set)
        yield 1, 1
        assert interrupted.wait(30)
        raise OSError("the connection is closed")

    gc.disable()
    try:
        items: Any = channel.run([read])
        assert next(items) == 1
        assert buffers[0]() is not None
        items.close()
        deadline = time.monotonic() + 30
        while buffers[0]() is not None:
            assert time.monotonic() < deadline, "a cycle keeps the buffer"
            time.sleep(0.005)
    finally:
        gc.enable()
