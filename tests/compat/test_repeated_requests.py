"""A repeated request of every API that makes or removes an object: Apache Kafka 4.4.0 and Barnabas respond alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.compat.answers import differences, plain
from tests.compat.repeated_requests import (
    REPETITIONS,
    UNTOLD,
    Repetition,
    World,
    barnabas_world,
    errors_of,
    kafka_world,
    of_row,
)

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    folders = [tmp_path_factory.mktemp(name) for name in ("theirs", "ours")]
    with kafka_world(folders[0]) as theirs, barnabas_world(folders[1]) as ours:
        yield theirs, ours


@pytest.mark.parametrize("row", REPETITIONS, ids=lambda row: row.name)
def test_a_repeated_request_is_answered_as_by_kafka(both: tuple[World, World], row: Repetition) -> None:
    theirs, ours = (of_row(row, world) for world in both)
    second = row.second if row.kafka is None else row.kafka
    assert [tuple(errors_of(answer)) for answer in theirs] == [row.first, second]
    assert [tuple(errors_of(answer)) for answer in ours] == [row.first, row.second]
    for which, kafkas, mine in zip(("first", "second"), theirs, ours, strict=True):
        if which == "second" and row.kafka is not None:
            continue
        found = list(differences(plain(kafkas, UNTOLD), plain(mine, UNTOLD)))
        assert not found, f"{which}: {found}"
