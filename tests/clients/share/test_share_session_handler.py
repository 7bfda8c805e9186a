"""A share session with one broker: epochs, added and forgotten partitions, acknowledgements."""

from __future__ import annotations

from math import inf
from uuid import UUID

import pytest

from barnabas.clients.share.acknowledgements import Acknowledgements, AcknowledgeType
from barnabas.clients.share.share_session_handler import FINAL_EPOCH, MAX_EPOCH, ShareSessionHandler
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.topic_partition import TopicIdPartition

A0, A1, B0 = (
    TopicIdPartition(UUID(int=1), "a", 0),
    TopicIdPartition(UUID(int=1), "a", 1),
    TopicIdPartition(UUID(int=2), "b", 0),
)


def accepted(partition: TopicIdPartition, *offsets: int) -> dict[TopicIdPartition, Acknowledgements]:
    taken = Acknowledgements(partition, inf, lambda: None)
    for offset in offsets:
        taken.add(offset, AcknowledgeType.ACCEPT)
    return {partition: taken}


class Fetches:
    """The requests of one session, as sets of partitions."""

    def __init__(self) -> None:
        self.session = ShareSessionHandler("m")

    def fetch(
        self, *wanted: TopicIdPartition, acknowledged: dict[TopicIdPartition, Acknowledgements] | None = None
    ) -> tuple[int, set[tuple[UUID, int]], set[tuple[UUID, int]]]:
        request = ShareFetchRequest(member_id="")
        self.session.fill_fetch(request, wanted, acknowledged or {})
        assert request.member_id == "m"
        listed = {(t.topic_id, p.partition_index) for t in request.topics for p in t.partitions}
        forgotten = {(t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions}
        return request.share_session_epoch, listed, forgotten


def ids(*partitions: TopicIdPartition) -> set[tuple[UUID, int]]:
    return {(tip.topic_id, tip.partition) for tip in partitions}


def test_the_first_request_lists_all_partitions_and_later_ones_changes() -> None:
    fetches = Fetches()
    assert fetches.fetch(A0, A1) == (0, ids(A0, A1), set())
    fetches.session.answered(ErrorCode.NONE)
    assert fetches.fetch(A0, A1) == (1, set(), set())
    fetches.session.answered(ErrorCode.NONE)
    assert fetches.fetch(A1, B0) == (2, ids(B0), ids(A0))
    assert set(fetches.session.partitions) == {A1, B0}


def test_a_topic_that_was_created_again_is_another_partition() -> None:
    fetches = Fetches()
    fetches.fetch(A0)
    fetches.session.answered(ErrorCode.NONE)
    again = A0._replace(topic_id=UUID(int=9))
    assert fetches.fetch(again) == (1, ids(again), ids(A0))


def test_an_acknowledged_partition_that_is_not_fetched_leaves_the_session_again() -> None:
    fetches = Fetches()
    fetches.fetch(A0)
    fetches.session.answered(ErrorCode.NONE)
    assert fetches.fetch(A0, acknowledged=accepted(B0, 1)) == (1, ids(B0), ids(B0))
    fetches.session.answered(ErrorCode.NONE)
    assert fetches.fetch(acknowledged=accepted(A0, 1)) == (2, ids(A0), ids(A0))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ],
)
def test_a_lost_session_is_opened_again_with_all_partitions(error: ErrorCode) -> None:
    fetches = Fetches()
    fetches.fetch(A0)
    fetches.session.answered(ErrorCode.NONE)
    fetches.fetch(A0)
    fetches.session.answered(error)
    assert fetches.session.is_new
    assert fetches.fetch(A0, A1) == (0, ids(A0, A1), set())


def test_another_error_counts_as_an_epoch() -> None:
    fetches = Fetches()
    fetches.fetch(A0)
    fetches.session.answered(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert fetches.fetch(A0) == (1, set(), set())


def test_one_follows_the_largest_epoch() -> None:
    session = ShareSessionHandler("m")
    session._epoch = MAX_EPOCH
    session.answered(ErrorCode.NONE)
    assert session.epoch == 1


def test_acknowledgements_require_an_open_session() -> None:
    session = ShareSessionHandler("m")
    with pytest.raises(AssertionError):
        session.fill_acknowledge(ShareAcknowledgeRequest(member_id=""), accepted(A0, 1))
    with pytest.raises(AssertionError):
        session.fill_fetch(ShareFetchRequest(member_id=""), [A0], accepted(A0, 1))


def test_the_final_request_carries_acknowledgements_and_ends_the_session() -> None:
    fetches = Fetches()
    fetches.fetch(A0)
    fetches.session.answered(ErrorCode.NONE)
    fetches.session.close()
    request = ShareAcknowledgeRequest(member_id="")
    fetches.session.fill_acknowledge(request, accepted(A0, 3, 4))
    assert request.share_session_epoch == FINAL_EPOCH
    (batch,) = request.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (3, 4, [1])
    fetches.session.answered(ErrorCode.NONE)
    assert fetches.session.is_new
