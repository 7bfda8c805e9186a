"""The options of the source: names, precedence and validation of Spark's Kafka connector, and additional ones. No
I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from ..arrow.client import ClientSettings
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from .offset_ranges import TaskSizes
from .offsets import Offsets, parse_assignment, parse_offsets

CLIENT_ID = "barnabas-spark"
_PREFIX = "kafka."
_REFUSED = {
    "auto.offset.reset": "set startingOffsets and failOnDataLoss instead",
    "key.deserializer": "keys are bytes; set keyFormat to decode them",
    "value.deserializer": "values are bytes; set valueFormat to decode them",
    "key.serializer": "keys are written unchanged",
    "value.serializer": "values are written unchanged",
    "enable.auto.commit": "offsets are stored in the checkpoint; see commitGroupId",
    "interceptor.classes": "interceptors are Java classes",
}
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STRATEGIES = ("subscribe", "subscribepattern", "assign")


_OPTIONS = [
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "kafkaConsumer.pollTimeoutMs",
    "maxWait",
    "commitGroupId",
    "pushdown",
    "includeHeaders",
    "keyFormat",
    "valueFormat",
    "avroSchema",
    "keyAvroSchema",
    "valueAvroSchema",
    "valueErrors",
    "schemaRegistry",
    "topic",
    "createTopic",
    "delivery",
    "stateTopic",
    "writeId",
    "writeBatch",
    "path",
    "topics",
    "compression",
    "segmentBytes",
    "splitBytes",
    "onCorrupt",
    "includeControl",
    "isolationLevel",
    "checkpointLocation",
    "queryName",
    "mode",
]
"""Options of source, sink and segment directories, and options of Spark with similar names."""
_KNOWN = {name.lower(): name for name in _OPTIONS}
_LIKENESS = 0.85
_LATEST_TIME = 2**63 - 1


class Bound(Enum):
    """Formats of one end of the read, by descending precedence."""

    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps by partition"
    OFFSETS = "offsets by partition"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class OffsetBound:
    """One end of a read: `timestamp` (ms) for all partitions, or an offset or timestamp for each."""

    kind: Bound
    timestamp: int = 0
    by_partition: Offsets | None = None


@dataclass(frozen=True)
class ReadSelection:
    """The partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> list[str]:
        """Return the topics, as far as they are named."""
        return list(self.topics) or sorted({tp.topic for tp in self.partitions})


@dataclass(frozen=True)
class RateLimits:
    """Limits of one micro-batch; None means unlimited."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000
    max_bytes: int | None = None


@dataclass(frozen=True)
class SourceOptions:
    """All options of a read."""

    client: ClientSettings
    subscription: ReadSelection
    starting: OffsetBound
    ending: OffsetBound
    strict_timestamps: bool
    fail_on_data_loss: bool
    task_sizes: TaskSizes
    limits: RateLimits
    poll_timeout_ms: int
    max_wait_ms: int
    commit_group_id: str | None


class OptionReader:
    """Typed access to Spark's options, whose names are case-insensitive. Raises ValueError for a misspelt name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        for name in options:
            near = get_close_matches(name.lower(), _KNOWN, n=1, cutoff=_LIKENESS)
            if near and near[0] != name.lower() and not name.lower().startswith(_PREFIX):
                raise ValueError(f"unknown option {name}; do you mean {_KNOWN[near[0]]}?")

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def require(self, name: str) -> str:
        """Return the option; ValueError if it is not set."""
        value = self.text(name)
        if not value:
            raise ValueError(f"option {name} must be set")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Parse `true` or `false`; ValueError for anything else."""
        value = (self.text(name) or str(default)).strip().lower()
        if value not in ("true", "false"):
            raise ValueError(f"{name}: invalid value {value!r}. Expected true or false")
        return value == "true"

    def choice(self, name: str, *choices: str) -> str:
        """Return one of the choices, the first by default; ValueError for anything else."""
        value = (self.text(name) or choices[0]).strip().lower()
        if value not in choices:
            raise ValueError(f"{name}: invalid value {value!r}. Expected one of {', '.join(choices)}")
        return value

    def positive(self, name: str) -> int | None:
        """Parse a whole number above zero; ValueError for anything else."""
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or int(value) == 0:
            raise ValueError(f"{name}: invalid value {value!r}. Expected a positive number")
        return int(value)

    def count(self, name: str) -> int:
        """Parse a whole number, 0 by default; ValueError for anything else."""
        value = self.text(name) or "0"
        if not value.strip().isdecimal():
            raise ValueError(f"{name}: invalid value {value!r}. Expected a number")
        return int(value)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Parse `15m`, `500ms`, or milliseconds; ValueError for anything else."""
        value = (self.text(name) or f"{default_ms}ms").strip().lower()
        digits = value.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = value[len(digits) :].strip() or "ms"
        unit = {"min": "m", "sec": "s"}.get(unit, unit)
        if not digits.strip().isdecimal() or unit not in _DURATION_MS:
            raise ValueError(f"{name}: invalid duration {value!r}. Expected a duration such as 500ms, 30s or 15m")
        return int(digits) * _DURATION_MS[unit]

    def client_settings(self) -> ClientSettings:
        """Return the `kafka.*` options. Raises ValueError for options that would break the source's guarantees."""
        properties = {n[len(_PREFIX) :]: v for n, v in self._options.items() if n.startswith(_PREFIX)}
        for name, advice in _REFUSED.items():
            if name in properties:
                raise ValueError(f"option {_PREFIX}{name} is not supported: {advice}")
        return ClientSettings(self.require("kafka.bootstrap.servers"), properties, CLIENT_ID)


def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse and validate all options. Raises ValueError with the option's name."""
    read = OptionReader(options)
    limits = RateLimits(
        read.positive("maxOffsetsPerTrigger"),
        read.positive("minOffsetsPerTrigger"),
        read.duration_ms("maxTriggerDelay", 15 * 60_000),
        read.positive("maxBytesPerTrigger"),
    )
    if limits.min_offsets and limits.max_offsets and limits.min_offsets > limits.max_offsets:
        raise ValueError("minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    parsed = SourceOptions(
        client=read.client_settings(),
        subscription=_subscription(read),
        starting=_bound(read, "starting", Bound.LATEST if streaming else Bound.EARLIEST),
        ending=_bound(read, "ending", Bound.LATEST),
        strict_timestamps=read.choice("startingOffsetsByTimestampStrategy", "error", "latest") == "error",
        fail_on_data_loss=read.flag("failOnDataLoss", default=True),
        task_sizes=TaskSizes(read.positive("minPartitions"), read.positive("maxRecordsPerPartition")),
        limits=limits,
        poll_timeout_ms=read.positive("kafkaConsumer.pollTimeoutMs") or 120_000,
        max_wait_ms=read.duration_ms("maxWait", 250),
        commit_group_id=read.text("commitGroupId"),
    )
    _check_bounds(parsed, read, streaming=streaming)
    return parsed


def _subscription(read: OptionReader) -> ReadSelection:
    given = [name for name in _STRATEGIES if read.text(name)]
    if len(given) != 1:
        raise ValueError("exactly one of subscribe, subscribePattern and assign must be set")
    text = read.require(given[0])
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise ValueError("subscribe: no topics")
        return ReadSelection(topics=topics)
    if given[0] == "subscribepattern":
        return ReadSelection(pattern=text.strip())
    return ReadSelection(partitions=parse_assignment(text))


def _bound(read: OptionReader, end: str, default: Bound) -> OffsetBound:
    timestamp = read.text(f"{end}Timestamp")
    if timestamp is not None:
        if not timestamp.strip().isdecimal():
            raise ValueError(f"{end}Timestamp: invalid value {timestamp!r}. Expected a time in milliseconds")
        if int(timestamp) > _LATEST_TIME:
            raise ValueError(f"{end}Timestamp: {timestamp} is more than 2^63 - 1 milliseconds")
        return OffsetBound(Bound.TIMESTAMP, timestamp=int(timestamp))
    option = f"{end}OffsetsByTimestamp"
    text = read.text(option)
    if text is not None:
        return OffsetBound(Bound.TIMESTAMPS, by_partition=parse_offsets(text, option))
    option = f"{end}Offsets"
    text = (read.text(option) or default.value).strip()
    if text.lower() in (Bound.EARLIEST.value, Bound.LATEST.value):
        return OffsetBound(Bound(text.lower()))
    return OffsetBound(Bound.OFFSETS, by_partition=parse_offsets(text, option))


def _check_bounds(options: SourceOptions, read: OptionReader, *, streaming: bool) -> None:
    if streaming:
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if read.text(name) is not None:
                raise ValueError(f"{name} is not valid in a streaming query")
        return
    for bound, name, refused, place in (
        (options.starting, "startingOffsets", Bound.LATEST, LATEST),
        (options.ending, "endingOffsets", Bound.EARLIEST, EARLIEST),
    ):
        by_partition = bound.by_partition or {} if bound.kind is Bound.OFFSETS else {}
        if bound.kind is refused or place in by_partition.values():
            raise ValueError(f"{name} cannot be {refused.value} in a batch query")
