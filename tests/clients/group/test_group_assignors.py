"""Assignors as pure functions: one owner each, even, and nothing moves that need not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.clients.group.assignor import Assignments, Assignor, Members, MemberSubscription
from barnabas.clients.group.assignors import is_cooperative, new_assignors
from barnabas.clients.group.sticky_balance import Claim
from barnabas.clients.group.sticky_user_data import (
    StickyUserData,
    decode_claim,
    decode_generation,
    encode_claim,
    encode_generation,
    topic_partitions,
)
from barnabas.protocol.codec import encode_versioned
from barnabas.protocol.topic_partition import TopicPartition

NAMES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
STICKY = ["sticky", "cooperative-sticky"]
TOPICS = ["t0", "t1", "t2", "t3"]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
wishes = st.frozensets(st.sampled_from([*TOPICS, "nowhere"]), min_size=1)
unlike_groups = st.dictionaries(st.sampled_from("abcdefg"), wishes, min_size=1)
alike_groups = st.builds(
    lambda ids, topics: dict.fromkeys(ids, topics), st.sets(st.sampled_from("abcdefg"), min_size=1), wishes
)
groups = st.one_of(unlike_groups, alike_groups)


def assignor(name: str) -> Assignor:
    return new_assignors([name])[name]


def joining(topics: dict[str, frozenset[str]], owned: Assignments | None = None, generation: int = 5) -> Members:
    """Members as the leader sees them, who all were given `owned` in one generation, told in either way."""
    members = {}
    for member_id, wanted in topics.items():
        own = tuple((owned or {}).get(member_id, ()))
        data = encode_claim(Claim(own, generation)) if own else None
        members[member_id] = MemberSubscription(wanted, own, generation if own else -1, data)
    return members


def settle(name: str, partition_counts: dict[str, int], members: Members) -> Assignments:
    """Assign until everything is somebody's: at most two rounds for the cooperative one, or five for members unlike."""
    given_now = assignor(name).assign(partition_counts, members)
    if name != "cooperative-sticky":
        return given_now
    topics = {member_id: member.topics for member_id, member in members.items()}
    for generation in range(6, 10 if len(set(topics.values())) > 1 else 7):
        before = given_now
        given_now = assignor(name).assign(partition_counts, joining(topics, before, generation))
        if sum(map(len, given_now.values())) == len(all_of(partition_counts, topics)):
            break
    return given_now


def all_of(partition_counts: dict[str, int], topics: dict[str, frozenset[str]]) -> set[TopicPartition]:
    wanted = {topic for some in topics.values() for topic in some}
    return {TopicPartition(t, p) for t, count in partition_counts.items() if t in wanted for p in range(count)}


def moved(before: Assignments, after: Assignments) -> int:
    """Partitions that stayed in the group and changed hands."""
    owner = {tp: member_id for member_id, own in before.items() if member_id in after for tp in own}
    return sum(owner.get(tp, member_id) != member_id for member_id, own in after.items() for tp in own)


@pytest.mark.parametrize("name", NAMES)
@given(counts, groups, groups)
def test_every_partition_has_one_owner_who_wants_it(
    name: str, partition_counts: dict[str, int], topics: dict[str, frozenset[str]], earlier: dict[str, frozenset[str]]
) -> None:
    before = settle(name, partition_counts, joining(earlier))
    after = settle(name, partition_counts, joining(topics, before))
    assert after.keys() == topics.keys()
    owners = Counter(tp for own in after.values() for tp in own)
    assert set(owners) == all_of(partition_counts, topics)
    assert all(count == 1 for count in owners.values())
    assert all(tp.topic in topics[member_id] for member_id, own in after.items() for tp in own)


@given(counts, groups)
def test_range_gives_each_member_one_run_of_each_topic(
    partition_counts: dict[str, int], topics: dict[str, frozenset[str]]
) -> None:
    after = assignor("range").assign(partition_counts, joining(topics))
    for topic in partition_counts:
        sizes = []
        for member_id in sorted(m for m, wanted in topics.items() if topic in wanted):
            indexes = [tp.partition for tp in after[member_id] if tp.topic == topic]
            assert indexes == list(range(indexes[0], indexes[0] + len(indexes))) if indexes else True
            sizes.append(len(indexes))
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize("name", ["roundrobin", *STICKY])
@given(counts, alike_groups)
def test_members_alike_get_alike(
    name: str, partition_counts: dict[str, int], topics: dict[str, frozenset[str]]
) -> None:
    sizes = [len(own) for own in settle(name, partition_counts, joining(topics)).values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", STICKY)
@given(counts, groups, groups)
def test_no_single_move_would_make_a_sticky_assignment_more_even(
    name: str, partition_counts: dict[str, int], topics: dict[str, frozenset[str]], earlier: dict[str, frozenset[str]]
) -> None:
    before = settle(name, partition_counts, joining(earlier))
    after = settle(name, partition_counts, joining(topics, before))
    for rich, own in after.items():
        for poor, wanted in topics.items():
            if any(tp.topic in wanted for tp in own):
                assert len(own) - len(after[poor]) <= 1, (rich, poor, after)


@pytest.mark.parametrize("name", STICKY)
@given(counts, groups)
def test_nothing_moves_when_nothing_changed(
    name: str, partition_counts: dict[str, int], topics: dict[str, frozenset[str]]
) -> None:
    before = settle(name, partition_counts, joining(topics))
    after = settle(name, partition_counts, joining(topics, before))
    assert moved(before, after) == 0


@pytest.mark.parametrize("name", STICKY)
@given(counts, alike_groups, st.data())
def test_who_stays_keeps_what_it_had_when_others_go(
    name: str, partition_counts: dict[str, int], topics: dict[str, frozenset[str]], data: st.DataObject
) -> None:
    before = settle(name, partition_counts, joining(topics))
    staying = data.draw(st.sets(st.sampled_from(sorted(topics)), min_size=1))
    after = settle(name, partition_counts, joining({m: topics[m] for m in staying}, before))
    for member_id in staying:
        assert set(before[member_id]) <= set(after[member_id])


@pytest.mark.parametrize("name", STICKY)
@given(counts, alike_groups, alike_groups)
def test_members_alike_give_up_only_what_is_above_the_others_share(
    name: str, partition_counts: dict[str, int], topics: dict[str, frozenset[str]], earlier: dict[str, frozenset[str]]
) -> None:
    before = settle(name, partition_counts, joining(dict.fromkeys(earlier, next(iter(topics.values())))))
    after = settle(name, partition_counts, joining(topics, before))
    least, left_over = divmod(sum(map(len, after.values())), len(after))
    sizes = sorted((len(own) for member_id, own in before.items() if member_id in after), reverse=True)
    fair = [least + (number < left_over) for number in range(len(sizes))]
    assert moved(before, after) == sum(max(0, size - share) for size, share in zip(sizes, fair, strict=True))


@given(counts, groups, groups, groups)
def test_a_cooperative_round_never_gives_away_what_another_still_owns(
    partition_counts: dict[str, int],
    topics: dict[str, frozenset[str]],
    earlier: dict[str, frozenset[str]],
    earliest: dict[str, frozenset[str]],
) -> None:
    owned = settle("cooperative-sticky", partition_counts, joining(earliest))
    for members in (earlier, topics):
        given_now = assignor("cooperative-sticky").assign(partition_counts, joining(members, owned))
        owner = {tp: member_id for member_id, own in owned.items() if member_id in members for tp in own}
        for member_id, own in given_now.items():
            assert all(owner.get(tp, member_id) == member_id for tp in own)
        owned = {m: [tp for tp in own if tp in given_now[m]] for m, own in owned.items() if m in members}


def test_two_cooperative_members_share_in_two_rounds() -> None:
    wanted, three = frozenset({"t0"}), {"t0": 4}
    alone = assignor("cooperative-sticky").assign(three, joining({"a": wanted}))
    first = assignor("cooperative-sticky").assign(three, joining({"a": wanted, "b": wanted}, alone))
    assert first == {"a": [TopicPartition("t0", 0), TopicPartition("t0", 1)], "b": []}
    second = assignor("cooperative-sticky").assign(three, joining({"a": wanted, "b": wanted}, first))
    assert second == {"a": first["a"], "b": [TopicPartition("t0", 2), TopicPartition("t0", 3)]}


def test_a_zombie_from_an_older_generation_gets_nothing_back() -> None:
    wanted, place = frozenset({"t0"}), TopicPartition("t0", 0)
    members = {
        "zombie": MemberSubscription(wanted, (place,), 3, encode_claim(Claim((place,), 3))),
        "owner": MemberSubscription(wanted, (place,), 4, encode_claim(Claim((place,), 4))),
    }
    assert assignor("sticky").assign({"t0": 1}, members) == {"zombie": [], "owner": [place]}
    assert assignor("cooperative-sticky").assign({"t0": 1}, members)["zombie"] == []


def test_static_members_come_first_and_by_their_instance() -> None:
    wanted = frozenset({"t0"})
    members = {
        "a-1": MemberSubscription(wanted),
        "b-2": MemberSubscription(wanted, group_instance_id="2"),
        "c-3": MemberSubscription(wanted, group_instance_id="1"),
    }
    given_now = assignor("range").assign({"t0": 3}, members)
    assert [given_now[m][0].partition for m in ("c-3", "b-2", "a-1")] == [0, 1, 2]


def test_user_data_is_told_and_read() -> None:
    own = (TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0))
    assert decode_claim(encode_claim(Claim(own, 7))) == Claim(own, 7)
    assert decode_generation(encode_generation(7)) == 7
    before_generations = encode_versioned(StickyUserData(previous_assignment=topic_partitions(own)), 0)[2:]
    assert decode_claim(before_generations) == Claim(own, -1)
    assert decode_claim(b"\x00\x00\x00\x09") == decode_claim(None) == Claim((), -1)
    assert decode_generation(None) == -1
    assert assignor("sticky").user_data() is None
    remembering = assignor("sticky")
    remembering.on_assignment(list(own), 7)
    assert decode_claim(remembering.user_data()) == Claim(own, 7)


def test_a_group_is_cooperative_only_if_all_its_assignors_are() -> None:
    assert is_cooperative(list(new_assignors(["cooperative-sticky"]).values()))
    assert not is_cooperative(list(new_assignors(["range", "cooperative-sticky"]).values()))
    with pytest.raises(ValueError, match="unknown assignor"):
        new_assignors(["sticki"])
    with pytest.raises(ValueError, match="partition_assignment_strategy is empty"):
        new_assignors([])
