"""Definition of a configuration key: type, default, validator, importance, update mode and description."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from .validators import ConfigError, Validator, ValidList, java_double

ConfigValue = bool | int | float | str | tuple[str, ...] | None

SENSITIVE_MASK = "[hidden]"
NO_EFFECT = "Accepted for compatibility with configurations of Apache Kafka; it has no effect in Barnabas."

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_LIST_SEPARATOR = re.compile(r"\s*,\s*")


class ConfigType(IntEnum):
    """Type of a value; the numbers of DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """Importance of a key for operators."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """The time at which a broker key may change (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """A configuration key, as an entry of a table. `default` is typed; None is Kafka's null, "not set"."""

    name: str
    type: ConfigType
    default: ConfigValue
    validator: Validator | None = None
    importance: Importance
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    doc: str | None = None
    """Description for `docs/configuration.md` and DescribeConfigs; None: the key is accepted and has no effect."""

    @property
    def sensitive(self) -> bool:
        """Whether the value is hidden in responses and in the log."""
        return self.type is ConfigType.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        """Whether the value can change while the broker runs."""
        return self.update_mode is not UpdateMode.READ_ONLY

    @property
    def attribute(self) -> str:
        """Name of the attribute that holds the value: `log.segment.bytes` is `log_segment_bytes`."""
        return self.name.replace(".", "_")

    @property
    def documentation(self) -> str:
        """The description in DescribeConfigs v3+ (KIP-569)."""
        return NO_EFFECT if self.doc is None else self.doc

    def parse(self, raw: str | None) -> ConfigValue:
        """Parse and validate a value from a file or a request. A list loses its duplicates (KIP-1161).

        Raise ConfigError, whose message has the key, the value and the allowed values.
        """
        value = None if raw is None else parse_value(self.name, self.type, raw)
        if isinstance(self.validator, ValidList) and isinstance(value, tuple):
            value = tuple(dict.fromkeys(value))
        if self.validator is not None:
            self.validator.check(self.name, value)
        return value

    def duplicates(self, raw: str) -> list[str]:
        """Return the entries that a list has more than once, of which `parse` keeps the first."""
        if not isinstance(self.validator, ValidList):
            return []
        entries = parse_value(self.name, self.type, raw)
        assert isinstance(entries, tuple)
        return [entry for entry, count in Counter(entries).items() if count > 1]

    def format(self, value: ConfigValue) -> str | None:
        """Return the value as Kafka's tools print it, None for null, and the mask for a password."""
        return format_value(self.type, value)


def parse_value(name: str, kind: ConfigType, raw: str) -> ConfigValue:
    """Parse `raw` as Kafka's ConfigDef.parseType does."""
    text = raw.strip()
    if kind in _INTEGER_BITS:
        return _parse_integer(name, kind, raw)
    if kind is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ConfigError(name, raw, "Expected value to be either true or false")
        return lowered == "true"
    if kind is ConfigType.DOUBLE:
        if not _DECIMAL.fullmatch(text):
            raise ConfigError(name, raw, "Not a number of type DOUBLE")
        return float(text.rstrip("dDfF"))
    if kind is ConfigType.LIST:
        return tuple(_LIST_SEPARATOR.split(text)) if text else ()
    return text


def _parse_integer(name: str, kind: ConfigType, raw: str) -> int:
    text = raw.strip()
    if not _INTEGER.fullmatch(text):
        raise ConfigError(name, raw, f"Not a number of type {kind.name}")
    value = int(text)
    limit = 1 << (_INTEGER_BITS[kind] - 1)
    if not -limit <= value < limit:
        raise ConfigError(name, raw, f"Not a number of type {kind.name}")
    return value


def format_value(kind: ConfigType, value: ConfigValue) -> str | None:
    """Format `value` as Kafka's ConfigDef.convertToString does."""
    if value is None:
        return None
    if kind is ConfigType.PASSWORD:
        return SENSITIVE_MASK
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


class ConfigTable(Mapping[str, ConfigKey]):
    """The keys of one kind of resource by name, in alphabetical order."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        listed = sorted(keys, key=lambda key: key.name)
        self._keys = {key.name: key for key in listed}
        assert len(self._keys) == len(listed), "a key is defined twice"

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
