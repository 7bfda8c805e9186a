"""Kafka's versioned text checkpoints: a version, a count, then one line an entry, replaced as a whole."""

import re
from collections.abc import Iterable, Mapping, Sequence

from ..protocol.topic_partition import TopicPartition
from .errors import CorruptCheckpointError
from .filesystem import FileSystem

VERSION = 0
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
_NUMBER = re.compile("[0-9]{1,19}", re.ASCII)


def parse_number(text: str, greatest: int) -> int:
    """Parse a number as brokers write it. Raises ValueError for other text, and for a number above `greatest`.

    Python's `int` also takes signs, blanks, underscores, digits of other scripts, and numbers of any size, which would
    fail where they are encoded for a client.
    """
    number = int(text) if _NUMBER.fullmatch(text) else -1
    if not 0 <= number <= greatest:
        raise ValueError(f"{text!r} is not a number from 0 to {greatest}")
    return number


def write_lines(fs: FileSystem, path: str, lines: Iterable[str]) -> None:
    """Replace the checkpoint at `path` durably; a crash leaves the old or the new one. Raises OSError."""
    fs.write_atomic(path, content_of(list(lines)))


def content_of(lines: Sequence[str]) -> bytes:
    """Return the bytes of a checkpoint of these entries."""
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def read_lines(fs: FileSystem, path: str) -> list[str]:
    """Return the entries of the checkpoint at `path`; none if there is no such file, or an empty one, as Kafka makes
    them.

    Raises `CorruptCheckpointError` if the version is unknown or the count is not that of the lines.
    """
    try:
        content = fs.read_bytes(path)
        if not content:
            return []
        lines = content.decode().split("\n")
        version, count = parse_number(lines[0], MAX_INT32), parse_number(lines[1], MAX_INT32)
    except FileNotFoundError:
        return []
    except (ValueError, IndexError) as error:
        raise CorruptCheckpointError(
            f"{path}: the first two lines are not a version and a number of entries"
        ) from error
    entries = [line for line in lines[2:] if line]
    if version != VERSION:
        raise CorruptCheckpointError(f"{path}: unknown version {version}")
    if len(entries) != count:
        raise CorruptCheckpointError(f"{path}: {count} entries expected, {len(entries)} found")
    return entries


class OffsetCheckpointFile:
    """`recovery-point-offset-checkpoint` and similar files: a `topic partition offset` line per partition.

    Kafka's OffsetCheckpointFile.


    Each file has a single writer, because all writers would share one temporary name.
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
        """Return the content; empty if there is no file. Raises `CorruptCheckpointError`."""
        offsets = {}
        for line in read_lines(self._fs, self.path):
            try:
                topic, partition, offset = line.split()
                key = TopicPartition(topic, parse_number(partition, MAX_INT32))
                offsets[key] = parse_number(offset, MAX_INT64)
            except ValueError as error:
                raise CorruptCheckpointError(f"{self.path}: no topic, partition and offset in {line!r}") from error
        return offsets
