"""Crashes at every file-system call of scenarios with cleanings in them, and what must hold on what is left."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from soak.cleaning.history import Restart, Settings
from soak.cleaning.promises import BrokenPromiseError, read, require
from soak.cleaning.walk import random_settings, random_step
from tests.cleaning.crash_world import FETCH_BYTES, ManagedHistory, new_world
from tests.storage.crash_points import SURVIVORS, Image

from barnabas.simulation.disk import SimCrash, SimDisk

Steps = Callable[[ManagedHistory], None]
SMALL = Settings(segment_bytes=500, segment_index_bytes=400, index_interval_bytes=150, delete_retention_ms=100)
ENOUGH = 1000


@dataclass(frozen=True)
class Scenario:
    """`prepare` runs undisturbed; the crash is somewhere in `steps`."""

    name: str
    steps: Steps
    settings: Settings = SMALL


def prepare(history: ManagedHistory) -> None:
    """Some segments of everything there is, on disk."""
    rng = random.Random(11)
    for number in range(9):
        history.append([(rng.randrange(6), rng.random() < 0.2) for _ in range(3)], codec=number % 3)
        if history.magic == 2:
            producer = 101 + number % 2
            history.append([(rng.randrange(6), False)], producer_id=producer, transactional=True)
            if number % 3 == 2:
                history.end(producer, commit=number % 2 == 0)
    for producer in (101, 102) if history.magic == 2 else ():
        history.end(producer, commit=producer == 101)
    history.roll()
    history.append([(1, False), (20, False)])
    history.flush()
    history.checkpoint()


def one_pass(history: ManagedHistory) -> None:
    """Cleans everything, and writes on."""
    _clean(history)
    history.append([(2, False)])
    history.flush()


def into_one(history: ManagedHistory) -> None:
    """Many small segments become one, as the topic may have larger ones now."""
    history.settings = replace(history.settings, segment_bytes=5000)
    history.log.config = history.settings.log_config(history.magic)
    one_pass(history)


def passes_by_and_by(history: ManagedHistory) -> None:
    """A map so small that several passes are needed."""
    for _ in range(8):
        if not _clean(history, slots=8):
            break


def past_the_horizon(history: ManagedHistory) -> None:
    """A second pass takes tombstones and markers away that the first one saw."""
    _clean(history)
    history.append([(3, True), (4, False)])
    history.roll()
    history.clock.advance(1000)
    _clean(history)
    history.clock.advance(1000)
    history.append([(5, True)])
    history.roll()
    _clean(history)


def while_it_is_written(history: ManagedHistory) -> None:
    """Appends, rolls and flushes between the steps of a swap."""

    steps = iter(range(3))

    def between() -> None:
        if next(steps, None) is not None:
            history.append([(6, False), (7, True)])
            history.log.roll()
            history.flush()

    _clean(history, between=between)
    _clean(history)


def then_stopped(history: ManagedHistory) -> None:
    """A clean stop behind a pass, another start, another pass."""
    _clean(history)
    history.restart("clean")
    history.append([(1, False), (2, True)])
    history.roll()
    _clean(history)


def _clean(history: ManagedHistory, slots: int = ENOUGH, between: Callable[[], None] = lambda: None) -> bool:
    done = history.pass_over(slots, between)
    if done is not None:
        history.promises.check_pass(done)
    return done is not None


def walk_of(seed: int) -> Scenario:
    """A random history with passes in it."""

    def steps(history: ManagedHistory) -> None:
        rng = random.Random(seed)
        for _ in range(12):
            random_step(history, rng)
            if rng.random() < 0.25:
                _clean(history, slots=rng.choice((8, 30, ENOUGH)))
            elif rng.random() < 0.3:
                history.flush()

    return Scenario(f"walk-{seed}", steps, random_settings(random.Random(seed), index_sizes=(400, 4000)))


SCENARIOS = [
    Scenario("one pass", one_pass),
    Scenario("into one", into_one),
    Scenario("many groups", one_pass, Settings(segment_bytes=250, delete_retention_ms=100)),
    Scenario("old format", one_pass, Settings(magic=1, segment_bytes=500, delete_retention_ms=100)),
    Scenario("passes by and by", passes_by_and_by),
    Scenario("past the horizon", past_the_horizon),
    Scenario("while it is written", while_it_is_written),
    Scenario("then stopped", then_stopped),
]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def run_until(scenario: Scenario, call: int | None) -> tuple[ManagedHistory, SimDisk]:
    """Prepare, then do the steps until a call, or to their end."""
    history = new_world(scenario.settings)
    disk = history.fs
    assert isinstance(disk, SimDisk)
    prepare(history)
    disk.make_everything_durable()
    disk.calls = 0
    disk.crash_at(call, written_fraction=random.Random(call).random())
    with suppress(SimCrash):
        scenario.steps(history)
    disk.crash()
    return history, disk


def count_calls(scenario: Scenario) -> int:
    """How many calls the steps make when nothing stops them."""
    return run_until(scenario, None)[1].calls


def images(scenario: Scenario, calls: range) -> Iterator[Image]:
    """Crash at each call, check each survivor and yield it; raises BrokenPromiseError that names the image.

    Every third power loss is followed by another one during the start.
    """
    for call in calls:
        history, disk = run_until(scenario, call)
        for mode, seed in SURVIVORS:
            image = Image(call, mode, seed)
            survivor = disk.survivor(call * 1000 + seed, mode)
            rng = random.Random(f"{image}")
            try:
                if mode != "kill" and rng.random() < 0.34:
                    survivor = _crash_again(history, survivor, rng)
                check_survivor(history, survivor, "clean" if seed % 2 else "killed")
            except Exception as error:
                raise BrokenPromiseError(f"{scenario.name}, {image}: {type(error).__name__}: {error}") from error
            yield image


def _crash_again(history: ManagedHistory, disk: SimDisk, rng: random.Random) -> SimDisk:
    """A second power loss somewhere in the start after the first."""
    disk.crash_at(rng.randint(1, 25))
    with suppress(SimCrash):
        history.survivor(disk)
    disk.crash()
    return disk.survivor(rng.randrange(1 << 30), rng.choice(("A", "B")))


def check_survivor(history: ManagedHistory, disk: SimDisk, how: Restart) -> None:
    """Open what a crash left, hold it against the model, work on it, clean it, and open it once more."""
    after = history.survivor(disk)
    after.promises.check()
    require(not leftovers(after), f"left over: {leftovers(after)}")
    after.append([(1, False), (30, False)])
    after.roll()
    for _ in range(9):
        done = after.pass_over(ENOUGH)
        if done is None:
            break
        after.promises.check_pass(done)
    contents = [bytes(batch.view) for batch in read(after, FETCH_BYTES)]
    after.restart(how)
    after.promises.check()
    require([bytes(batch.view) for batch in read(after, FETCH_BYTES)] == contents, "a later start finds other batches")
    after.owner.close()


def leftovers(history: ManagedHistory) -> list[str]:
    """Files of a pass that never ended or was not put into place."""
    return [name for name in history.fs.list_dir(history.folder) if name.endswith((".cleaned", ".swap", ".deleted"))]
