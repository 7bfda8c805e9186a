"""The cleaner in a simulation: the real pass, as one event at one instant, on the machine's own disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from ..server.runtime.ports import WorkerDiedError
from ..storage.cleaning.clean_job import CleanJob, Event
from ..storage.cleaning.cleaner import clean
from .disk import SimDisk

SLOWEST_STEP = 0.05


class SimCleaning:
    """The CleaningWork port. A worker dies occasionally, if the simulation requires it."""

    def __init__(self, disk: SimDisk, rng: random.Random, fault: Callable[[str], bool]) -> None:
        self._disk = disk
        self._random = rng
        self._fault = fault
        self.touched: dict[str, int] = {}
        """The offsets up to which passes have read each directory, with any result."""

    async def run(self, job: CleanJob, on_event: Callable[[Event], None]) -> None:
        self.touched[job.directory] = max(self.touched.get(job.directory, 0), job.first_uncleanable_offset)
        for event in clean(CleanJob.from_json(job.to_json()), self._disk, lambda size: None):
            await asyncio.sleep(self._random.random() * SLOWEST_STEP)
            if self._fault("cleaner-died"):
                raise WorkerDiedError("the simulation stopped it")
            on_event(event)

    def limit(self, bytes_per_second: float) -> None:
        """Steps take simulated time in any case."""

    async def close(self) -> None:
        """The owner cancels the running pass."""
