"""What the crash tests do to a log manager: for each operation a preparation and the steps that a crash interrupts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from tests.storage.crash_world import SMALL, TP, World
from tests.storage.lanes import delete_due

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.log_config import LogConfig

OTHER = TopicPartition("with-dash.and_dot", 3)
OTHER_ID = UUID("87654321-4321-4321-8321-cba987654321")
Steps = Callable[[World], None]


@dataclass(frozen=True)
class Scenario:
    """`prepare` runs undisturbed; `steps` run after the next start, and the crash is in that start or in them."""

    name: str
    steps: Steps
    prepare: Steps
    config: LogConfig = SMALL
    ends_cleanly: bool = True


def fresh(world: World) -> None:
    """One empty partition."""
    world.create()


def some_segments(world: World) -> None:
    """Three segments, two epochs, three producers, everything flushed."""
    world.create()
    for epoch in (0, 2):
        for producer_id in (-1, 11, 12, 11):
            world.append(2, epoch=epoch, producer_id=producer_id)
    world.append(1, epoch=2, producer_id=13)
    world.flush()


def dirty_tail(world: World) -> None:
    """As above, with appends that were never flushed."""
    some_segments(world)
    for _ in range(3):
        world.append(2, epoch=3, producer_id=11)


def append(world: World) -> None:
    """Appends and flushes in turn, within one segment."""
    for _ in range(2):
        world.append(2, epoch=5, producer_id=11)
        world.append(1, epoch=5)
        world.flush()
    world.append(1, epoch=6)


def roll(world: World) -> None:
    """Appends across segments, and a roll by itself, flushed now and then."""
    for step in range(5):
        world.append(3, epoch=5 + step // 3, producer_id=11 + step % 2)
        if step % 3 == 2:
            world.flush()
    world.log.roll()
    world.append(1, epoch=7)
    world.flush()


def transactions(world: World) -> None:
    """Committed and aborted transactions across segments."""
    for producer_id, commit in ((21, True), (22, False), (21, False)):
        world.append(2, epoch=5, producer_id=producer_id, transactional=True)
        world.append(1, epoch=5)
        world.end_transaction(producer_id, commit=commit, epoch=5)
    world.flush()


def idle_roll(world: World) -> None:
    """Rolls at the very offset that the recovery point on the disk has, with an aborted transaction before it."""
    for producer_id in (21, 22):
        for _ in range(4):
            world.append(1, epoch=5, producer_id=producer_id, transactional=True)
        world.end_transaction(producer_id, commit=False, epoch=5)
        world.flush()
        world.checkpoint()
        world.log.roll()
        world.append(1, epoch=5)


def truncate(world: World) -> None:
    """A truncation in the active segment, one across segments, appends of a new epoch after each."""
    end = world.log.log_end_offset
    world.append(4, epoch=5, producer_id=11)
    world.truncate_to(end)
    for _ in range(4):
        world.append(4, epoch=6, producer_id=14)
    world.flush()
    world.checkpoint()
    world.truncate_to(8)
    world.append(2, epoch=7)
    world.flush()
    for _ in range(5):
        world.append(4, epoch=7)


def delete_records(world: World) -> None:
    """The log start raised inside a segment and beyond one, with retention behind it."""
    world.raise_log_start(3)
    world.append(1, epoch=5)
    world.raise_log_start(9)
    world.retain()
    world.append(1, epoch=5)
    world.flush()


def retention(world: World) -> None:
    """Old segments deleted by size while the log grows."""
    world.retain()
    for _ in range(3):
        world.append(4, epoch=5, producer_id=11)
        world.flush()
    world.retain()


def checkpoints(world: World) -> None:
    """The periodic checkpoints between appends."""
    for step in range(2):
        world.append(2, epoch=5 + step, producer_id=12)
        world.flush()
        world.append(2, epoch=5 + step)
        world.checkpoint()
        world.log.roll()
        world.append(1, epoch=5 + step)


def topics(world: World) -> None:
    """A topic made, filled, deleted, and made again with another id; its files unlinked in between."""
    world.create(OTHER, OTHER_ID)
    for _ in range(5):
        world.append(3, topic_partition=OTHER)
    world.flush(OTHER)
    world.raise_log_start(9, OTHER)
    world.checkpoint()
    world.delete(OTHER)
    world.create(OTHER, UUID(int=OTHER_ID.int + 1), is_prepared=True)
    world.append(1, topic_partition=OTHER)
    world.now_ms += 1
    delete_due(world.manager)
    world.append(2, topic_partition=OTHER)
    world.flush(OTHER)
    world.append(2, topic_partition=OTHER)


def delete_topic(world: World) -> None:
    """The deletion of a partition with several segments."""
    world.delete(TP)
    world.now_ms += 1
    delete_due(world.manager)


def clean_shutdown(world: World) -> None:
    """Appends and an orderly stop."""
    world.append(2, epoch=5, producer_id=11)
    world.append(3, epoch=6)
    world.stop()


def nothing(world: World) -> None:
    """The start itself is what the crash interrupts."""


ACTIONS = ("append", "append", "append", "flush", "roll", "truncate", "start", "retain", "checkpoint")


def random_steps(seed: int) -> Scenario:
    """A random walk over everything that can be done to one partition."""

    def steps(world: World) -> None:
        rng = random.Random(seed)
        for step in range(12):
            epoch = 5 + step // 4
            log = world.log
            match rng.choice(ACTIONS):
                case "append":
                    world.append(rng.randint(1, 6), epoch=epoch, producer_id=rng.choice((-1, 11, 12, 15)))
                case "flush":
                    world.flush()
                case "roll":
                    log.roll()
                case "truncate":
                    end = world.promises[TP].end
                    bases = [base for base in world.promises[TP].versions if log.log_start_offset <= base < end]
                    world.truncate_to(rng.choice(bases[-6:] or [end]))
                case "start":
                    world.raise_log_start(rng.randint(log.log_start_offset, log.high_watermark))
                case "retain":
                    world.retain()
                case "checkpoint":
                    world.checkpoint()

    rng = random.Random(seed)
    preparation = rng.choice((fresh, some_segments, dirty_tail))
    return Scenario(f"random-{seed}", steps, preparation, rng.choice((SMALL, BY_SIZE)), rng.random() < 0.5)


BY_SIZE = replace(SMALL, retention_bytes=900)

SCENARIOS = [
    Scenario("append", append, some_segments),
    Scenario("append-to-new-log", append, fresh),
    Scenario("roll", roll, some_segments),
    Scenario("roll-new-log", roll, fresh),
    Scenario("transactions", transactions, some_segments),
    Scenario("idle-roll", idle_roll, some_segments, config=replace(SMALL, segment_bytes=2000)),
    Scenario("truncate", truncate, some_segments),
    Scenario("truncate-after-crash", truncate, dirty_tail, ends_cleanly=False),
    Scenario("delete-records", delete_records, some_segments),
    Scenario("retention", retention, some_segments, config=BY_SIZE),
    Scenario("checkpoints", checkpoints, some_segments),
    Scenario("topics", topics, fresh),
    Scenario("delete-topic", delete_topic, some_segments),
    Scenario("clean-shutdown", clean_shutdown, some_segments),
    Scenario("start", nothing, some_segments),
    Scenario("recovery", nothing, dirty_tail, ends_cleanly=False),
]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
