"""Hosts of ACLs as CIDR blocks, `10.0.0.0/8` or `2001:db8::/32` (Kafka 4.4's CidrUtils)."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TypeAlias

CidrBlock: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_IPV4_BLOCK = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})", re.ASCII)
_IPV6_BITS = 128


def parse_cidr_block(text: str) -> CidrBlock:
    """Parse a block, whose address may have bits beyond the prefix. Raise ValueError with Kafka's reason."""
    return _parse_ipv6(text) if ":" in text else _parse_ipv4(text)


def _parse_ipv4(text: str) -> ipaddress.IPv4Network:
    match = _IPV4_BLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *parts, prefix = (int(part) for part in match.groups())
    for value, most in (*((part, 255) for part in parts), (prefix, 32)):
        if value > most:
            raise ValueError(f"Value [{value}] not in range [0,{most}]")
    return ipaddress.IPv4Network((bytes(parts), prefix), strict=False)


def _parse_ipv6(text: str) -> ipaddress.IPv6Network:
    address, _, prefix = text.partition("/")
    if not (prefix.isascii() and prefix.isdigit() and len(prefix) <= _IPV6_BITS):
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    if int(prefix) > _IPV6_BITS:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and {_IPV6_BITS}")
    try:
        parsed = ipaddress.IPv6Address(address.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        raise ValueError(f"Could not parse [{address}]") from None
    if parsed.ipv4_mapped is not None:
        # Java turns such an address into one of IPv4, and so are the hosts of clients.
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return ipaddress.IPv6Network((parsed.packed, int(prefix)), strict=False)


def block_of(host: str) -> CidrBlock | None:
    """Return the block that the host of an ACL is; None for `*`, an address, and an invalid block."""
    if "/" not in host:
        return None
    try:
        return parse_cidr_block(host)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def address_of(host: str) -> Address | None:
    """Return a client's address; None for a text that is not an address. An IPv4-mapped address is one of IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
