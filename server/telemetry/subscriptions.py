"""Which client is to tell what, and how often: the subscriptions of operators (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from ...protocol.config_resources import ConfigResourceType
from ...protocol.room_logger import room_logger
from ..config.keys.catalogue import CLIENT_METRICS_KEYS
from ..patterns.java_regex import is_read_alike
from ..patterns.linear_pattern import LinearPattern
from ..patterns.regex_syntax import RegexSyntaxError

if TYPE_CHECKING:
    from ..config.dynamic_config import DynamicConfig

logger = room_logger("telemetry")

ALL_METRICS = "*"
_INTERVAL_MS = cast("int", CLIENT_METRICS_KEYS["interval.ms"].default)


class Wish(NamedTuple):
    """What one client is asked for: names' beginnings, or `ALL_METRICS` alone, and at what interval."""

    metrics: tuple[str, ...]
    interval_ms: int


class TelemetrySubscription(NamedTuple):
    """One that an operator has made. Who has all that `match` asks for is meant, everybody if it asks for nothing."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, str], ...]
    """Selectors and regular expressions."""

    def means(self, attributes: Mapping[str, str]) -> bool:
        """Whether a client with these attributes, by selector, is one of those meant.

        Expressions are read anew each time, so that whatever clients call themselves uses up no other's work.
        """
        try:
            return all(LinearPattern(pattern).matches(attributes[selector]) for selector, pattern in self.match)
        except RegexSyntaxError:
            return False


class Subscriptions:
    """All of them, made anew when one has changed. Loop-thread only."""

    def __init__(self, dynamic_config: DynamicConfig) -> None:
        self._dynamic_config = dynamic_config
        self._version = -1
        self._made: list[TelemetrySubscription] = []

    @property
    def version(self) -> int:
        """Another one whenever a client may have to be asked for something else."""
        return self._dynamic_config.named_changes

    def wish(self, attributes: Mapping[str, str]) -> Wish:
        """What all subscriptions together want of a client with these attributes."""
        if self._version != self.version:
            self._version, self._made = self.version, list(self._make())
        metrics, interval_ms = set[str](), _INTERVAL_MS
        for one in self._made:
            if one.means(attributes):
                metrics.update(one.metrics)
                interval_ms = min(interval_ms, one.interval_ms)
        return Wish((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)

    def _make(self) -> Iterable[TelemetrySubscription]:
        kind = ConfigResourceType.CLIENT_METRICS
        for name in self._dynamic_config.configured(kind):
            settings = self._dynamic_config.named_config(kind, name)
            values = {key: CLIENT_METRICS_KEYS[key].parse(raw) for key, raw in settings.items()}
            match = []
            for text in cast("tuple[str, ...]", values.get("match", ())):
                selector, _, pattern = text.partition("=")
                if not _is_known(pattern.strip()):
                    logger.warning("Subscription %s means no client: %r is a pattern for Java only", name, pattern)
                    break
                match.append((selector.strip(), pattern.strip()))
            else:
                interval_ms = cast("int", values.get("interval.ms", _INTERVAL_MS))
                yield TelemetrySubscription(
                    cast("tuple[str, ...]", values.get("metrics", ())), interval_ms, tuple(match)
                )


def _is_known(pattern: str) -> bool:
    """Whether the pattern means the same here and in Java, and is none of Java's that may take for ever."""
    try:
        LinearPattern(pattern)
    except RegexSyntaxError:
        return False
    return is_read_alike(pattern)
