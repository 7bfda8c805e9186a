"""What values a configuration key takes; the text of each rule is the one Kafka's tools print."""

from __future__ import annotations

import math
import re
from typing import Protocol

_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class ConfigError(ValueError):
    """A value that a key does not take. The message names the key, the value and what is allowed."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {_shown(value)} for configuration {name}: {reason}")
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
    """Java's Double.toString: plain between 1e-3 and 1e7, otherwise one digit before the point and an `E`."""
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
    """A rule for values; `str()` says the rule."""

    def check(self, name: str, value: object) -> None:
        """Raise ConfigError if `value` breaks the rule. None is a value: most rules let it pass."""
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
    """A range, or one value outside it with a meaning of its own (gzip's default level -1)."""

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
    """Strings, or lists of strings, out of a closed set."""

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
    """List of servers of a KRaft quorum. The key is ignored, so any list will do; the rule is only printed."""

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
    """Where a share group starts: an end of the log, or an ISO 8601 duration before now."""

    _DURATION = re.compile(r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?")

    def check(self, name: str, value: object) -> None:
        if value not in ("latest", "earliest") and not self._DURATION.fullmatch(str(value)):
            raise ConfigError(name, value, "Value must be latest, earliest or by_duration:PnDTnHnMn.nS")

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"
