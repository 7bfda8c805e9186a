"""The names of partition folders: `<topic>-<partition>`, with a suffix while a folder is deleted or moved."""

import re
from dataclasses import dataclass

from ..protocol.topic_partition import TopicPartition

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
MAX_NAME_LENGTH = 255

KRAFT_NAMES = frozenset({"__cluster_metadata-0", "remote-log-index-cache"})
"""Folders that a KRaft broker keeps next to its partitions; clients cannot request them as partitions."""

_NUMBER = "0|[1-9][0-9]{0,9}"
_MARKED = re.compile(
    rf"(?P<topic>\S+)-(?P<partition>{_NUMBER})\.(?P<unique>[0-9a-f]{{32}})(?P<suffix>-delete|-future|-stray)"
)
_PLAIN = re.compile(rf"(?P<topic>\S+)-(?P<partition>{_NUMBER})")
_MAX_PARTITION = 2**31 - 1


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
    """Parse a folder name; None if it does not name a partition. The last `-` separates topic and partition.

    The topic of a `-delete` or `-stray` folder may be cut short, as the whole name has at most 255 characters.
    """
    if name in KRAFT_NAMES:
        return None
    match = _MARKED.fullmatch(name) or _PLAIN.fullmatch(name)
    if match is None or int(match["partition"]) > _MAX_PARTITION:
        return None
    suffix = match["suffix"] if match.re is _MARKED else ""
    return PartitionDir(name, TopicPartition(match["topic"], int(match["partition"])), suffix)


def marked_dir_name(topic_partition: TopicPartition, unique_id: str, suffix: str) -> str:
    """Return the name of a folder on its way out: `<topic>-<partition>.<32 hex><suffix>`, the topic cut so that it
    fits.
    """
    ending = f"-{topic_partition.partition}.{unique_id}{suffix}"
    return topic_partition.topic[: MAX_NAME_LENGTH - len(ending)] + ending
