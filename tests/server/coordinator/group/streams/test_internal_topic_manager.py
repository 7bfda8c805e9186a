"""Topologies are configured as by Apache Kafka: task counts, internal topics, and the errors of their topics."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.common.steps import run_to_end
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.coordinator.group.streams.streams_topology import (
    CopartitionGroup,
    StreamsTopology,
    Subtopology,
)
from barnabas.server.coordinator.group.streams.streams_topology import InternalTopicInfo as TopicInfo
from barnabas.server.coordinator.group.streams.topics.configured_topology import ConfiguredTopology
from barnabas.server.coordinator.group.streams.topics.internal_topic_manager import configure_topics, summarize_topics
from barnabas.server.coordinator.group.streams.topics.repartition_topics import compute_repartition_topics
from barnabas.server.coordinator.group.streams.topics.topic_configuration_error import Status

Counts = dict[str, int]


def topology(*subtopologies: Subtopology) -> StreamsTopology:
    return StreamsTopology(0, {one.subtopology_id: one for one in subtopologies})


def configure(counts: Mapping[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    return run_to_end(configure_topics(topology(*subtopologies), 7, counts.get))


WRITER = Subtopology("0", ("in",), repartition_sink_topics=("rep",), state_changelog_topics=(TopicInfo("log0"),))
READER = Subtopology("1", repartition_source_topics=(TopicInfo("rep"),), state_changelog_topics=(TopicInfo("log1"),))


def test_internal_topics_get_the_partition_counts_of_their_subtopologies() -> None:
    configured = configure({"in": 3}, WRITER, READER)
    assert configured.error is not None and configured.error.status is Status.MISSING_INTERNAL_TOPICS
    assert configured.error.message == "Internal topics are missing: log0, rep, log1"
    wanted = {name: topic.partition_count for name, topic in configured.internal_topics_to_create.items()}
    assert wanted == {"log0": 3, "rep": 3, "log1": 3}


def test_a_topology_is_ready_when_its_internal_topics_exist() -> None:
    configured = configure({"in": 3, "rep": 3, "log0": 3, "log1": 3}, WRITER, READER)
    assert configured.is_ready and configured.subtopologies is not None
    assert {name: one.task_count for name, one in configured.subtopologies.items()} == {"0": 3, "1": 3}


def test_missing_source_topics_are_reported_in_order() -> None:
    configured = configure({}, Subtopology("0", ("z", "b", "c", "a")))
    assert configured.subtopologies is None and configured.error is not None
    assert configured.error.status is Status.MISSING_SOURCE_TOPICS
    assert configured.error.message == "Source topics a, b, c and 1 additional topics are missing."


def test_an_internal_topic_with_another_number_of_partitions_is_an_error() -> None:
    configured = configure({"in": 3, "log0": 5}, WRITER, READER)
    assert configured.error is not None and configured.error.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert configured.error.message == ("Existing topic log0 has different number of partitions: expected 3, found 5")


def test_copartitioned_sources_need_equal_partition_counts() -> None:
    joined = Subtopology("0", ("a", "b"), copartition_groups=(CopartitionGroup((0, 1)),))
    configured = configure({"a": 2, "b": 3}, joined)
    assert configured.error is not None
    assert configured.error.message == "Following topics do not have the same number of partitions: [{a=2, b=3}]"


@pytest.mark.parametrize(
    "subtopologies",
    [
        (Subtopology("0"),),
        (Subtopology("0", ("in",)), Subtopology("1", repartition_source_topics=(TopicInfo("never"),))),
        (
            Subtopology("0", repartition_source_topics=(TopicInfo("a"),), repartition_sink_topics=("b",)),
            Subtopology("1", repartition_source_topics=(TopicInfo("b"),), repartition_sink_topics=("a",)),
        ),
    ],
    ids=["no source", "never written", "loop"],
)
def test_impossible_topologies_are_refused(subtopologies: tuple[Subtopology, ...]) -> None:
    with pytest.raises(KafkaError) as caught:
        configure({"in": 1}, *subtopologies)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_few_topics_are_named() -> None:
    assert summarize_topics(["a", "b", "c"]) == "a, b, c"
    assert summarize_topics(["a", "b", "c", "d", "e"]) == "a, b, c and 2 additional topics"


def linked(length: int, *, is_reversed: bool) -> tuple[Subtopology, ...]:
    """Subtopologies of which each reads the topic that the previous one writes, in this order or in reverse."""
    links = [
        Subtopology(
            f"{number:04}",
            ("in",) if number == 0 else (),
            repartition_source_topics=(TopicInfo(f"r{number}"),) if number else (),
            repartition_sink_topics=(f"r{number + 1}",) if number < length - 1 else (),
        )
        for number in range(length)
    ]
    return tuple(reversed(links) if is_reversed else links)


def test_a_reversed_chain_of_subtopologies_needs_few_lookups() -> None:
    lookups = 0

    def partition_count(name: str) -> int | None:
        nonlocal lookups
        lookups += 1
        return {"in": 3}.get(name)

    for subtopologies in (linked(1000, is_reversed=False), linked(1000, is_reversed=True)):
        links = [CountedSources(one) for one in subtopologies]
        counts = compute_repartition_topics(links, partition_count)  # type: ignore[arg-type]
        assert counts == {f"r{number}": 3 for number in range(1, 1000)}
        assert sum(one.visits for one in links) <= 20 * 1000 and lookups <= 20


class CountedSources:
    """A subtopology that counts the uses of its repartition topics."""

    def __init__(self, subtopology: Subtopology) -> None:
        self._subtopology = subtopology
        self.visits = 0

    def __getattr__(self, name: str) -> object:
        self.visits += 1
        return getattr(self._subtopology, name)


def passes(subtopologies: list[Subtopology], partition_count: Counts) -> Counts | None:
    """The numbers of partitions of repartition topics as Kafka computes them, pass after pass; None for a loop."""
    counts = {
        topic.name: topic.partitions
        for one in subtopologies
        for topic in one.repartition_source_topics
        if topic.partitions
    }
    while True:
        is_needed = has_progress = False
        for one in subtopologies:
            for sink in one.repartition_sink_topics:
                if sink in counts:
                    continue
                known = [counts.get(topic.name) for topic in one.repartition_source_topics]
                known += [partition_count.get(name) for name in one.source_topics]
                found = [count for count in known if count is not None]
                if found:
                    counts[sink] = max(found)
                    has_progress = True
                else:
                    is_needed = True
        if not is_needed:
            return counts
        if not has_progress:
            return None


def random_subtopologies(rng: random.Random) -> tuple[list[Subtopology], Counts]:
    topics = [f"r{number}" for number in range(rng.randint(1, 8))]
    counts = {"a": rng.randint(1, 9), "b": rng.randint(1, 9)}
    read = [rng.sample(topics, min(rng.randint(0, 2), len(topics))) for _ in range(rng.randint(1, 8))]
    written = [rng.sample(topics, min(rng.randint(0, 3), len(topics))) for _ in read]
    written[0] = sorted({*written[0], *chain.from_iterable(read)} - {*chain.from_iterable(written[1:])})
    return [
        Subtopology(
            str(number),
            tuple(name for name in counts if rng.random() < 0.2),
            repartition_source_topics=tuple(TopicInfo(name, rng.choice([0, 0, 0, 0, 12])) for name in sources),
            repartition_sink_topics=tuple(sinks),
        )
        for number, (sources, sinks) in enumerate(zip(read, written, strict=True))
    ], counts


def test_repartition_topics_have_the_partitions_that_passes_give_them() -> None:
    rng = random.Random(7)
    outcomes = {True: 0, False: 0}
    for _ in range(3000):
        subtopologies, counts = random_subtopologies(rng)
        expected = passes(subtopologies, counts)
        try:
            found = compute_repartition_topics(subtopologies, counts.get)
        except KafkaError:
            found = None
        assert found == expected, subtopologies
        outcomes[found is None] += 1
    assert min(outcomes.values()) > 300, outcomes


def random_case(rng: random.Random) -> tuple[Counts, StreamsTopology]:
    sources = [f"s{number}" for number in range(rng.randint(1, 4))]
    repartitions = [f"r{number}" for number in range(rng.randint(0, 4))]
    fixed = {name: rng.choice([0, 0, 0, 2, 3]) for name in repartitions}
    names = [str(number) for number in range(rng.randint(1, 4))]
    read_by = {name: rng.choice(names) for name in repartitions}
    subtopologies = []
    for name in names:
        read = [one for one in repartitions if read_by[one] == name]
        own = rng.sample(sources, rng.randint(0 if read else 1, len(sources)))
        groups = []
        indexes = [*(f"s{at}" for at in range(len(own))), *(f"r{at}" for at in range(len(read)))]
        if len(indexes) > 1 and rng.random() < 0.5:
            chosen = rng.sample(indexes, rng.randint(2, len(indexes)))
            groups = [
                CopartitionGroup(
                    tuple(int(one[1:]) for one in chosen if one[0] == "s"),
                    (),
                    tuple(int(one[1:]) for one in chosen if one[0] == "r"),
                )
            ]
        subtopologies.append(
            Subtopology(
                name,
                tuple(own),
                (),
                tuple(TopicInfo(f"log{name}{number}") for number in range(rng.randint(0, 2))),
                tuple(rng.sample(repartitions, rng.randint(0, len(repartitions)))),
                tuple(TopicInfo(one, fixed[one]) for one in read),
                tuple(groups),
            )
        )
    common = rng.choice([2, 3])
    counts = {name: common if rng.random() < 0.8 else rng.randint(1, 4) for name in sources if rng.random() < 0.95}
    every = [*repartitions, *(topic.name for one in subtopologies for topic in one.state_changelog_topics)]
    exist = rng.choice([0, 0.3, 1])
    counts |= {name: common if rng.random() < 0.9 else 3 for name in every if rng.random() < exist}
    return counts, topology(*subtopologies)


def format_case(counts: Counts, wanted: StreamsTopology) -> str:
    words = [",".join(f"{name}:{count}" for name, count in counts.items())]
    for one in wanted.subtopologies.values():
        groups = (
            ".".join((*(f"s{at}" for at in group.source_topics), *(f"r{at}" for at in group.repartition_source_topics)))
            for group in one.copartition_groups
        )
        lists = (
            one.source_topics,
            (f"{topic.name}:{topic.partitions}" for topic in one.repartition_source_topics),
            one.repartition_sink_topics,
            (topic.name for topic in one.state_changelog_topics),
            groups,
        )
        words.append(";".join((one.subtopology_id, *map(",".join, lists))))
    return " ".join(words)


def format_result(counts: Counts, wanted: StreamsTopology) -> str:
    def listed(topics: Mapping[str, int]) -> str:
        return "{" + ",".join(f"{name}={count}" for name, count in sorted(topics.items())) + "}"

    try:
        found = run_to_end(configure_topics(wanted, 0, counts.get))
    except KafkaError as error:
        assert error.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
        return "INVALID"
    words = ["READY" if found.error is None else found.error.status.name]
    for name, one in (found.subtopologies or {}).items():
        topics = {**one.repartition_source_topics, **one.state_changelog_topics}.values()
        words.append(f"{name}:{one.task_count}" + listed({topic.name: topic.partition_count for topic in topics}))
    missing = {name: topic.partition_count for name, topic in found.internal_topics_to_create.items()}
    return " ".join([*words, listed(missing)])


@pytest.mark.java
@pytest.mark.timeout(600)
def test_topologies_are_configured_as_by_apache_kafka() -> None:
    classpath = jars("org.apache.kafka:kafka-group-coordinator:4.4.0")
    classes = compile_java(Path(__file__).parent / "java", classpath)
    rng = random.Random(1071)
    cases = [random_case(rng) for _ in range(3000)]
    lines = "\n".join(format_case(*case) for case in cases) + "\n"
    result = run_java("InternalTopicManagerOracle", [classes, *classpath], stdin=lines)
    assert result.returncode == 0, result.stderr[-2000:]
    answers = result.stdout.splitlines()
    for case, answer in zip(cases, answers, strict=True):
        assert format_result(*case) == answer, format_case(*case)
    assert {answer.split()[0] for answer in answers} == {
        "READY",
        "INVALID",
        "MISSING_SOURCE_TOPICS",
        "INCORRECTLY_PARTITIONED_TOPICS",
        "MISSING_INTERNAL_TOPICS",
    }
