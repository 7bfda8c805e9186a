"""Kafka's versioned text checkpoints: a version, a count, then one line an entry, replaced as a whole."""

from collections.abc import Iterable, Mapping, Sequence

from ..protocol.topic_partition import TopicPartition
from .errors import CorruptCheckpointError
from .filesystem import FileSystem

VERSION = 0


def write_lines(fs: FileSystem, path: str, lines: Iterable[str]) -> None:
    """Replace the checkpoint at `path` durably; a crash leaves the old or the new one. Raises OSError."""
    fs.write_atomic(path, content_of(list(lines)))


def content_of(lines: Sequence[str]) -> bytes:
    """The bytes of a checkpoint of these entries."""
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def read_lines(fs: FileSystem, path: str) -> list[str]:
    """The entries of the checkpoint at `path`; none if there is no such file, or an empty one, as Kafka makes them.

    Raises `CorruptCheckpointError` if the version is unknown or the count is not that of the lines.
    """
    try:
        content = fs.read_bytes(path)
        if not content:
            return []
        lines = content.decode().split("\n")
        version, count = int(lines[0]), int(lines[1])
    except FileNotFoundError:
        return []
    except (ValueError, IndexError) as error:
        raise CorruptCheckpointError(f"{path}: no version and count in the first two lines") from error
    entries = [line for line in lines[2:] if line]
    if version != VERSION:
        raise CorruptCheckpointError(f"{path}: version {version} is not known")
    if len(entries) != count:
        raise CorruptCheckpointError(f"{path}: {len(entries)} entries where {count} were announced")
    return entries


class OffsetCheckpointFile:
    """`recovery-point-offset-checkpoint` and its like: `topic partition offset` a line. Kafka's OffsetCheckpointFile.

    One writer a file, as all writers share one temporary name.
    """

    __slots__ = ("_fs", "path")

    def __init__(self, path: str, fs: FileSystem) -> None:
        self.path = path
        self._fs = fs

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the content. Raises OSError."""
        lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        write_lines(self._fs, self.path, lines)

    def read(self) -> dict[TopicPartition, int]:
        """The content; empty if there is no file. Raises `CorruptCheckpointError`."""
        offsets = {}
        for line in read_lines(self._fs, self.path):
            try:
                topic, partition, offset = line.split()
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError as error:
                raise CorruptCheckpointError(f"{self.path}: no topic, partition and offset in {line!r}") from error
        return offsets
