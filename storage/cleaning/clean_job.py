"""One pass of the cleaner over one log, as values: the job, and the events of the pass.

All of these values can pass through a pipe as lines of JSON, because the pass runs in a process of its own.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self, TypeAlias

from ..log_config import LARGEST_RECORD
from ..transaction_index import AbortedTxn

NO_DATA_OFFSET = -1
HASHES = ("MD5", "SHA-1", "SHA-256", "SHA-384", "SHA-512")
"""Values of `hash_name`, besides `exact`."""


class SourceSegment(NamedTuple):
    """A segment that the pass reads: `size` bytes of batches."""

    base_offset: int
    size: int


class ActiveProducer(NamedTuple):
    """A producer with an entry in the log's producer state; Kafka's LastRecord. The cleaner retains its last batch.

    The batch may become empty. `last_data_offset` is `NO_DATA_OFFSET` if the state of the producer's epoch contains
    only a marker.
    """

    producer_id: int
    last_data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleanJob:
    """A pass over the log in `directory`; it changes nothing but files that end in `.cleaned`.

    Invariant: first_dirty_offset <= first_uncleanable_offset, and every segment is below the latter. If both are equal,
    the log is clean, and the pass removes only the tombstones and markers whose retention is over.
    """

    directory: str
    segments: tuple[SourceSegment, ...]
    """Every segment below `first_uncleanable_offset`, in order, never the active one."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Base offset of the first segment that does not change; the pass does not read this offset or higher ones."""
    now_ms: int
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    max_decompressed_message_bytes: int = LARGEST_RECORD
    """A larger record in a compressed batch fails the pass."""
    active_producers: tuple[ActiveProducer, ...] = ()
    aborted_transactions: tuple[AbortedTxn, ...] = ()
    """Every aborted transaction with data below `first_uncleanable_offset`, including one with a marker above it."""
    hash_name: str = "MD5"
    """The hash that represents a key in the offset map: one of `HASHES`, or `exact`."""
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    """The share of the offset map's slots after which the pass stops reading further dirty segments."""
    io_buffer_bytes: int = 524_288
    """Bytes of one read; more where a batch is larger."""

    def to_json(self) -> str:
        """Return the job as one line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Return the job that `to_json` wrote."""
        fields = json.loads(line)
        return cls(
            **fields
            | {
                "segments": tuple(SourceSegment(*item) for item in fields["segments"]),
                "active_producers": tuple(ActiveProducer(*item) for item in fields["active_producers"]),
                "aborted_transactions": tuple(AbortedTxn(*item) for item in fields["aborted_transactions"]),
            }
        )


@dataclass(slots=True)
class CleanerStats:
    """The counters of a pass: Kafka's CleanerStats without the clock, which belongs to the caller."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    """Records without a key, which have no place in a compacted log and were dropped."""
    map_size: int = 0
    """Keys in the offset map."""
    map_utilization: float = 0.0
    map_collision_rate: float = 0.0
    """Probes beyond the first, per lookup."""


class Progress(NamedTuple):
    """The progress of a phase (`map` or `clean`), in bytes read."""

    phase: str
    done: int
    total: int


class GroupCleaned(NamedTuple):
    """The segments `replaced` have a successor of `size` bytes on disk, whose files all end in `.cleaned`."""

    base_offset: int
    replaced: tuple[int, ...]
    replaced_size: int
    size: int


class PassFinished(NamedTuple):
    """The log is clean below `next_dirty_offset`, once every group has taken its place."""

    next_dirty_offset: int
    stats: CleanerStats


Event: TypeAlias = Progress | GroupCleaned | PassFinished


def event_to_json(event: Event) -> str:
    """Return the event as one line."""
    fields: dict[str, Any] = event._asdict()
    if isinstance(event, PassFinished):
        fields["stats"] = asdict(event.stats)
    return json.dumps({"event": type(event).__name__, **fields}, separators=(",", ":"))


def event_from_json(line: str) -> Event:
    """Return the event that `event_to_json` wrote. Raises ValueError for anything else."""
    fields = json.loads(line)
    name = fields.pop("event")
    if name == "Progress":
        return Progress(**fields)
    if name == "GroupCleaned":
        return GroupCleaned(**fields | {"replaced": tuple(fields["replaced"])})
    if name == "PassFinished":
        return PassFinished(fields["next_dirty_offset"], CleanerStats(**fields["stats"]))
    raise ValueError(f"no event of the cleaner: {name}")
