"""`barnabas group` and `barnabas consume -G` against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from tests.tools.cli.running import Run

from barnabas import Broker
from barnabas.clients import Admin, Consumer, Producer
from barnabas.clients.admin import GroupDescription
from barnabas.protocol.codec import encode_versioned
from barnabas.protocol.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.topic_partition import TopicPartition

_numbers = itertools.count(1)
RECORDS = 20


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of two partitions with ten records each."""
    name = f"cli{next(_numbers)}"
    broker.create_topic(name, 2)

    async def fill() -> None:
        async with Producer(broker.bootstrap) as producer:
            for number in range(RECORDS):
                await producer.send(name, b"%d" % number, partition=number % 2)

    asyncio.run(fill())
    return name


@pytest.fixture
def group(broker: Broker, topic: str) -> str:
    """A group without members that has read four records of partition 0 and six of partition 1."""
    name = f"group-{topic}"

    async def commit() -> None:
        async with Consumer(broker.bootstrap, group_id=name) as consumer:
            await consumer.commit({TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 6})

    asyncio.run(commit())
    return name


def committed(run: Run, group: str) -> dict[int, int]:
    _, out, _ = run("group", "lag", group, "--partitions", "--json")
    return {row["partition"]: row["committed"] for row in json.loads(out)}


def test_list_and_describe(run: Run, group: str) -> None:
    status, out, _ = run("group", "list", "--state", "Empty", "--json")
    assert status == 0
    assert {"group": group, "type": "classic", "state": "Empty", "protocol": ""} in json.loads(out)
    status, out, _ = run("group", "list", "--state", "Stable")
    assert (status, group in out) == (0, False)
    status, out, _ = run("group", "describe", group)
    assert status == 0
    assert out.startswith(f"group {group}  classic  Empty  coordinator 127.0.0.1:")
    (described,) = json.loads(run("group", "describe", group, "--json")[1])
    assert (described["group"], described["members"]) == (group, [])
    status, _, err = run("group", "describe", "nobody")
    assert (status, "GROUP_ID_NOT_FOUND" in err) == (1, True)


@pytest.mark.parametrize(("option", "choices"), [("--state", "PreparingRebalance"), ("--type", "classic")])
def test_a_filter_that_is_none_is_refused(run: Run, option: str, choices: str) -> None:
    status, _, err = run("group", "list", option, "sleepy")
    assert (status, "sleepy" in err, choices.lower() in err.lower()) == (2, True, True)


def test_filters_do_not_care_about_case(run: Run, group: str) -> None:
    status, out, _ = run("group", "list", "--state", "empty", "--type", "CLASSIC")
    assert (status, group in out) == (0, True)


def test_without_members_nobody_is_removed(run: Run, group: str) -> None:
    assert run("group", "remove-members", group) == (0, "", "member does not exist\n")
    status, _, err = run("group", "remove-members", group, "--instance", "i")
    assert (status, err) == (1, "barnabas: member i: UNKNOWN_MEMBER_ID\n")


def test_a_group_that_has_committed_nothing_cannot_be_reset_as_a_whole(run: Run) -> None:
    status, _, err = run("group", "reset-offsets", "nobody", "--all-topics", "--to-earliest", "--execute")
    assert (status, err) == (2, "barnabas: group 'nobody' has no committed offsets: select topics with --topic\n")


def test_lag_of_a_group_that_is_down(run: Run, group: str, topic: str) -> None:
    status, out, _ = run("group", "lag", "--topic", topic, "--json")
    assert status == 0
    assert json.loads(out) == [
        {"group": group, "type": "classic", "topic": topic, "partitions": 2, "members": 0, "lag": 10, "uncommitted": 0}
    ]
    _, out, _ = run("group", "lag", group, "--partitions")
    assert [line.split("\t")[3:7] for line in out.splitlines()] == [
        ["partition", "committed", "end", "lag"],
        ["0", "4", "10", "6"],
        ["1", "6", "10", "4"],
    ]


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-current"], {0: 4, 1: 6}),
        (["--to-offset", "8"], {0: 8, 1: 8}),
        (["--shift-by", "-5"], {0: 0, 1: 1}),
        (["--to-datetime", "2001-01-01T00:00"], {0: 0, 1: 0}),
        (["--to-datetime", "2201-01-01T00:00"], {0: 10, 1: 10}),
        (["--by-duration", "P1DT1H"], {0: 0, 1: 0}),
    ],
)
def test_reset_offsets(run: Run, group: str, arguments: list[str], after: dict[int, int]) -> None:
    status, out, err = run("group", "reset-offsets", group, "--all-topics", *arguments, "--json")
    assert status == 0
    assert "no offset was changed" in err
    assert {row["partition"]: row["new_offset"] for row in json.loads(out)} == after
    assert committed(run, group) == {0: 4, 1: 6}
    status, _, err = run("group", "reset-offsets", group, "--all-topics", *arguments, "--execute")
    assert (status, err) == (0, "")
    assert committed(run, group) == after


def test_reset_offsets_of_some_partitions_of_many_topics(run: Run, broker: Broker, group: str, topic: str) -> None:
    broker.create_topic(f"{topic}-more", 3)
    status, out, _ = run(
        "group",
        "reset-offsets",
        group,
        "-t",
        f"{topic}:1",
        "-t",
        f"{topic}-more:0,2",
        "--to-earliest",
        "--execute",
        "--json",
    )
    assert status == 0
    places = [(row["topic"], row["partition"], row["committed"], row["new_offset"]) for row in json.loads(out)]
    assert places == [(topic, 1, 6, 0), (f"{topic}-more", 0, None, 0), (f"{topic}-more", 2, None, 0)]
    assert json.loads(run("group", "lag", group, "--partitions", "--json")[1])[0]["committed"] == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["g", "--to-earliest"], "--topic"),
        (["--all-topics", "--to-earliest"], "--all-groups"),
        (["g", "--all-topics"], "expected exactly one of"),
        (["g", "--all-topics", "--to-earliest", "--to-latest"], "expected exactly one of"),
        (["g", "--all-topics", "--to-earliest", "--execute", "--dry-run"], "--dry-run"),
        (["g", "--all-topics", "--by-duration", "2 hours"], "invalid duration"),
        (["g", "--all-topics", "--to-datetime", "yesterday"], "'yesterday': invalid time"),
        (["g", "-t", "t:x", "--to-latest"], "TOPIC:0,1"),
    ],
)
def test_a_reset_that_is_not_clear_is_refused(run: Run, arguments: list[str], complaint: str) -> None:
    status, _, err = run("group", "reset-offsets", *arguments)
    assert status == 2
    assert complaint in err.replace("\n", " ")


def test_an_active_group_is_refused(run: Run, broker: Broker, topic: str) -> None:
    async def while_reading() -> None:
        async with Consumer(broker.bootstrap, group_id=f"up-{topic}", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            await consumer.getone()
            arguments = ["reset-offsets", f"up-{topic}", "--all-topics", "--to-earliest", "--execute"]
            status, _, err = await asyncio.to_thread(run, "group", *arguments)
            assert (status, "is inactive, but the current state is Stable." in err) == (1, True)
            status, out, err = await asyncio.to_thread(run, "group", "delete", f"up-{topic}", "nobody")
            assert (status, out) == (1, "")
            assert "NON_EMPTY_GROUP" in err
            assert "GROUP_ID_NOT_FOUND" in err
            status, out, _ = await asyncio.to_thread(run, "group", "describe", f"up-{topic}")
            assert "assignor range" in out
            assert f"{topic}-0,{topic}-1" in out
            status, out, _ = await asyncio.to_thread(run, "group", "remove-members", f"up-{topic}")
            assert (status, out.startswith("removed member barnabas-consumer-")) == (0, True)

    asyncio.run(while_reading())


def test_delete(run: Run, group: str, topic: str) -> None:
    assert run("group", "delete-offsets", group, "--topic", f"{topic}:0")[:2] == (0, f"deleted offset {topic}-0\n")
    assert committed(run, group) == {1: 6}
    assert run("group", "delete", group)[:2] == (0, f"deleted group {group}\n")
    assert run("group", "lag", group)[::2] == (1, f"barnabas: GROUP_ID_NOT_FOUND: Group {group} not found.\n")
    status, out, err = run("group", "delete", group)
    assert (status, out, err) == (1, "", f"barnabas: group {group}: GROUP_ID_NOT_FOUND\n")
    assert json.loads(run("group", "delete", group, "--json")[1]) == [{"group": group, "error": "GROUP_ID_NOT_FOUND"}]


def test_consume_as_a_member(run: Run, group: str, topic: str) -> None:
    status, out, _ = run("consume", topic, "-G", group, "-c", "3", "-f", "%p:%o\\n")
    assert (status, len(out.splitlines())) == (0, 3)
    status, rest, _ = run("consume", topic, "-G", group, "-e", "-f", "%p:%o\\n")
    everything = sorted((out + rest).split())
    assert everything == sorted([f"0:{o}" for o in range(4, 10)] + [f"1:{o}" for o in range(6, 10)])
    assert run("consume", topic, "-G", group, "-e")[:2] == (0, "")
    assert run("consume", topic, "-G", group, "-p", "1")[0] == 2


@pytest.mark.parametrize("is_whole", [True, False], ids=["laid out as version 0", "cut"])
def test_a_subscription_that_means_another_version_hides_no_assignment(
    run: Run, broker: Broker, topic: str, is_whole: bool
) -> None:
    """As faust's: it says version 4 and is laid out as version 0."""
    laid_out = encode_versioned(ConsumerProtocolSubscription(topics=[topic]), 0)[2:]

    def spoil(_: object, response: Any) -> Any:
        for member in response.groups[0].members:
            member.member_metadata = b"\0\4" + (laid_out if is_whole else laid_out[:4])
        return response

    async def describe() -> tuple[TopicPartition, ...]:
        async with Consumer(broker.bootstrap, group_id="odd") as consumer, Admin(broker.bootstrap) as admin:
            consumer.subscribe([topic])
            while not consumer.assignment:
                await consumer.getmany(timeout_ms=50)
            described = (await admin.describe_groups(["odd"]))["odd"]
        assert isinstance(described, GroupDescription)
        (member,) = described.members
        assert member.topics == (frozenset([topic]) if is_whole else frozenset())
        return member.assigned

    with broker.faults.change("DescribeGroups", spoil) as fault:
        assert asyncio.run(describe()) == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert fault.requests
