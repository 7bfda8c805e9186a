"""The metrics that each client has to push, and the interval: the subscriptions of operators (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from ...common.room_logger import room_logger
from ...protocol.config_resources import ConfigResourceType
from ..config.keys.catalogue import CLIENT_METRICS_KEYS
from ..patterns.java_regex import is_read_alike
from ..patterns.linear_pattern import LinearPattern
from ..patterns.regex_syntax import RegexSyntaxError

if TYPE_CHECKING:
    from ..config.dynamic_config import DynamicConfig

logger = room_logger("telemetry")

ALL_METRICS = "*"
_INTERVAL_MS = cast("int", CLIENT_METRICS_KEYS["interval.ms"].default)


class RequestedMetrics(NamedTuple):
    """The metrics of one client: prefixes of names, or `ALL_METRICS` alone, and the interval."""

    metrics: tuple[str, ...]
    interval_ms: int


class SubscriptionInfo(NamedTuple):
    """A subscription of an operator. It applies to clients that satisfy `match`; an empty `match` means all clients."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, str], ...]
    """Selectors and regular expressions."""

    def means(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the subscription applies to a client with these attributes, by selector.

        Expressions are parsed again each time, so that the names of one client cannot use up the work of others.
        """
        try:
            return all(LinearPattern(pattern).matches(attributes[selector]) for selector, pattern in self.match)
        except RegexSyntaxError:
            return False


class Subscriptions:
    """All subscriptions, loaded again after each change. Owned by the loop thread."""

    def __init__(self, dynamic_config: DynamicConfig) -> None:
        self._dynamic_config = dynamic_config
        self._version = -1
        self._made: list[SubscriptionInfo] = []

    @property
    def version(self) -> int:
        """A number that changes whenever the metrics of a client may have changed."""
        return self._dynamic_config.named_changes

    def requested_metrics(self, attributes: Mapping[str, str]) -> RequestedMetrics:
        """Return the union of all subscriptions for a client with these attributes."""
        if self._version != self.version:
            self._version, self._made = self.version, list(self._make())
        metrics, interval_ms = set[str](), _INTERVAL_MS
        for one in self._made:
            if one.means(attributes):
                metrics.update(one.metrics)
                interval_ms = min(interval_ms, one.interval_ms)
        return RequestedMetrics((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)

    def _make(self) -> Iterable[SubscriptionInfo]:
        kind = ConfigResourceType.CLIENT_METRICS
        for name in self._dynamic_config.configured(kind):
            settings = self._dynamic_config.named_config(kind, name)
            values = {key: CLIENT_METRICS_KEYS[key].parse(raw) for key, raw in settings.items()}
            match = []
            for text in cast("tuple[str, ...]", values.get("match", ())):
                selector, _, pattern = text.partition("=")
                if not _is_known(pattern.strip()):
                    logger.warning(
                        "Subscription %s matches no client: only Java supports the pattern %r", name, pattern
                    )
                    break
                match.append((selector.strip(), pattern.strip()))
            else:
                interval_ms = cast("int", values.get("interval.ms", _INTERVAL_MS))
                yield SubscriptionInfo(cast("tuple[str, ...]", values.get("metrics", ())), interval_ms, tuple(match))


def _is_known(pattern: str) -> bool:
    """Return whether the pattern has the same meaning in Java, without Java's constructs of unbounded time."""
    try:
        LinearPattern(pattern)
    except RegexSyntaxError:
        return False
    return is_read_alike(pattern)
