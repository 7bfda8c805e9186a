"""The cleaner's work under simulation: the real pass, one event at an instant, on the machine's own disk."""

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
    """The CleaningWork port. Now and then a worker dies, if a simulation wants that."""

    def __init__(self, disk: SimDisk, rng: random.Random, fault: Callable[[str], bool]) -> None:
        self._disk = disk
        self._random = rng
        self._fault = fault
        self.touched: dict[str, int] = {}
        """Up to where passes over each folder have looked, whatever became of them."""

    async def run(self, job: CleanJob, told: Callable[[Event], None]) -> None:
        self.touched[job.directory] = max(self.touched.get(job.directory, 0), job.first_uncleanable_offset)
        for event in clean(CleanJob.from_json(job.to_json()), self._disk, lambda size: None):
            await asyncio.sleep(self._random.random() * SLOWEST_STEP)
            if self._fault("cleaner-died"):
                raise WorkerDiedError("the simulation ended it")
            told(event)

    def limit(self, bytes_per_second: float) -> None:
        """Steps take their time anyhow."""

    async def close(self) -> None:
        """Whoever runs is cancelled by its owner."""
