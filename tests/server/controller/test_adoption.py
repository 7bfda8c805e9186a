"""Which folders of a log directory are partitions of this cluster, or are to become some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from tests.server.control_plane import ControlPlane

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.adoption import FoundReplica, strays
from barnabas.server.metadata.znodes import TopicRegistration
from barnabas.storage.found_logs import FoundFolder

KNOWN_ID, OTHER_ID, NO_ID = UUID(int=7), UUID(int=8), UUID(int=0)
TOPICS = {
    "t": TopicRegistration("t", KNOWN_ID, {0: (1,), 1: (1,)}),
    "ancient": TopicRegistration("ancient", NO_ID, {0: (1,)}),
}


Found = tuple[str, int, UUID | None]


def left_alone(
    *found: Found, topics: Mapping[str, TopicRegistration] = TOPICS, unnamed: Sequence[Found] = ()
) -> set[str]:
    """Of folders that a checkpoint file names, and of some that none names."""
    folders = {
        f"{name}-{index}": FoundFolder(TopicPartition(name, index), topic_id, is_named=group is found)
        for group in (found, unnamed)
        for name, index, topic_id in group
    }
    return set(strays(folders, topics))


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


@pytest.mark.parametrize(
    "folder",
    [
        ("backup", 7, None),
        ("backup", 7, OTHER_ID),
        ("backup", 0, None),
        ("backup", 0, OTHER_ID),
        ("t", 2, None),
        ("t", 2, KNOWN_ID),
        ("t", 2, OTHER_ID),
    ],
)
def test_beside_known_topics_what_no_checkpoint_names_is_left_alone(folder: Found) -> None:
    assert left_alone(("t", 0, KNOWN_ID), unnamed=[folder]) == {f"{folder[0]}-{folder[1]}"}
    assert left_alone(("t", 0, KNOWN_ID), topics={}, unnamed=[("t", 1, KNOWN_ID)]) == set()


def test_partitions_of_known_topics_need_no_checkpoint() -> None:
    assert left_alone(unnamed=[("t", 0, KNOWN_ID), ("t", 1, None), ("ancient", 0, OTHER_ID)]) == set()


@pytest.mark.parametrize("topic_id", [None, OTHER_ID])
def test_what_a_checkpoint_names_is_adopted_without_metadata_or_lower_partitions(topic_id: UUID | None) -> None:
    assert left_alone(("share", 7, topic_id), topics={}) == set()
    assert left_alone(("share", 7, topic_id)) == set()


def test_of_a_directory_brought_along_whole_topics_that_kafka_had_just_made_are_adopted() -> None:
    just_made = [("new", 0, OTHER_ID), ("new", 1, OTHER_ID)]
    assert left_alone(("t", 0, KNOWN_ID), topics={}, unnamed=just_made) == set()
    assert left_alone(("new", 0, OTHER_ID), topics={}, unnamed=[("new", 1, OTHER_ID)]) == set()


@pytest.mark.parametrize(
    "copy",
    [
        ("backup", 7, None),
        ("backup", 7, OTHER_ID),
        ("backup", 0, None),
        ("backup", 0, KNOWN_ID),
        ("t", 1, None),
        ("t", 1, OTHER_ID),
        ("t", 2, KNOWN_ID),
    ],
)
def test_of_a_directory_brought_along_whole_copies_are_left_alone(copy: Found) -> None:
    assert left_alone(("t", 0, KNOWN_ID), topics={}, unnamed=[copy]) == {f"{copy[0]}-{copy[1]}"}


def test_of_copies_without_a_first_one_none_is_adopted() -> None:
    copies = [("backup", 0, None), ("backup", 1, OTHER_ID), ("backup", 2, OTHER_ID)]
    assert left_alone(("t", 0, KNOWN_ID), topics={}, unnamed=copies) == {"backup-0", "backup-1", "backup-2"}


def test_where_no_broker_has_been_logs_that_others_wrote_are_adopted_without_ids() -> None:
    assert left_alone(topics={}, unnamed=[("t", 0, None), ("t", 1, None), ("u", 0, OTHER_ID)]) == set()
    assert left_alone(topics={}, unnamed=[("t", 0, None), ("t", 2, None), ("backup", 7, None)]) == {"t-2", "backup-7"}
    assert left_alone(topics={}, unnamed=[("t", 0, None), ("t", 1, OTHER_ID)]) == {"t-1"}
    assert left_alone(unnamed=[("new", 0, None)]) == {"new-0"}


async def test_records_of_topics_whose_settings_nobody_knows_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"t{number:02}" for number in range(12)]
    found = {TopicPartition(name, 0): FoundReplica() for name in names}
    found[TopicPartition("__consumer_offsets", 0)] = FoundReplica(UUID(int=9))
    plane = await ControlPlane({"log.retention.bytes": "7", "log.cleanup.policy": "compact"}).start(found)
    (told,) = (
        record.getMessage() for record in caplog.records if "original settings are not adopted" in record.getMessage()
    )
    assert "adopting 12 topics found in the log directories (t00, " in told
    assert "t09, …) with cleanup.policy=delete, retention.bytes=-1, retention.ms=-1" in told
    for again in (False, True):
        config = (await plane.restarted() if again else plane).dynamic_config
        for name in names:
            kept = config.topic_log_config(name)
            assert (kept.cleanup_policy, kept.retention_ms, kept.retention_bytes) == ("delete", -1, -1)
        assert config.topic_log_config("__consumer_offsets").cleanup_policy == "compact"
