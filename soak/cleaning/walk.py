"""Random histories of a log, drawn step by step from a seed."""

from __future__ import annotations

import random

from soak.cleaning.history import History, Settings
from tests.storage.logs import NOW_MS

KEYS = 12
IDEMPOTENT = (201, 202)
TRANSACTIONAL = (101, 102, 103)
STEPS = ("put",) * 6 + ("transaction",) * 5 + ("end",) * 4 + ("idempotent",) * 2 + ("roll",) * 2
RARE = ("clean restart", "killed", "without snapshots", "new epoch", "upgrade", "advance", "advance")


def random_settings(
    rng: random.Random, magic: int | None = None, index_sizes: tuple[int, ...] = (64, 400, 4000)
) -> Settings:
    """Draw settings with small segments and indexes, so that a few dozen batches form several segment groups."""
    return Settings(
        magic=rng.choice((2, 2, 2, 2, 1, 0)) if magic is None else magic,
        segment_bytes=rng.choice((400, 900, 2500)),
        segment_index_bytes=rng.choice(index_sizes),
        index_interval_bytes=rng.choice((1, 150, 4096)),
        delete_retention_ms=rng.choice((1, 50, 1000)),
        min_compaction_lag_ms=rng.choice((0, 0, 0, 30)),
    )


def random_step(history: History, rng: random.Random) -> None:
    """Apply a random step other than a cleaning to the log, and advance the clock a little."""
    history.clock.advance(rng.randint(0, 6))
    is_modern = history.magic == 2
    match rng.choice(STEPS) if rng.random() < 0.8 else rng.choice(RARE):
        case "put":
            _append(history, rng)
        case "transaction" if is_modern:
            _append(history, rng, producer_id=rng.choice(TRANSACTIONAL), transactional=True)
        case "end" if is_modern:
            history.end(rng.choice(TRANSACTIONAL), commit=rng.random() < 0.5)
        case "idempotent" if is_modern:
            _append(history, rng, producer_id=rng.choice(IDEMPOTENT))
        case "roll":
            history.roll()
        case "clean restart":
            history.restart("clean")
        case "killed":
            history.restart("killed")
        case "without snapshots":
            history.restart("without snapshots")
        case "new epoch" if is_modern:
            history.new_epoch(rng.choice(IDEMPOTENT + TRANSACTIONAL))
        case "upgrade":
            if rng.random() < 0.3:
                history.upgrade()
        case "advance":
            history.clock.advance(rng.choice((10, 60, 1100)))
        case _:
            _append(history, rng)


def _append(history: History, rng: random.Random, producer_id: int = -1, *, transactional: bool = False) -> None:
    count = rng.choice((1, 1, 2, 3, 5))
    keys = KEYS if rng.random() < 0.9 else 40
    pairs = [(rng.randrange(keys), rng.random() < 0.2) for _ in range(count)]
    codec = rng.choice((0, 0, 1, 2, 3, 4)) if rng.random() < 0.5 else 0
    if codec == 4 and history.magic < 2:
        codec = 1
    history.append(pairs, codec=codec, producer_id=producer_id, transactional=transactional, headers=rng.random() < 0.2)


def stamp_files(history: History) -> None:
    """Set the modification time of each segment of a closed log to the time of its last record.

    Cleaners use modification times for the retention of tombstones in formats v0 and v1. On a real disk these times are
    not the times of the test's clock.
    """
    bases = sorted(int(name[:20]) for name in history.fs.list_dir(history.folder) if name.endswith(".log"))
    for base, following in zip(bases, [*bases[1:], history.end_offset], strict=True):
        times = [entry.at_ms for entry in history.written if entry.row.offset < following]
        history.fs.set_modified_ms(f"{history.folder}/{base:020}.log", max(times, default=NOW_MS))
