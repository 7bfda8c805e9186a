"""Checksums of the transaction indexes, written at a clean stop, by which the next start detects lost entries."""

from collections.abc import Mapping
from zlib import crc32

from ..protocol.topic_partition import TopicPartition
from .checkpoint_file import MAX_INT32, MAX_INT64, parse_number, read_lines, write_lines
from .errors import CorruptCheckpointError
from .filesystem import FileSystem
from .transaction_index import IndexChecksum

FILE_NAME = "transaction-index-checkpoint"
_MAX_UINT32 = 2**32 - 1


class TransactionIndexCheckpoint:
    """`transaction-index-checkpoint` in a log directory: a line for each segment with aborted transactions.

    A segment without aborted transactions has no transaction index, so the index files alone do not show that one of
    them was deleted, and their entries have no checksum. Kafka has no such file, and ignores it.

    Layout: a checkpoint whose first entry is `crc modified`, the CRC-32 of the rest of the file and the time in ms at
    which `.kafka_cleanshutdown` was modified. Other entries: `topic partition baseOffset logSize entries crc`. The time
    is different once another broker has opened and closed the directory, which makes the file void. Written after
    `.kafka_cleanshutdown`, and deleted with it at a start: a crash in between leaves a directory without checksums.
    """

    __slots__ = ("_fs", "path")

    def __init__(self, directory: str, fs: FileSystem) -> None:
        self.path = f"{directory}/{FILE_NAME}"
        self._fs = fs

    def write(self, marker_modified_ms: int, checksums: Mapping[TopicPartition, Mapping[int, IndexChecksum]]) -> None:
        """Replace the file durably. Raises OSError."""
        lines = [str(marker_modified_ms)]
        for (topic, partition), segments in checksums.items():
            for base_offset, (log_size, entries, crc) in segments.items():
                lines.append(f"{topic} {partition} {base_offset} {log_size} {entries} {crc}")
        lines[0] = f"{_crc_of(lines)} {lines[0]}"
        write_lines(self._fs, self.path, lines)

    def read(self, marker_modified_ms: int) -> dict[TopicPartition, dict[int, IndexChecksum]]:
        """Return the checksums by base offset; none if the file is missing or belongs to another clean stop.

        Raises OSError, and `CorruptCheckpointError` for a damaged file.
        """
        lines = read_lines(self._fs, self.path)
        found: dict[TopicPartition, dict[int, IndexChecksum]] = {}
        if not lines:
            return found
        try:
            crc, modified_ms = lines[0].split()
            if parse_number(crc, _MAX_UINT32) != _crc_of([modified_ms, *lines[1:]]):
                raise CorruptCheckpointError(f"{self.path}: the checksum is wrong")
            if parse_number(modified_ms, MAX_INT64) != marker_modified_ms:
                return found
            for line in lines[1:]:
                topic, partition, *numbers = line.split()
                base_offset, log_size, entries, crc = numbers
                checksum = IndexChecksum(
                    parse_number(log_size, MAX_INT64), parse_number(entries, MAX_INT32), parse_number(crc, _MAX_UINT32)
                )
                key = TopicPartition(topic, parse_number(partition, MAX_INT32))
                found.setdefault(key, {})[parse_number(base_offset, MAX_INT64)] = checksum
        except ValueError as error:
            raise CorruptCheckpointError(f"{self.path}: {error}") from error
        return found


def _crc_of(lines: list[str]) -> int:
    return crc32("\n".join(lines).encode())
