"""The check of sequence numbers in logs, with logs in which they are right or wrong."""

from __future__ import annotations

import pytest
from soak.cluster.sequences import sequence_violations
from tests.server.data_plane import idempotent


def log_of(*batches: tuple[int, int, int, int]) -> bytes:
    """Return batches of these producer ids, epochs, first sequences and numbers of records."""
    return b"".join(idempotent(*batch) for batch in batches)


def test_epochs_and_producers_have_sequences_of_their_own() -> None:
    log = log_of((7, 0, 0, 2), (8, 3, 0, 1), (7, 0, 2, 1), (7, 1, 0, 3), (8, 3, 1, 1), (7, 4, 0, 1))
    assert sequence_violations(log, "t-0") == []


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([(7, 0, 0, 1), (7, 0, 0, 1)], "sequence 0 at 0 of t-0 instead of 1 in epoch 0", id="repeated"),
        pytest.param([(7, 0, 0, 1), (7, 0, 2, 1)], "sequence 2 at 0 of t-0 instead of 1 in epoch 0", id="a gap"),
        pytest.param([(7, 0, 1, 1)], "sequence 1 at 0 of t-0 instead of 0 in epoch 0", id="no beginning"),
        pytest.param([(7, 0, 0, 1), (7, 1, 1, 1)], "sequence 1 at 0 of t-0 instead of 0 in epoch 0", id="new epoch"),
        pytest.param([(7, 1, 0, 1), (7, 0, 1, 1)], "sequence 1 at 0 of t-0 instead of 1 in epoch 1", id="old epoch"),
    ],
)
def test_batches_that_a_leader_had_to_refuse(batches: list[tuple[int, int, int, int]], expected: str) -> None:
    (found,) = sequence_violations(log_of(*batches), "t-0")
    assert expected in found
