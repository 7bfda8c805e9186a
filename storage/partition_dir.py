"""The names of partition folders: `<topic>-<partition>`, and what a folder is called that is leaving or moving."""

import re
from dataclasses import dataclass

from ..protocol.topic_partition import TopicPartition

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
MAX_NAME_LENGTH = 255

KRAFT_NAMES = frozenset({"__cluster_metadata-0", "remote-log-index-cache"})
"""Folders that a KRaft broker keeps beside its partitions; they hold no partition that clients may ask for."""

_MARKED = re.compile(r"(?P<topic>\S+)-(?P<partition>\d+)\.(?P<unique>\S+)(?P<suffix>-delete|-future|-stray)")
_PLAIN = re.compile(r"(?P<topic>\S+)-(?P<partition>\d+)")


@dataclass(frozen=True, slots=True)
class PartitionDir:
    """A folder of a log directory: whose it is, and its suffix (empty for a log in service)."""

    name: str
    topic_partition: TopicPartition
    suffix: str = ""

    @property
    def is_deleted(self) -> bool:
        """Renamed by a topic deletion that has not finished."""
        return self.suffix == DELETE_SUFFIX


def parse_partition_dir(name: str) -> PartitionDir | None:
    """What a folder name stands for; None if it is no partition's. The last `-` separates topic and partition.

    The topic of a `-delete` or `-stray` folder may be cut short, as the whole name has at most 255 characters.
    """
    if name in KRAFT_NAMES:
        return None
    match = _MARKED.fullmatch(name)
    if match is not None:
        return PartitionDir(name, TopicPartition(match["topic"], int(match["partition"])), match["suffix"])
    match = _PLAIN.fullmatch(name)
    if match is None:
        return None
    return PartitionDir(name, TopicPartition(match["topic"], int(match["partition"])))


def marked_dir_name(topic_partition: TopicPartition, unique_id: str, suffix: str) -> str:
    """The name of a folder on its way out: `<topic>-<partition>.<32 hex><suffix>`, the topic cut so that it fits."""
    ending = f"-{topic_partition.partition}.{unique_id}{suffix}"
    return topic_partition.topic[: MAX_NAME_LENGTH - len(ending)] + ending
