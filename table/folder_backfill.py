"""Backfill from partition directories of Kafka or Barnabas, such as a copy of a broker's data or of remote storage."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from uuid import UUID

from ..arrow.folder_source import FolderSource
from ..arrow.offset_range import OffsetRange
from ..arrow.remote_path import AnyPath
from ..arrow.segment_files import PartitionFiles, find_folders
from ..protocol.schema import ZERO_UUID
from ..protocol.topic_partition import TopicPartition
from .topic_names import TopicNames

_METADATA = "partition.metadata"


class FolderBackfill:
    """The records of followed topics in partition directories, up to the ends at the time of construction.

    Raises FileNotFoundError.
    """

    def __init__(self, folder: str, names: TopicNames, *, is_committed: bool) -> None:
        folders = dict(find_folders(folder, frozenset(names.found)))
        self.source = FolderSource(folders, committed=is_committed)
        self._folders = folders
        self._ends: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        for tp, path in folders.items():
            files = PartitionFiles(tp, path)
            stable = files.last_stable_offset() if is_committed else None
            self._starts[tp] = files.first_offset
            # The follower reads the records of an open transaction from the topic, after the transaction has ended.
            self._ends[tp] = files.end_offset() if stable is None else min(stable, files.end_offset())

    def check_ids(self, topic_ids: Mapping[str, UUID]) -> None:
        """Compare the topic ids in the directories with the ids in the cluster. Raises ValueError."""
        for tp, path in self._folders.items():
            found_files: list[AnyPath] = list(path.glob(_METADATA))
            expected = topic_ids.get(tp.topic, ZERO_UUID)
            if expected == ZERO_UUID or not found_files:
                continue
            lines = found_files[0].read_bytes().decode(errors="replace").splitlines()
            text = dict(line.split(":", 1) for line in lines if ":" in line)
            encoded = text.get("topic_id", "").strip()
            found = UUID(bytes=base64.urlsafe_b64decode(encoded + "==")) if len(encoded) == 22 else ZERO_UUID
            if found not in (ZERO_UUID, expected):
                raise ValueError(f"{path}: the records are of another topic named {tp.topic!r}, with id {found}")

    def ranges(self, offsets: Mapping[TopicPartition, int], lose: Callable[[str], None]) -> list[OffsetRange]:
        """Return the records after these offsets. `lose` is called for a gap between them and the first record."""
        found = []
        for tp, end in self._ends.items():
            start = offsets.get(tp)
            if start is not None and start < self._starts[tp] and start < end:
                lose(f"{tp}: offsets {start} to {self._starts[tp] - 1} are not in the folder, which is read first")
            start = max(start or 0, self._starts[tp])
            if start < end:
                found.append(OffsetRange(tp, start, end))
        return found
