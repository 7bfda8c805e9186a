"""A process of the cleaner: receives jobs as lines of JSON on standard input, writes events to standard output.

It ends with its input, so it never outlives the broker, and it runs with the lowest priority.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from ...storage.cleaning.clean_job import CleanJob, event_to_json
from ...storage.cleaning.cleaner import clean
from ...storage.filesystem import OsFileSystem
from .throttle import Throttler, with_less_progress

NICENESS = 10


def main() -> None:
    """Work until the input ends."""
    _give_way()
    output = sys.stdout
    sys.stdout = sys.stderr  # printed text must not be mistaken for an event
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    throttle = Throttler(time.monotonic, time.sleep, getattr(os, "sched_yield", lambda: None))
    threading.Thread(target=_listen, args=(jobs, throttle), daemon=True).start()
    while True:
        for line in _lines_of(jobs.get(), throttle):
            output.write(line + "\n")
            output.flush()


def _give_way() -> None:
    """Lower this process's priority as far as the system allows."""
    with suppress(OSError):
        os.nice(NICENESS)
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _listen(jobs: queue.SimpleQueue[str], throttle: Throttler) -> None:
    """Read jobs and limits, also in the middle of a job; end the process at the end of the input."""
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if "bytes_per_second" in message:
            throttle.bytes_per_second, throttle.pause = message["bytes_per_second"], message["pause"]
        else:
            jobs.put(line)
    os._exit(0)


def _lines_of(job: str, throttle: Throttler) -> Any:
    """Do a job; a line for each event, at last one of a failure if it failed."""
    try:
        for event in with_less_progress(clean(CleanJob.from_json(job), OsFileSystem(), throttle), time.monotonic):
            yield event_to_json(event)
    except Exception as error:  # noqa: BLE001 - reported to the broker, which decides on the consequence
        number = error.errno if isinstance(error, OSError) else None
        yield json.dumps({"event": "Failed", "type": type(error).__name__, "reason": str(error), "errno": number})


if __name__ == "__main__":
    main()
