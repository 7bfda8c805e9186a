"""One pass of the cleaner over one log as values: what is to be done, and what happens while it is done.

All of it can go through a pipe as lines of JSON, since the pass runs in a process of its own.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self, TypeAlias

from ..transaction_index import AbortedTxn

NO_DATA_OFFSET = -1
HASHES = ("MD5", "SHA-1", "SHA-256", "SHA-384", "SHA-512")
"""What `hash_name` may be, besides `exact`."""


class SourceSegment(NamedTuple):
    """A segment that the pass reads: all its batches, and nothing behind them."""

    base_offset: int
    size: int


class ActiveProducer(NamedTuple):
    """A producer that the log still knows; Kafka's LastRecord. Its last batch stays, if only as an empty one.

    `last_data_offset` is `NO_DATA_OFFSET` if nothing but a marker of its epoch is known of it.
    """

    producer_id: int
    last_data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleanJob:
    """A pass over the log in `directory`; it changes nothing but files that end in `.cleaned`.

    Invariant: first_dirty_offset <= first_uncleanable_offset, and every segment lies below the latter. Where both are
    the same the log is clean, and the pass removes what has been kept for long enough, if there is anything.
    """

    directory: str
    segments: tuple[SourceSegment, ...]
    """Every segment below `first_uncleanable_offset`, in order, never the active one."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Where the first segment begins that stays as it is; nothing at or above it is looked at."""
    now_ms: int
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    active_producers: tuple[ActiveProducer, ...] = ()
    aborted_transactions: tuple[AbortedTxn, ...] = ()
    """Every aborted transaction with data below `first_uncleanable_offset`, also if its marker lies above."""
    hash_name: str = "MD5"
    """What the offset map knows keys by: one of `HASHES`, or `exact`."""
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    """How full the offset map may become before the pass makes do with what it has seen."""
    io_buffer_bytes: int = 524_288
    """Bytes of one read; more where a batch is larger."""

    def to_json(self) -> str:
        """The job as one line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """The job that `to_json` wrote."""
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
    """What a pass did: Kafka's CleanerStats without the clock, which is the caller's."""

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
    """How far a phase (`map` or `clean`) is, in bytes read."""

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
    """The event as one line."""
    fields: dict[str, Any] = event._asdict()
    if isinstance(event, PassFinished):
        fields["stats"] = asdict(event.stats)
    return json.dumps({"event": type(event).__name__, **fields}, separators=(",", ":"))


def event_from_json(line: str) -> Event:
    """The event that `event_to_json` wrote. Raises ValueError for anything else."""
    fields = json.loads(line)
    name = fields.pop("event")
    if name == "Progress":
        return Progress(**fields)
    if name == "GroupCleaned":
        return GroupCleaned(**fields | {"replaced": tuple(fields["replaced"])})
    if name == "PassFinished":
        return PassFinished(fields["next_dirty_offset"], CleanerStats(**fields["stats"]))
    raise ValueError(f"no event of the cleaner: {name}")
