"""Listeners: the addresses that the broker binds, and the addresses that it advertises to clients."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from .keys.validators import ConfigError

# The name, then a host with or without brackets, then the port; as in Kafka's SocketServerConfigs.
_LISTENER = re.compile(
    r"(?P<name>.*)://(?:\[(?P<bracketed>[0-9a-zA-Z%._:-]*)\]|(?P<host>[0-9a-zA-Z%._:-]*)):(?P<port>-?\d+)"
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_META_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound by this constant


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether an address, or the name `localhost`, is this machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_this_machine(host: str, own: str) -> bool:
    """Return whether a client's address belongs to this machine: `own` is the local address of its connection."""
    return is_loopback(host) or host == own


def is_address(host: str) -> bool:
    """Whether this is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener. `host` is empty for all interfaces and `port` 0 for any free port, as written in `listeners`.

    An empty `advertised_host` means the name of this machine, `advertised_port` 0 the port that is bound in the end.
    """

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"
    advertised_host: str = ""
    advertised_port: int = 0

    @property
    def is_loopback(self) -> bool:
        """True if only processes of this machine can connect."""
        return is_loopback(self.host)

    def bound(self, port: int, machine_name: str) -> ListenerConfig:
        """Return this listener with the port on which its socket listens, also in its advertised address."""
        return replace(
            self,
            port=port,
            advertised_host=self.advertised_host or machine_name,
            advertised_port=self.advertised_port or port,
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class _Endpoint:
    name: str
    host: str
    port: int


def parse_addresses(key: str, text: str) -> tuple[tuple[str, int], ...]:
    """Hosts and ports of addresses like `127.0.0.1:2181,[::1]:2181`. Raises ConfigError."""
    addresses = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _LISTENER.fullmatch(f"://{entry}")
        if match is None or not 0 <= int(match["port"]) <= 65535:
            raise ConfigError(key, text, f"{entry} must be host:port, or :port for all interfaces")
        addresses.append((match["bracketed"] or match["host"] or "", int(match["port"])))
    return tuple(addresses)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Listener name to security protocol, of `listener.security.protocol.map`. Raises ConfigError."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = (part.strip().upper() for part in entry.rpartition(":"))
        if not separator or not name or protocol not in _PROTOCOLS:
            raise ConfigError(key, text, f"{entry} must be NAME:PROTOCOL, the protocol one of {', '.join(_PROTOCOLS)}")
        if name in protocols:
            raise ConfigError(key, text, f"listener {name} is mapped twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(
    listeners: str, advertised: str | None, protocol_map: Mapping[str, str], left_out: Collection[str] = ()
) -> list[ListenerConfig]:
    """Listeners in the order in which they are written, without those named in `left_out`. Raises ConfigError."""
    bound = [endpoint for endpoint in _parse("listeners", listeners) if endpoint.name not in left_out]
    if not bound:
        raise ConfigError("listeners", listeners, "at least one listener for clients must be defined")
    _check_distinct(listeners, bound)
    advertised_endpoints = _advertised(advertised, left_out)
    unknown = sorted(advertised_endpoints.keys() - {endpoint.name for endpoint in bound})
    if unknown:
        reason = f"advertised listener names must be defined in listeners, {', '.join(unknown)} is not"
        raise ConfigError("advertised.listeners", advertised, reason)
    return [_listener(endpoint, advertised_endpoints.get(endpoint.name), listeners, protocol_map) for endpoint in bound]


def _advertised(advertised: str | None, left_out: Collection[str]) -> dict[str, _Endpoint]:
    if advertised is None or not advertised.strip():
        return {}
    endpoints = [endpoint for endpoint in _parse("advertised.listeners", advertised) if endpoint.name not in left_out]
    for endpoint in endpoints:
        if endpoint.host in _META_ADDRESSES:
            reason = f"clients cannot connect to {endpoint.host}; name an address that they can reach"
            raise ConfigError("advertised.listeners", advertised, reason)
    return {endpoint.name: endpoint for endpoint in endpoints}


def _listener(
    endpoint: _Endpoint, advertised_endpoint: _Endpoint | None, written: str, protocol_map: Mapping[str, str]
) -> ListenerConfig:
    protocol = protocol_map.get(endpoint.name)
    if protocol is None:
        reason = f"no security protocol defined for listener {endpoint.name} in listener.security.protocol.map"
        raise ConfigError("listeners", written, reason)
    bound_host = "" if endpoint.host in _META_ADDRESSES else endpoint.host
    return ListenerConfig(
        name=endpoint.name,
        host=endpoint.host,
        port=endpoint.port,
        security_protocol=protocol,
        advertised_host=advertised_endpoint.host if advertised_endpoint is not None else bound_host,
        advertised_port=advertised_endpoint.port if advertised_endpoint is not None else endpoint.port,
    )


def _parse(key: str, text: str) -> list[_Endpoint]:
    endpoints = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _LISTENER.fullmatch(entry)
        if match is None or not match["name"]:
            raise ConfigError(key, text, f"{entry} must be NAME://host:port, or NAME://:port for all interfaces")
        port = int(match["port"])
        if not 0 <= port <= 65535:
            raise ConfigError(key, text, f"port {port} must be between 0 and 65535")
        endpoints.append(_Endpoint(match["name"].upper(), match["bracketed"] or match["host"] or "", port))
    return endpoints


def _check_distinct(text: str, endpoints: list[_Endpoint]) -> None:
    """Require unique names; two listeners may share a port only if one uses IPv4 and the other IPv6."""
    if len({endpoint.name for endpoint in endpoints}) < len(endpoints):
        raise ConfigError("listeners", text, "each listener must have a different name")
    versions_by_port: dict[int, list[int]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            versions_by_port.setdefault(endpoint.port, []).append(_ip_version(endpoint.host))
    for port, versions in versions_by_port.items():
        if len(versions) > 1 and sorted(versions) != [4, 6]:
            raise ConfigError("listeners", text, f"each listener must have a different port, {port} is used twice")


def _ip_version(host: str) -> int:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0
