"""A comparison of the folders of a broker's replicas with the metadata: no missing and no remaining folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from barnabas.common.uuid_text import uuid_from_text
from barnabas.simulation.disk import SimDisk
from barnabas.simulation.kraft.metadata_state import UNASSIGNED, MetadataState, PartitionKey

FOLDER = re.compile(r"(.+)-(\d+)(?:\.([0-9a-f]{32})-(stray|delete|future))?")
METADATA = "__cluster_metadata"


class Folder(NamedTuple):
    """The folder of a replica."""

    path: str
    key: PartitionKey
    kind: str
    """`stray`, `delete`, `future`, or empty for a normal folder."""


def folders_of(disk: SimDisk, log_dirs: list[str]) -> Iterator[Folder]:
    """Yield the folders of replicas that have a topic id."""
    for log_dir in log_dirs:
        if not disk.is_dir(log_dir):
            continue
        for name in disk.list_dir(log_dir):
            path = f"{log_dir}/{name}"
            found = FOLDER.fullmatch(name)
            if found is None or found[1] == METADATA or not disk.is_dir(path):
                continue
            topic_id = topic_id_of(disk, path)
            if topic_id is not None:
                yield Folder(path, (topic_id, int(found[2])), found[4] or "")


def topic_id_of(disk: SimDisk, path: str) -> UUID | None:
    """Return the topic id in `partition.metadata`, or None if the file is missing or incomplete."""
    file = f"{path}/partition.metadata"
    if not disk.exists(file):
        return None
    found = re.search(rb"topic_id: (\S+)", disk.read_bytes(file))
    return None if found is None else uuid_from_text(found[1].decode())


def misplaced_folders(
    folders: list[Folder], broker_id: int, state: MetadataState, *, may_be_deleted_later: bool
) -> Iterator[str]:
    """Yield the folders without a replica in the metadata, and the replicas without a folder."""
    permitted = ("stray", "delete") if may_be_deleted_later else ("stray",)
    local = {key for key, one in state.partitions.items() if broker_id in one.replicas}
    present = {folder.key for folder in folders if not folder.kind}
    for folder in folders:
        if folder.kind not in permitted and folder.key not in local:
            yield f"{folder.path} of topic id {folder.key[0]} remains"
    for key in local - present:
        yield f"no folder of {state.topics[key[0]]}-{key[1]}"


def unassigned_directories(
    folders: list[Folder], broker_id: int, state: MetadataState, directories: dict[str, UUID]
) -> Iterator[str]:
    """Yield the replicas whose directory in the metadata differs from their actual directory."""
    for folder in folders:
        one = state.partitions.get(folder.key)
        if folder.kind or one is None or broker_id not in one.replicas:
            continue
        wanted = directories[folder.path.rpartition("/")[0]]
        if one.directory(broker_id) != wanted:
            stated = "unassigned" if one.directory(broker_id) == UNASSIGNED else one.directory(broker_id)
            yield f"{folder.path} is in directory {wanted}, the metadata has {stated}"
