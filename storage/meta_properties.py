"""`meta.properties`: which broker of which cluster a log directory belongs to.

A Java properties file. Version 0, of a broker in a cluster around ZooKeeper: `version=0`, `broker.id`, `cluster.id`,
both optional. Version 1, of a KRaft broker and of a Barnabas that is alone: `version=1`, `node.id`, `cluster.id`, and
since Kafka 3.7 `directory.id`. Written once by temp file and rename; a file that is there is read and never rewritten,
so that the broker that left it can take the directory back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from ..common.properties import PropertiesError, parse_properties
from ..common.uuid_text import uuid_from_text
from .checkpoint_file import MAX_INT32, parse_number
from .errors import CorruptCheckpointError, StorageError
from .filesystem import FileSystem

META_PROPERTIES = "meta.properties"
RESERVED_DIRECTORY_IDS = 100
"""Kafka's DirectoryId: numbers below this one never identify a directory."""


class InconsistentMetaPropertiesError(StorageError):
    """A log directory belongs to another broker or another cluster. Serving it could mix two clusters' data."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a log directory; a field that the file does not contain is None."""

    version: int
    node_id: int | None
    cluster_id: str | None
    directory_id: str | None = None

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Read version 0 and 1. Raises `CorruptCheckpointError` for anything else."""
        try:
            properties = {key: value.strip() for key, value in parse_properties(data.decode("iso-8859-1")).items()}
        except PropertiesError as error:
            raise CorruptCheckpointError(f"{path}: {error}") from error
        version = properties.get("version")
        if version not in ("0", "1"):
            raise CorruptCheckpointError(f"{path}: unknown version {version!r}")
        node = properties.get("node.id" if version == "1" else "broker.id")
        return cls(
            version=int(version),
            node_id=None if node is None else _node_id(node, path),
            cluster_id=properties.get("cluster.id"),
            directory_id=properties.get("directory.id"),
        )

    def to_bytes(self) -> bytes:
        """Return the content of the file, with sorted keys as Kafka writes them."""
        values = {
            "version": str(self.version),
            "node.id" if self.version == 1 else "broker.id": None if self.node_id is None else str(self.node_id),
            "cluster.id": self.cluster_id,
            "directory.id": self.directory_id,
        }
        lines = [f"{key}={value}\n" for key, value in sorted(values.items()) if value is not None]
        return "".join(lines).encode("ascii")


def _node_id(text: str, path: str) -> int:
    """Raises `CorruptCheckpointError`."""
    try:
        return -1 if text == "-1" else parse_number(text, MAX_INT32)
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: broker id {text!r} is not a number from 0 to {MAX_INT32}") from error


def parse_directory_id(text: str, path: str) -> UUID:
    """Return the id in `directory.id` of the file at `path`. Raises `InconsistentMetaPropertiesError`."""
    try:
        directory_id = uuid_from_text(text)
    except ValueError:
        directory_id = UUID(int=0)
    if directory_id.int < RESERVED_DIRECTORY_IDS:
        raise InconsistentMetaPropertiesError(f"{path}: directory.id {text!r} is not the id of a directory")
    return directory_id


def read_meta_properties(fs: FileSystem, log_dir: str) -> MetaProperties | None:
    """Return the identity of a log directory; None while it has none. Raises `OSError`, `CorruptCheckpointError`."""
    path = f"{log_dir}/{META_PROPERTIES}"
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    return MetaProperties.parse(data, path)


def write_meta_properties(fs: FileSystem, log_dir: str, properties: MetaProperties) -> None:
    """Store the identity of a log directory, durably."""
    fs.write_atomic(f"{log_dir}/{META_PROPERTIES}", properties.to_bytes())


def common_identity(stored: Iterable[tuple[str, MetaProperties]]) -> tuple[int | None, str | None]:
    """Return the broker id and cluster id that all directories agree on, each None if no directory contains it.

    Raises `InconsistentMetaPropertiesError` if two disagree.
    """
    node_ids: dict[int, str] = {}
    cluster_ids: dict[str, str] = {}
    for log_dir, properties in stored:
        if properties.node_id is not None:
            node_ids.setdefault(properties.node_id, log_dir)
        if properties.cluster_id is not None:
            cluster_ids.setdefault(properties.cluster_id, log_dir)
    _agree("broker ids", node_ids)
    _agree("cluster ids", cluster_ids)
    return next(iter(node_ids), None), next(iter(cluster_ids), None)


def _agree(what: str, found: Mapping[int, str] | Mapping[str, str]) -> None:
    if len(found) > 1:
        places = ", ".join(f"{value} in {log_dir}" for value, log_dir in found.items())
        raise InconsistentMetaPropertiesError(f"the log directories contain different {what}: {places}")
