"""A request is sent again because its first response was lost: the second response is the one of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.compat.repeated_requests import (
    REPETITIONS,
    RETRIED,
    Repetition,
    World,
    barnabas_world,
    errors_of,
    of_row,
    sent_together,
)

from barnabas.protocol.errors import ErrorCode

REPEATED = {*RETRIED, ErrorCode.REBALANCE_IN_PROGRESS}
"""Errors after which a client sends its request again."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with barnabas_world(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.mark.parametrize("row", REPETITIONS, ids=lambda row: row.name)
def test_a_repeated_request_is_answered_as_by_kafka(world: World, row: Repetition) -> None:
    first, second = of_row(row, world)
    assert (tuple(errors_of(first)), tuple(errors_of(second))) == (row.first, row.second), row.rule


@pytest.mark.parametrize("row", [row for row in REPETITIONS if not row.same_connection], ids=lambda row: row.name)
def test_requests_that_are_handled_together_have_one_effect(world: World, row: Repetition) -> None:
    """One response is the first of the row; the other is the second, or an error after which a client repeats it."""
    second = row.second if row.together is None else row.together
    answers = [tuple(errors_of(answer)) for answer in sent_together(row, world)]
    left = [one for one in answers if not REPEATED & set(one)]
    assert left, answers
    assert set(left) <= {row.first, second}, row.rule
    if len(left) == len(answers):
        assert sorted(answers) == sorted([row.first, second]), row.rule
