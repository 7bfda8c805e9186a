"""Warnings about the keys of a configuration, logged once at start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .checks import WAYS_IN, is_zero, parse_overrides
from .keys.catalogue import BROKER_KEYS
from .keys.quorum_keys import KRAFT_NAMES, ZOOKEEPER_NAMES
from .listeners import ListenerConfig, is_address, is_loopback, parse_addresses
from .message_format import INTER_BROKER_PROTOCOL, heeds_message_format, ignored_format

NO_WAY_IN = "At 0 these admit only four connections from this machine"
_FORMAT = "log.message.format.version"
_OVERRIDES = "max.connections.per.ip.overrides"
_OF_AUTHORIZERS = ("allow.everyone.if.no.acl.found", "super.users")
# Keys below these belong to listeners, plugins and metrics reporters; Kafka has no list of them and passes them on.
_FREE_PREFIXES = (
    "listener.name.",
    "rlmm.config.",
    "rsm.config.",
    "kafka.metrics.",
    "confluent.",
    "client.quota.",
    "config.providers.",
)
_MISTYPED, _LIKENESS = 10, 0.85


def startup_warnings(static: Mapping[str, str], open_listeners: Sequence[ListenerConfig]) -> tuple[str, ...]:
    """Lines for the log: ignored keys, unknown keys, open listeners. One line a subject, none without need."""
    return tuple(
        line
        for line in (
            _named("Ignored, they concern a KRaft quorum", _of_quorum(static)),
            _named("Ignored, nothing here has a use for them", [name for name in static if name in ZOOKEEPER_NAMES]),
            _named("Accepted without effect", [name for name, raw in static.items() if _is_idle(name, raw)]),
            _named("Duplicates are removed from lists", _with_duplicates(static)),
            _named("Unknown configuration keys, kept without effect", _unknown(static)),
            _idle_format(static),
            _without_authorizer(static),
            _limited_names(static.get(_OVERRIDES, "")),
            _named(NO_WAY_IN, [name for name, raw in static.items() if _refuses_all_connections(name, raw)]),
            *_open_metrics(static.get("metrics.listeners", "")),
            *map(_open_listener, open_listeners),
        )
        if line
    )


def _is_idle(name: str, raw: str) -> bool:
    """Return whether a file sets a key that has no effect on this broker to a value other than the default."""
    if name not in BROKER_KEYS:
        return False
    if BROKER_KEYS[name].doc is not None or name in KRAFT_NAMES or name in ZOOKEEPER_NAMES:
        return False
    key = BROKER_KEYS[name]
    return key.parse(raw) != key.default


def _of_quorum(static: Mapping[str, str]) -> list[str]:
    """Return the keys without effect on a standalone broker. They have an effect on a broker of a KRaft cluster."""
    is_kraft = static.get("process.roles", "").strip() == "broker"
    return [] if is_kraft else [name for name in static if name in KRAFT_NAMES]


def _with_duplicates(static: Mapping[str, str]) -> list[str]:
    return [name for name, raw in static.items() if name in BROKER_KEYS and BROKER_KEYS[name].duplicates(raw)]


def _idle_format(static: Mapping[str, str]) -> str:
    key = BROKER_KEYS[_FORMAT]
    value = static.get(_FORMAT)
    protocol = static.get(INTER_BROKER_PROTOCOL, str(BROKER_KEYS[INTER_BROKER_PROTOCOL].default))
    if value is None or value == key.default or heeds_message_format(protocol):
        return ""
    return ignored_format(_FORMAT, value)


def _without_authorizer(static: Mapping[str, str]) -> str:
    names = [] if static.get("authorizer.class.name") else [name for name in _OF_AUTHORIZERS if name in static]
    return _named("Without authorizer.class.name every client has all permissions, and these have no effect", names)


def _limited_names(overrides: str) -> str:
    """Kafka looks names up, once; here connections are known by their addresses only."""
    names = [host for host in parse_overrides(overrides) if not is_address(host)]
    return _named(f"{_OVERRIDES} is about addresses; without effect", names)


def _refuses_all_connections(name: str, raw: str) -> bool:
    key = name.split(".", 3)[-1] if name.startswith("listener.name.") else name
    return key in WAYS_IN and is_zero(key, raw)


def is_unknown(name: str) -> bool:
    """Return whether a broker setting of this name is unknown to Kafka and to Barnabas, and not passed on."""
    return name not in BROKER_KEYS and name not in _OF_AUTHORIZERS and not name.startswith(_FREE_PREFIXES)


def _unknown(static: Mapping[str, str]) -> list[str]:
    """Name the unknown keys, each with a similar known key; a long list is shortened, because typos are few."""
    names = [name for name in static if is_unknown(name)]
    if len(names) > _MISTYPED:
        return names
    near = {name: _like(name) for name in names}
    return [f"{name} (is {near[name]} meant?)" if near[name] else name for name in names]


def _like(name: str) -> str | None:
    """Return the key that may have been meant."""
    # Loaded only for unknown keys, because it takes a quarter of a megabyte.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, BROKER_KEYS, n=1, cutoff=_LIKENESS)), None)


def _named(subject: str, names: Sequence[str]) -> str:
    return f"{subject}: {', '.join(sorted(names))}" if names else ""


def _open_metrics(addresses: str) -> Iterator[str]:
    for host, port in parse_addresses("metrics.listeners", addresses):
        if not is_loopback(host):
            where = host or "all interfaces"
            yield f"Port {port} of {where} exposes metrics with the names of topics and groups without authentication"


def _open_listener(listener: ListenerConfig) -> str:
    where = listener.host or "all interfaces"
    return (
        f"Listener {listener.name} accepts every client that reaches port {listener.port} on {where} without "
        "authentication. Bind it to 127.0.0.1, or configure authentication: see docs/security.md"
    )
