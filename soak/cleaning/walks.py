"""One random history of a log on a simulated disk, with passes of Barnabas's cleaner."""

from __future__ import annotations

import random

from soak.cleaning.history import History
from soak.cleaning.passes import our_pass
from soak.cleaning.promises import BrokenPromiseError, Promises
from soak.cleaning.walk import random_settings, random_step
from tests.storage.logs import Clock

from barnabas.simulation.disk import SimDisk

MAP_SIZES = (8, 20, 60, 2000)
HASHES = ("MD5", "MD5", "MD5", "SHA-1", "SHA-256", "SHA-512", "exact")


def walk(seed: int, *, use_native: bool) -> int:
    """Play and check the history of this seed; return the number of cleaner passes."""
    rng = random.Random(seed)
    clock = Clock()
    disk = SimDisk(now_ms=clock, keep_log=False)
    history = History(disk, "/t-0", random_settings(rng), clock)
    promises = Promises(history)
    passes = 0
    try:
        for _ in range(rng.randint(10, 70)):
            random_step(history, rng)
            if rng.random() < 0.08:
                cleaning = our_pass(
                    use_native=use_native, hash_name=rng.choice(HASHES), io_buffer_bytes=rng.choice((64, 1 << 16))
                )
                for _ in range(rng.choice((1, 1, 5))):
                    done = cleaning(history, rng.choice(MAP_SIZES))
                    if done is None:
                        break
                    promises.check_pass(done)
                    passes += 1
                    clock.advance(rng.choice((0, 0, 60, 1100)))
        promises.check()
        history.restart("without snapshots")
        promises.check()
        history.log.close_handles()
        if disk.open_files:
            raise BrokenPromiseError(f"{disk.open_files} files were left open")
    except Exception as error:
        raise BrokenPromiseError(f"seed {seed}, {'native' if use_native else 'python'}: {error}") from error
    return passes
