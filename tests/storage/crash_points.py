"""Runs a scenario once for each file-system call in it, crashes there, and checks what survivors hold."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tests.storage.crash_check import BrokenPromiseError, check_disk
from tests.storage.crash_scenarios import Scenario
from tests.storage.crash_world import Promise, World, new_disk

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import Mode, SimCrash, SimDisk
from barnabas.storage.log_manager import LogManager

SURVIVORS: tuple[tuple[Mode, int], ...] = (
    ("A", 0), ("B", 0), ("A", 1), ("B", 1), ("A", 2), ("B", 2), ("B", 3), ("kill", 0),
)  # fmt: skip


@dataclass(frozen=True)
class Image:
    """One crash: at which call, and which of the possible survivors."""

    call: int
    mode: Mode
    seed: int

    def __str__(self) -> str:
        return f"call {self.call}, mode {self.mode}, seed {self.seed}"


Prepared = tuple[SimDisk, dict[TopicPartition, Promise]]


def prepare(scenario: Scenario) -> Prepared:
    """The disk and the promises before the steps. The preparation always runs the code without planted bugs."""
    disk = new_disk()
    world = World(disk, config=scenario.config)
    world.start()
    scenario.prepare(world)
    if scenario.ends_cleanly:
        world.stop()
    disk.crash()
    return disk.survivor(0, "kill"), world.promises


def run_until(
    scenario: Scenario, prepared: Prepared, call: int | None, manager_class: type[LogManager]
) -> tuple[SimDisk, dict[TopicPartition, Promise]]:
    """Starts on the prepared disk and does the steps; stops at a call, or ends by itself if that comes later."""
    before, owed = prepared
    disk = before.survivor(0, "kill")
    world = World(disk, copy.deepcopy(owed), config=scenario.config, manager_class=manager_class)
    disk.crash_at(call, written_fraction=random.Random(call).random())
    with suppress(SimCrash):
        world.start()
        scenario.steps(world)
    disk.crash()
    return disk, world.promises


def count_calls(scenario: Scenario, prepared: Prepared) -> int:
    """How many calls the steps make, when nothing stops them."""
    return run_until(scenario, prepared, None, LogManager)[0].calls


def images(
    scenario: Scenario,
    prepared: Prepared,
    calls: range,
    *,
    manager_class: type[LogManager] = LogManager,
    round_number: int = 0,
) -> Iterator[Image]:
    """Crashes at each call, checks each survivor and yields it; raises BrokenPromiseError with the image in its text.

    Every third power loss is followed by another one during the recovery.
    """
    for call in calls:
        disk, promises = run_until(scenario, prepared, call, manager_class)
        for mode, seed in SURVIVORS:
            image = Image(call, mode, seed + 10 * round_number)
            try:
                check_image(scenario, disk, promises, image, manager_class)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise BrokenPromiseError(f"{scenario.name}, {image}: {type(error).__name__}: {error}") from error
            yield image


def check_image(
    scenario: Scenario,
    disk: SimDisk,
    promises: dict[TopicPartition, Promise],
    image: Image,
    manager_class: type[LogManager],
) -> None:
    """Checks one survivor of one crash."""
    rng = random.Random(f"{image}")
    survivor = disk.survivor(image.call * 1000 + image.seed, image.mode)
    if image.mode != "kill" and rng.random() < 0.34:
        survivor = _crash_again(scenario, survivor, rng, manager_class)
    check_disk(
        survivor,
        copy.deepcopy(promises),
        was_killed=image.mode == "kill",
        config=scenario.config,
        manager_class=manager_class,
    )


def _crash_again(scenario: Scenario, disk: SimDisk, rng: random.Random, manager_class: type[LogManager]) -> SimDisk:
    """A second power loss somewhere in the recovery from the first."""
    world = World(disk, config=scenario.config, manager_class=manager_class)
    disk.crash_at(rng.randint(1, 25))
    with suppress(SimCrash):
        world.start()
    disk.crash()
    return disk.survivor(rng.randrange(1 << 30), rng.choice(("A", "B")))
