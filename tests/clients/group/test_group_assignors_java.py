"""Our assignors beside those of the kafka-clients jar, on the same random groups; user data byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.clients.group.assignor import Assignments, MemberSubscription
from barnabas.clients.group.assignors import new_assignors
from barnabas.clients.group.sticky_balance import Claim
from barnabas.clients.group.sticky_user_data import encode_claim
from barnabas.protocol.topic_partition import TopicPartition

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

SOURCES = Path(__file__).parent / "java" / "assignors"
CASES = 1500
FIRST_MEMBERS_GENERATION = 7


@dataclass
class Case:
    """One group as it joins."""

    counts: dict[str, int]
    members: dict[str, MemberSubscription] = field(default_factory=dict)
    racks: dict[TopicPartition, frozenset[str]] = field(default_factory=dict)

    def line(self, name: str) -> str:
        topics = []
        for topic, count in self.counts.items():
            racks = (self.racks.get(TopicPartition(topic, index), frozenset()) for index in range(count))
            topics.append(f"{topic}=" + "/".join("".join(sorted(one)) for one in racks))
        parts = [name, ",".join(topics)]
        for member_id, m in self.members.items():
            wanted, owned = ",".join(sorted(m.topics)), " ".join(map(str, m.owned))
            data, instance = (m.user_data or b"").hex(), m.group_instance_id or ""
            parts.append("|".join([member_id, instance, wanted, owned, str(m.generation), data, m.rack or ""]))
        return ";".join(parts)


def random_case(rng: random.Random, *, alike: bool, owning: bool) -> Case:
    """Members that had partitions shared out among them unevenly, some of whom have since come or gone."""
    case = Case({f"t{number}": rng.randrange(1, 9) for number in range(rng.randrange(1, 5))})
    topics = list(case.counts)
    everything = [TopicPartition(t, p) for t, count in case.counts.items() for p in range(count)]
    ids = [f"m{number}" for number in range(rng.randrange(1, 7))]
    wishes = {m: frozenset(topics if alike else rng.sample(topics, rng.randrange(1, len(topics) + 1))) for m in ids}
    owned: dict[str, list[TopicPartition]] = {m: [] for m in ids}
    for place in everything if owning else ():
        owner = rng.choice([*ids, "gone"])
        if owner in owned and place.topic in wishes[owner]:
            owned[owner].append(place)
    for number, member_id in enumerate(ids):
        own = tuple(owned[member_id])
        case.members[member_id] = MemberSubscription(
            wishes[member_id],
            own,
            5 if own else -1,
            encode_claim(Claim(own, 5)) if own else None,
            f"i{9 - number}" if rng.random() < 0.3 else None,
        )
    return case


Ask = Callable[[str, list[Case]], list[tuple[Assignments, bytes]]]


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Kafka's answers to cases, with the user data its first member would tell next."""
    classpath = jars("org.apache.kafka:kafka-clients:4.4.0")
    classpath = [compile_java(SOURCES, classpath), *classpath]

    def answers(name: str, cases: list[Case]) -> list[tuple[Assignments, bytes]]:
        result = run_java("Assignors", classpath, stdin="\n".join(case.line(name) for case in cases))
        assert result.returncode == 0, result.stderr
        found = []
        for line in result.stdout.splitlines():
            given, _, told = line.rpartition(" |")
            pairs = (pair.partition("=") for pair in given.split(";"))
            assignment = {member_id: [place(text) for text in places.split()] for member_id, _, places in pairs}
            found.append((assignment, bytes.fromhex(told)))
        assert len(found) == len(cases)
        return found

    return answers


def place(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def ours(name: str, case: Case) -> Assignments:
    return new_assignors([name])[name].assign(case.counts, case.members, case.racks)


def kept(case: Case, given: Assignments) -> int:
    return sum(len(set(case.members[member_id].owned) & set(own)) for member_id, own in given.items())


def unevenness(given: Assignments) -> int:
    return sum(len(own) ** 2 for own in given.values())


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@pytest.mark.parametrize("alike", [True, False])
def test_the_same_answer(ask: Ask, name: str, alike: bool) -> None:
    rng = random.Random(11)
    cases = [random_case(rng, alike=alike, owning=False) for _ in range(CASES)]
    for case, (theirs, told) in zip(cases, ask(name, cases), strict=True):
        assert ours(name, case) == theirs, case
        assert told == b""


@pytest.mark.parametrize("alike", [True, False])
def test_ranges_follow_the_racks(ask: Ask, alike: bool) -> None:
    rng = random.Random(15)
    cases = [in_racks(rng, random_case(rng, alike=alike, owning=False)) for _ in range(CASES)]
    racks_mattered = 0
    for case, (theirs, _) in zip(cases, ask("range", cases), strict=True):
        mine = ours("range", case)
        assert mine == theirs, case
        racks_mattered += mine != new_assignors(["range"])["range"].assign(case.counts, case.members)
    assert racks_mattered > CASES / 10


def in_racks(rng: random.Random, case: Case) -> Case:
    """The group in a cluster of one to four racks; topics of one group often have as many partitions."""
    names = "abcd"[: rng.randint(1, 4)]
    if rng.random() < 0.5:
        case.counts = dict.fromkeys(case.counts, rng.randint(1, 8))
    for topic, count in case.counts.items():
        most = rng.randint(0, len(names))
        for index in range(count):
            case.racks[TopicPartition(topic, index)] = frozenset(rng.sample(names, rng.randint(0, most)))
    if rng.random() < 0.5:  # all topics' partitions in the same places, as for a join
        for place, _ in list(case.racks.items()):
            case.racks[place] = case.racks.get(TopicPartition("t0", place.partition), frozenset())
    for member_id, member in case.members.items():
        case.members[member_id] = replace(member, rack=rng.choice([*names, *names, None, "z"]))
    return case


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_members_alike_get_as_many_and_keep_as_many(ask: Ask, name: str) -> None:
    rng = random.Random(12)
    cases = [random_case(rng, alike=True, owning=True) for _ in range(CASES)]
    for case, (theirs, _) in zip(cases, ask(name, cases), strict=True):
        mine = ours(name, case)
        assert kept(case, mine) == kept(case, theirs), (case, mine, theirs)
        assert sum(map(len, mine.values())) == sum(map(len, theirs.values())), (case, mine, theirs)
        if name == "sticky":
            assert sorted(map(len, mine.values())) == sorted(map(len, theirs.values())), (case, mine, theirs)


def test_unlike_members_are_served_no_less_evenly(ask: Ask) -> None:
    rng = random.Random(13)
    cases = [random_case(rng, alike=False, owning=True) for _ in range(CASES)]
    kept_by_us = kept_by_them = 0
    for case, (theirs, _) in zip(cases, ask("sticky", cases), strict=True):
        mine = ours("sticky", case)
        assert {tp for own in mine.values() for tp in own} == {tp for own in theirs.values() for tp in own}
        assert unevenness(mine) <= unevenness(theirs), (case, mine, theirs)
        kept_by_us += kept(case, mine)
        kept_by_them += kept(case, theirs)
    assert kept_by_us >= kept_by_them


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_the_same_user_data(ask: Ask, name: str) -> None:
    rng = random.Random(14)
    cases = [random_case(rng, alike=True, owning=False) for _ in range(50)]
    for case, (theirs, told) in zip(cases, ask(name, cases), strict=True):
        own = theirs[min(case.members)]
        assignor = new_assignors([name])[name]
        assignor.on_assignment(own, FIRST_MEMBERS_GENERATION)
        assert assignor.user_data() == told, (own, told)
