"""Topic-level settings as the log reads them: typed, with units in their names, under Kafka's keys in snake case."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ..protocol.errors import ErrorCode, KafkaError

NEVER = 2**63 - 1
"""Kafka's value for an interval or limit that does not apply."""

_INT_MAX = 2**31 - 1


def _boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError("must be true or false")
    return value == "true"


def _integer(low: int, high: int = NEVER) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text.strip())
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def _ratio(text: str) -> float:
    value = float(text.strip())
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be between 0 and 1")
    return value


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        value = text.strip()
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return parse


LARGEST_RECORD = 2_147_483_639
"""Default and maximum of `max.decompressed.message.bytes`: the size of Java's largest array."""


def _cleanup_policy(text: str) -> str:
    """None at all is a policy as well: nothing is ever cleaned."""
    policies = [part.strip() for part in text.split(",") if part.strip()]
    if not set(policies) <= {"compact", "delete"}:
        raise ValueError("must be a comma separated list of compact and delete")
    return ",".join(policies)


def magic_of(message_format_version: str) -> int:
    """0 before Kafka 0.10, 1 before 0.11, else 2."""
    parts = message_format_version.partition("-")[0].split(".")
    version = tuple(map(int, parts[:2]))
    if version >= (0, 11):
        return 2
    return 1 if version >= (0, 10) else 0


def _format_version(text: str) -> str:
    magic_of(text)
    return text.strip()


def _setting(default: Any, parse: Callable[[str], Any]) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic's logs. Immutable: a change of configuration is a new object given to the log.

    Defaults are Kafka's. The last six restate others in the form that the append path needs.
    """

    cleanup_policy: str = _setting("delete", _cleanup_policy)
    compression_type: str = _setting("producer", _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"))
    compression_gzip_level: int = _setting(-1, _integer(-1, 9))
    compression_lz4_level: int = _setting(9, _integer(1, 17))
    compression_zstd_level: int = _setting(3, _integer(-131072, 22))
    delete_retention_ms: int = _setting(86_400_000, _integer(0))
    file_delete_delay_ms: int = _setting(60_000, _integer(0))
    flush_messages: int = _setting(NEVER, _integer(1))
    flush_ms: int = _setting(NEVER, _integer(0))
    follower_replication_throttled_replicas: str = _setting("", str)
    index_interval_bytes: int = _setting(4096, _integer(0, _INT_MAX))
    internal_segment_bytes: int | None = _setting(None, _integer(100, _INT_MAX))
    leader_replication_throttled_replicas: str = _setting("", str)
    local_retention_bytes: int = _setting(-2, _integer(-2))
    local_retention_ms: int = _setting(-2, _integer(-2))
    max_compaction_lag_ms: int = _setting(NEVER, _integer(1))
    max_decompressed_message_bytes: int = _setting(LARGEST_RECORD, _integer(1, LARGEST_RECORD))
    max_message_bytes: int = _setting(1_048_588, _integer(0, _INT_MAX))
    message_downconversion_enable: bool = _setting(True, _boolean)
    message_format_version: str = _setting("3.0-IV1", _format_version)
    message_timestamp_after_max_ms: int = _setting(NEVER, _integer(0))
    message_timestamp_before_max_ms: int = _setting(NEVER, _integer(0))
    message_timestamp_type: str = _setting("CreateTime", _one_of("CreateTime", "LogAppendTime"))
    min_cleanable_dirty_ratio: float = _setting(0.5, _ratio)
    min_compaction_lag_ms: int = _setting(0, _integer(0))
    min_insync_replicas: int = _setting(1, _integer(1, _INT_MAX))
    preallocate: bool = _setting(False, _boolean)
    remote_storage_enable: bool = _setting(False, _boolean)
    retention_bytes: int = _setting(-1, _integer(-1))
    retention_ms: int = _setting(604_800_000, _integer(-1))
    segment_bytes: int = _setting(1_073_741_824, _integer(14, _INT_MAX))
    segment_index_bytes: int = _setting(10_485_760, _integer(4, _INT_MAX))
    segment_jitter_ms: int = _setting(0, _integer(0))
    segment_ms: int = _setting(604_800_000, _integer(1))
    unclean_leader_election_enable: bool = _setting(False, _boolean)
    producer_id_expiration_ms: int = 86_400_000
    """The broker's, and the same for all topics."""

    compact: bool = field(init=False, default=False)
    delete: bool = field(init=False, default=True)
    max_segment_ms: int = field(init=False, default=604_800_000)
    """The age at which a segment is rolled, at most `max.compaction.lag.ms`: the active segment is not compacted."""
    message_magic: int = field(init=False, default=2)
    """The record format of `message_format_version`."""
    stores_as_sent: bool = field(init=False, default=True)
    """Whether uncompressed batches keep their bytes: no other codec, no timestamps of the broker's."""
    segment_size: int = field(init=False, default=1_073_741_824)
    """The size at which a segment is rolled: `internal_segment_bytes`, which is for tests, or `segment_bytes`."""

    def __post_init__(self) -> None:
        policies = self.cleanup_policy.split(",")
        object.__setattr__(self, "compact", "compact" in policies)
        object.__setattr__(self, "delete", "delete" in policies)
        lag_ms = self.max_compaction_lag_ms if self.compact else NEVER
        object.__setattr__(self, "max_segment_ms", min(self.segment_ms, lag_ms))
        object.__setattr__(self, "message_magic", magic_of(self.message_format_version))
        internal = self.internal_segment_bytes
        object.__setattr__(self, "segment_size", self.segment_bytes if internal is None else internal)
        keeps_codec = self.compression_type in ("producer", "uncompressed")
        object.__setattr__(self, "stores_as_sent", keeps_codec and self.message_timestamp_type == "CreateTime")

    @classmethod
    def from_props(cls, props: Mapping[str, str], defaults: "LogConfig | None" = None) -> Self:
        """Return the settings of `props` (Kafka's dotted keys) over `defaults`. Keys of other components are ignored.

        Raises `KafkaError(INVALID_CONFIG)` for an invalid value.
        """
        base = defaults if defaults is not None else cls()
        changes = {}
        for setting in fields(cls):
            parse = setting.metadata.get("parse")
            text = props.get(setting.name.replace("_", ".")) if parse is not None else None
            if parse is None or text is None:
                continue
            try:
                changes[setting.name] = parse(text)
            except ValueError as error:
                key = setting.name.replace("_", ".")
                message = f"Invalid value {text} for configuration {key}: {error}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None
        return cls(**{name: changes.get(name, getattr(base, name)) for name in _SETTING_NAMES})

    @classmethod
    def keys(cls) -> list[str]:
        """Return every topic-level key, dotted as Kafka writes it."""
        return [setting.name.replace("_", ".") for setting in fields(cls) if "parse" in setting.metadata]


_SETTING_NAMES = tuple(setting.name for setting in fields(LogConfig) if setting.init)
