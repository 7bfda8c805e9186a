"""What an operator should hear once at start about the keys of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .checks import WAYS_IN, is_zero, parse_overrides
from .keys.catalogue import BROKER_KEYS
from .keys.quorum_keys import KRAFT_NAMES, ZOOKEEPER_NAMES
from .listeners import ListenerConfig, is_address, is_loopback, parse_addresses
from .message_format import INTER_BROKER_PROTOCOL, heeds_message_format, ignored_format
from .sentences import BROKER_SENTENCES

NO_WAY_IN = "At 0 these let next to nobody in but four connections from this machine"
_FORMAT = "log.message.format.version"
_OVERRIDES = "max.connections.per.ip.overrides"
_OF_AUTHORIZERS = ("allow.everyone.if.no.acl.found", "super.users")
# Keys below these belong to listeners, plugins and metrics reporters; Kafka passes them on and knows no list of them.
_FREE_PREFIXES = ("listener.name.", "rlmm.config.", "rsm.config.", "kafka.metrics.", "confluent.", "client.quota.")
_MISTYPED, _LIKENESS = 10, 0.85


def notices_of(static: Mapping[str, str], open_listeners: Sequence[ListenerConfig]) -> tuple[str, ...]:
    """Lines for the log: ignored keys, unknown keys, open listeners. One line a subject, none without need."""
    return tuple(
        line
        for line in (
            _named("Ignored, they concern a KRaft quorum", [name for name in static if name in KRAFT_NAMES]),
            _named("Ignored, nothing here has a use for them", [name for name in static if name in ZOOKEEPER_NAMES]),
            _named("Accepted without effect", [name for name, raw in static.items() if _is_idle(name, raw)]),
            _named("Unknown configuration keys, kept without effect", _unknown(static)),
            _idle_format(static),
            _without_authorizer(static),
            _limited_names(static.get(_OVERRIDES, "")),
            _named(NO_WAY_IN, [name for name, raw in static.items() if _lets_nobody_in(name, raw)]),
            *_open_metrics(static.get("metrics.listeners", "")),
            *map(_open_listener, open_listeners),
        )
        if line
    )


def _is_idle(name: str, raw: str) -> bool:
    """Whether a file asks for something other than the default of a key on which nothing depends here."""
    if name not in BROKER_KEYS:
        return False
    if name in BROKER_SENTENCES or name in KRAFT_NAMES or name in ZOOKEEPER_NAMES:
        return False
    key = BROKER_KEYS[name]
    return key.parse(raw) != key.default


def _idle_format(static: Mapping[str, str]) -> str:
    key = BROKER_KEYS[_FORMAT]
    value = static.get(_FORMAT)
    protocol = static.get(INTER_BROKER_PROTOCOL, str(BROKER_KEYS[INTER_BROKER_PROTOCOL].default))
    if value is None or value == key.default or heeds_message_format(protocol):
        return ""
    return ignored_format(_FORMAT, value)


def _without_authorizer(static: Mapping[str, str]) -> str:
    names = [] if static.get("authorizer.class.name") else [name for name in _OF_AUTHORIZERS if name in static]
    return _named("Without authorizer.class.name whoever can connect may do everything, whatever these say", names)


def _limited_names(overrides: str) -> str:
    """Kafka looks names up, once; here connections are known by their addresses only."""
    names = [host for host in parse_overrides(overrides) if not is_address(host)]
    return _named(f"{_OVERRIDES} is about addresses; without effect", names)


def _lets_nobody_in(name: str, raw: str) -> bool:
    key = name.split(".", 3)[-1] if name.startswith("listener.name.") else name
    return key in WAYS_IN and is_zero(key, raw)


def is_unknown(name: str) -> bool:
    """Whether neither Kafka nor this broker knows a broker's setting of that name, nor passes it on to somebody."""
    return name not in BROKER_KEYS and name not in _OF_AUTHORIZERS and not name.startswith(_FREE_PREFIXES)


def _unknown(static: Mapping[str, str]) -> list[str]:
    """With each the one that may have been meant; where there are many, nobody has mistyped them."""
    names = [name for name in static if is_unknown(name)]
    if len(names) > _MISTYPED:
        return names
    near = {name: _like(name) for name in names}
    return [f"{name} (is {near[name]} meant?)" if near[name] else name for name in names]


def _like(name: str) -> str | None:
    """The key that may have been meant."""
    # Loaded for those who mistype: a quarter of a megabyte that all others need not hold.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, BROKER_KEYS, n=1, cutoff=_LIKENESS)), None)


def _named(subject: str, names: Sequence[str]) -> str:
    return f"{subject}: {', '.join(sorted(names))}" if names else ""


def _open_metrics(addresses: str) -> Iterator[str]:
    for host, port in parse_addresses("metrics.listeners", addresses):
        if not is_loopback(host):
            where = host or "all interfaces"
            yield f"Names of topics and groups, and how much they do, are told to everybody at port {port} of {where}"


def _open_listener(listener: ListenerConfig) -> str:
    where = listener.host or "all interfaces"
    return (
        f"Listener {listener.name} accepts everybody who reaches port {listener.port} on {where}: it does not "
        "authenticate. Bind it to 127.0.0.1, or have it ask who is there: see docs/security.md"
    )
