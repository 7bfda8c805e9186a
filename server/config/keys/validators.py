"""Validators of configuration values; each has the text that Kafka's tools print."""

from __future__ import annotations

import math
import re
from typing import Protocol

_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class ConfigError(ValueError):
    """An invalid value of a key. The message has the key, the value and the allowed values."""

    def __init__(self, name: str, value: object, reason: str, *, sentence: str | None = None) -> None:
        """Kafka reports some errors without the value: `sentence` is then the whole message."""
        super().__init__(sentence or f"Invalid value {_shown(value)} for configuration {name}: {reason}")
        self.name = name
        self.reason = reason


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value)


def java_double(value: float) -> str:
    """Format a number as Java's Double.toString: plain between 1e-3 and 1e7, otherwise with one digit and an `E`."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    scale = len(whole) - leading_zeros - 1 + int(exponent or 0)
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{scale}"


class Validator(Protocol):
    """A rule for values; `str()` returns its text."""

    def check(self, name: str, value: object) -> None:
        """Raise ConfigError if `value` is invalid. None is a value, which most rules accept."""
        ...


class Range:
    """Numbers between two bounds, both inclusive, or above one."""

    __slots__ = ("maximum", "minimum")

    def __init__(self, minimum: float, maximum: float | None = None) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def check(self, name: str, value: object) -> None:
        if value is None:
            raise ConfigError(name, value, "Value must be non-null")
        assert isinstance(value, int | float)
        if value < self.minimum:
            raise ConfigError(name, value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise ConfigError(name, value, f"Value must be no more than {self.maximum}")

    def __str__(self) -> str:
        return f"[{self.minimum},...]" if self.maximum is None else f"[{self.minimum},...,{self.maximum}]"


class RangeOr:
    """A range, or one special value outside of it (gzip's default level -1)."""

    __slots__ = ("maximum", "minimum", "special")

    def __init__(self, minimum: int, maximum: int, special: int) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.special = special

    def check(self, name: str, value: object) -> None:
        assert isinstance(value, int)
        if value != self.special and not self.minimum <= value <= self.maximum:
            allowed = f"between {self.minimum} and {self.maximum} or equal to {self.special}"
            raise ConfigError(name, value, f"Value must be {allowed}")

    def __str__(self) -> str:
        return f"[{self.minimum},...,{self.maximum}] or {self.special}"


class OneOf:
    """A string, or a list of strings, from a fixed set."""

    __slots__ = ("allowed", "ignore_case")

    def __init__(self, *allowed: str, ignore_case: bool = False) -> None:
        self.allowed = allowed
        self.ignore_case = ignore_case

    def check(self, name: str, value: object) -> None:
        entries: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
        for entry in entries:
            known = entry.upper() if self.ignore_case and isinstance(entry, str) else entry
            if known not in self.allowed:
                rule = "String must be one of (case insensitive)" if self.ignore_case else "String must be one of"
                raise ConfigError(name, entry, f"{rule}: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        choices = f"[{', '.join(self.allowed)}]"
        return f"(case insensitive) {choices}" if self.ignore_case else choices


class ValidList:
    """A list without duplicates and without empty entries (KIP-1161), of any strings or from a fixed set.

    `ConfigKey.parse` removes duplicates before it checks the rule.
    """

    __slots__ = ("allowed", "is_empty_allowed", "is_null_allowed")

    def __init__(self, *allowed: str, is_empty_allowed: bool = True, is_null_allowed: bool = False) -> None:
        self.allowed = allowed
        self.is_empty_allowed = is_empty_allowed
        self.is_null_allowed = is_null_allowed

    def check(self, name: str, value: object) -> None:
        if value is None:
            if not self.is_null_allowed:
                raise _list_error(name, "values must not be null.")
            return
        assert isinstance(value, tuple)
        if not value and not self.is_empty_allowed:
            choices = f"[{', '.join(self.allowed)}]" if self.allowed else "any non-empty value"
            raise _list_error(name, f"must not be empty. Valid values include: {choices}")
        assert len(set(value)) == len(value), name
        for entry in value:
            if not entry:
                raise _list_error(name, "values must not be empty.")
            if self.allowed and entry not in self.allowed:
                raise ConfigError(name, entry, f"String must be one of: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.allowed)}]" if self.allowed else ""


def _list_error(name: str, reason: str) -> ConfigError:
    return ConfigError(name, None, reason, sentence=f"Configuration '{name}' {reason}")


class NonNull:
    """Any string, but not null."""

    def check(self, name: str, value: object) -> None:
        if value is None:
            raise ConfigError(name, value, "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


class NonEmpty:
    """Null, or text with at least one character."""

    def check(self, name: str, value: object) -> None:
        if value == "":
            raise ConfigError(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class Voters:
    """List of servers of a KRaft quorum. The key is ignored, so any list is valid; the rule is printed only."""

    def check(self, name: str, value: object) -> None:
        if value is None:
            raise ConfigError(name, value, "non-empty list")

    def __str__(self) -> str:
        return "non-empty list"


class ThrottledReplicas:
    """Empty, `*`, or a list of `partition:broker` pairs."""

    def check(self, name: str, value: object) -> None:
        assert isinstance(value, tuple)
        if value == ("*",) or not any(value):
            return
        for entry in value:
            if not _THROTTLED_REPLICA.fullmatch(entry):
                rule = f"{name} must be the literal '*' or a list of replicas in the following format: {self}"
                raise ConfigError(name, value, rule)

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class MetadataVersion:
    """A Kafka release (`2.8`) or one of its internal versions (`2.8-IV1`)."""

    _RELEASE = re.compile(r"0\.[0-9]+(\.[0-9]+){1,2}|[1-9][0-9]*\.[0-9]+(\.[0-9]+)?")

    def check(self, name: str, value: object) -> None:
        release, _, internal = str(value).partition("-")
        if not self._RELEASE.fullmatch(release) or (internal and not re.fullmatch("IV[0-9]+", internal)):
            raise ConfigError(name, value, "Version must be a release such as 2.8, or 2.8-IV1")

    def __str__(self) -> str:
        return "a Kafka release, such as 2.8 or 2.8-IV1"


class OffsetReset:
    """The position at which a share group starts: an end of the log, or an ISO 8601 duration before now."""

    def check(self, name: str, value: object) -> None:
        if value in ("latest", "earliest"):
            return
        prefix, _, duration = str(value).partition(":")
        if prefix != "by_duration" or (parse_duration_ms(duration) or 0) < 0 or parse_duration_ms(duration) is None:
            allowed = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            raise ConfigError(name, value, f"Invalid value `{value}` for configuration {name}. {allowed}")

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_LONGEST_DURATION_TEXT = 200
_LONGEST_DURATION_SECONDS = 2**63 - 1


def parse_duration_ms(text: str) -> int | None:
    """Return an ISO 8601 duration in milliseconds, rounded down, as Java's Duration.parse; None if it is not one."""
    match = _DURATION.fullmatch(text) if len(text) <= _LONGEST_DURATION_TEXT else None
    if match is None or (match["time"] or "").upper() == "T":
        return None
    parts = [match[unit] for unit in ("days", "hours", "minutes", "seconds")]
    if not any(parts):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    whole = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    nanoseconds = int((match["fraction"] or "").ljust(9, "0"))
    total = whole * 10**9 + (-nanoseconds if (match["seconds"] or "").startswith("-") else nanoseconds)
    if match["sign"] == "-":
        total = -total
    return total // 10**6 if abs(total) <= _LONGEST_DURATION_SECONDS * 10**9 else None
