"""Which folders of a log directory are partitions of this cluster, or are to become some."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.adoption import strays
from barnabas.server.metadata.znodes import TopicRegistration
from barnabas.storage.found_logs import FoundFolder

KNOWN_ID, OTHER_ID, NO_ID = UUID(int=7), UUID(int=8), UUID(int=0)
TOPICS = {
    "t": TopicRegistration("t", KNOWN_ID, {0: (1,), 1: (1,)}),
    "ancient": TopicRegistration("ancient", NO_ID, {0: (1,)}),
}


def left_alone(*found: tuple[str, int, UUID | None]) -> set[str]:
    folders = {f"{name}-{index}": FoundFolder(TopicPartition(name, index), topic_id) for name, index, topic_id in found}
    return set(strays(folders, TOPICS))


@pytest.mark.parametrize(
    "folder",
    [
        ("backup", 20240101, None),
        ("backup", 20240101, OTHER_ID),
        ("backup", 2024, None),
        ("backup", 2**31 - 1, None),
        ("t", 20240101, KNOWN_ID),
        ("t", 300, None),
        ("t", 0, OTHER_ID),
        ("t", 2, OTHER_ID),
        ("copy-of-t", 0, KNOWN_ID),
        ("__cluster_metadata", 0, None),
        ("not legal", 0, None),
        ("x" * 250, 0, None),
    ],
)
def test_what_is_nobodys_partition_is_left_alone(folder: tuple[str, int, UUID | None]) -> None:
    assert left_alone(folder) == {f"{folder[0]}-{folder[1]}"}


@pytest.mark.parametrize(
    "folder",
    [
        ("t", 0, KNOWN_ID),
        ("t", 1, None),
        ("t", 2, KNOWN_ID),
        ("t", 299, KNOWN_ID),
        ("ancient", 0, OTHER_ID),
        ("new", 0, OTHER_ID),
        ("new", 99, None),
        ("__consumer_offsets", 49, None),
    ],
)
def test_partitions_are_known_or_may_be_adopted(folder: tuple[str, int, UUID | None]) -> None:
    assert left_alone(folder) == set()


def test_the_share_of_one_broker_of_a_large_topic_is_adopted_and_a_copy_beside_it_is_not() -> None:
    share = [("large", index, OTHER_ID) for index in range(13, 5000, 100)]
    assert left_alone(*share, ("large", 20240101, OTHER_ID), ("large", 6000, OTHER_ID)) == {
        "large-20240101",
        "large-6000",
    }


def test_of_two_unknown_names_with_one_id_only_one_is_a_topic() -> None:
    assert left_alone(("a", 0, OTHER_ID), ("b", 0, OTHER_ID)) == {"b-0"}
