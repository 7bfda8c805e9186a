"""State batches are combined as by Kafka's PersisterStateBatchCombiner."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.server.coordinator.share import persister_state_batch_combiner
from barnabas.server.coordinator.share.persister_state_batch_combiner import (
    PersisterStateBatch,
    combine_state_batches,
    normalize,
)

FOLDER = Path(__file__).parent
CASES_OF_KAFKA = FOLDER / "combined_state_batches.txt"
"""Lines with start offset, batches so far, new batches, and the result of Kafka 4.4.0."""
OFFSETS = 40


def batches_of(text: str) -> list[PersisterStateBatch]:
    return [PersisterStateBatch(*map(int, one.split(","))) for one in text.split()]


def text_of(batches: Iterable[PersisterStateBatch]) -> str:
    return " ".join(",".join(map(str, one)) for one in batches)


def random_batches(rng: random.Random, most: int) -> list[PersisterStateBatch]:
    batches = []
    for _ in range(rng.randrange(most + 1)):
        first = rng.randrange(OFFSETS)
        batches.append(PersisterStateBatch(first, first + rng.randrange(8), rng.choice((0, 2, 4)), rng.randrange(1, 4)))
    return batches


def random_cases(seed: int, count: int) -> list[str]:
    """Lines with start offset, batches so far as an earlier combination has left them, and new batches."""
    rng, lines = random.Random(seed), []
    for _ in range(count):
        so_far = normalize(random_batches(rng, 12))
        new = random_batches(rng, rng.choice((1, 3, 30)))
        lines.append(f"{rng.choice((-1, 0, rng.randrange(OFFSETS)))};{text_of(so_far)};{text_of(new)}")
    return lines


def check_line(line: str) -> None:
    start, so_far, new, expected = line.split(";")
    new_batches = batches_of(new)
    if len(new_batches) > persister_state_batch_combiner.SPLICED_BATCHES:
        new_batches = normalize(new_batches)
    combined = combine_state_batches(batches_of(so_far), new_batches, int(start))
    assert text_of(combined) == expected, line


@pytest.mark.parametrize("spliced", [0, 16, 1000])
def test_the_union_is_that_of_kafka(spliced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persister_state_batch_combiner, "SPLICED_BATCHES", spliced)
    for line in CASES_OF_KAFKA.read_text().splitlines():
        check_line(line)


@pytest.mark.verify
def test_the_union_of_new_random_batches_is_that_of_kafka() -> None:
    classpath = jars("org.apache.kafka:kafka-share-coordinator:4.4.0")
    classes = compile_java(FOLDER / "kafka_combiner", classpath)
    cases = random_cases(random.randrange(1 << 30), 3000)
    result = run_java("CombineStateBatches", [classes, *classpath], stdin="\n".join(cases) + "\n")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == len(cases)
    for line in lines:
        check_line(line)


def test_the_order_of_writes_and_their_repetition_do_not_matter() -> None:
    rng = random.Random(7)
    for _ in range(200):
        writes = [random_batches(rng, 4) for _ in range(5)]
        expected: list[PersisterStateBatch] = []
        for write in writes:
            expected = combine_state_batches(expected, write, -1)
        repeated = [*writes, *writes]
        rng.shuffle(repeated)
        combined: list[PersisterStateBatch] = []
        for write in repeated:
            combined = combine_state_batches(combined, write, -1)
        assert combined == expected


def test_offsets_at_the_end_of_their_range_are_combined() -> None:
    end = (1 << 63) - 1
    last = PersisterStateBatch(end, end, 2, 1)
    assert combine_state_batches([PersisterStateBatch(0, end - 1, 2, 1)], [last], 0) == [
        PersisterStateBatch(0, end, 2, 1)
    ]
    assert combine_state_batches([], [PersisterStateBatch(0, end, 2, (1 << 15) - 1)], end) == [
        PersisterStateBatch(end, end, 2, (1 << 15) - 1)
    ]
