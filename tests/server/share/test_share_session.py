"""The cache of share sessions without a broker."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.share.share_session import SharePartitionId, ShareSession, ShareSessionCache, ShareSessionKey

TOPIC_ID = UUID(int=1)
GREEDY, OTHER = ("greedy", 1), ("other", 1)


def partitions(count: int, first: int = 0) -> list[SharePartitionId]:
    return [(TOPIC_ID, index) for index in range(first, first + count)]


def key(member_id: str, group_id: str = "g") -> ShareSessionKey:
    return ShareSessionKey(group_id, member_id)


@pytest.fixture
def left() -> list[ShareSession]:
    return []


@pytest.fixture
def cache(left: list[ShareSession], monkeypatch: pytest.MonkeyPatch) -> ShareSessionCache:
    """A cache for 3 sessions with 100 partitions."""
    monkeypatch.setattr("barnabas.server.share.share_session.MAX_PARTITIONS", 100)
    return ShareSessionCache(3, left.append)


def test_a_client_with_many_partitions_makes_room_for_others(
    cache: ShareSessionCache, left: list[ShareSession]
) -> None:
    greedy = cache.open(key("greedy"), partitions(40), object(), GREEDY)
    cache.resume(key("greedy"), 1, partitions(60, 40))
    assert cache.partition_count == 100
    cache.open(key("m"), partitions(10), object(), OTHER)
    assert left == [greedy]
    assert (len(cache), cache.partition_count, cache.evictions) == (1, 10, 1)


def test_a_client_with_many_partitions_makes_room_for_those_that_a_session_adds(
    cache: ShareSessionCache, left: list[ShareSession]
) -> None:
    cache.open(key("m"), partitions(2), object(), OTHER)
    greedy = cache.open(key("greedy"), partitions(98), object(), GREEDY)
    # A partition that the request names twice counts once.
    session = cache.resume(key("m"), 1, partitions(10) * 2, partitions(1))
    assert left == [greedy]
    assert (len(session.partitions), cache.partition_count, session.epoch) == (9, 9, 2)
    with pytest.raises(KafkaError) as caught:
        cache.resume(key("m"), 2, partitions(100, 10))
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert session.epoch == 2


def test_clients_with_fewer_partitions_make_no_room(cache: ShareSessionCache, left: list[ShareSession]) -> None:
    cache.open(key("m"), partitions(60), object(), OTHER)
    with pytest.raises(KafkaError) as caught:
        cache.open(key("greedy"), partitions(60), object(), GREEDY)
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    cache.open(key("greedy"), partitions(40), object(), GREEDY)
    with pytest.raises(KafkaError) as caught:
        cache.resume(key("greedy"), 1, partitions(30, 40))
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert not left


def test_at_the_limit_of_sessions_their_number_counts(cache: ShareSessionCache, left: list[ShareSession]) -> None:
    first = cache.open(key("m1"), partitions(1), object(), GREEDY)
    cache.open(key("m2"), partitions(1), object(), GREEDY)
    cache.open(key("m3"), partitions(90), object(), ("large", 1))
    cache.open(key("m4"), partitions(1), object(), OTHER)
    assert left == [first]


def test_a_session_without_a_successor_is_reported(cache: ShareSessionCache, left: list[ShareSession]) -> None:
    former = cache.open(key("m"), partitions(1), object(), OTHER)
    with pytest.raises(KafkaError):
        cache.open(key("m"), partitions(101), object(), OTHER)
    assert left == [former]
    assert not cache.has_members("g")
    cache.open(key("m"), partitions(1), object(), OTHER)
    cache.open(key("m"), partitions(2), object(), OTHER)
    assert left == [former], "the member has a session"


def test_all_sessions_of_a_connection_end_with_it(cache: ShareSessionCache, left: list[ShareSession]) -> None:
    connection, another = object(), object()
    first = cache.open(key("m"), partitions(1), connection, OTHER)
    second = cache.open(key("m", "g2"), partitions(1), connection, OTHER)
    third = cache.open(key("m", "g3"), partitions(1), another, OTHER)
    cache.on_disconnect(connection)
    assert left == [first, second]
    assert cache.get(third.key) is third
    cache.on_disconnect(connection)
    assert left == [first, second]


def test_an_ended_session_leaves_no_usage(cache: ShareSessionCache) -> None:
    connection = object()
    session = cache.open(key("m"), partitions(3), connection, OTHER)
    cache.resume(session.key, 1, partitions(3, 3), partitions(2))
    assert cache.remove(session)
    assert not cache.remove(session)
    assert (len(cache), cache.partition_count) == (0, 0)
    for used in (cache._sessions_used, cache._partitions_used):
        assert not used._by_client and not used._by_address
    assert not cache._by_connection
