"""A load of clients that connect, send ApiVersions, authenticate and disconnect."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from barnabas.arrow.connection import BlockingConnection
from barnabas.clients.security import security_of

THREADS = 4


def arrivals(bootstrap: str, settings: dict[str, str], seconds: float) -> dict[str, float]:
    """Return the number of connections and their rate. Each does a full handshake: no TLS session is resumed."""
    if hasattr(os, "SCHED_IDLE"):
        # At idle priority the connecting clients take no processor time from the clients that are measured.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    host, _, port = bootstrap.rpartition(":")
    security = security_of(settings)
    end = time.perf_counter() + seconds

    def connect_repeatedly(_: int) -> int:
        count = 0
        while time.perf_counter() < end:
            BlockingConnection((host, int(port)), security, 30).close()
            count += 1
        return count

    begin = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        count = sum(pool.map(connect_repeatedly, range(THREADS)))
    return {"arrivals": count, "arrivals_per_s": count / (time.perf_counter() - begin)}
