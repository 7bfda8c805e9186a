"""Decisions by a set of ACLs, without I/O (Kafka's AclAuthorizer and StandardAuthorizer, KIP-11 and KIP-290).

An ACL applies to a resource if its pattern is the literal name or `*`, or is a prefix of the name. DENY overrides
ALLOW. The permission to read, write, delete or alter implies DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
DENY implies no other operation. `ALL` includes every operation.

The time of a decision depends on the number of different prefix lengths and of ACLs of this principal, and not on the
number of all ACLs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ...protocol.acl_bindings import (
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
)
from ...protocol.acls import WILDCARD, AclOperation, AclPatternType, AclPermissionType, AclResourceType
from .cidr_block import CidrBlock, address_of, block_of

_O = AclOperation
_IMPLIED_BY = {
    _O.DESCRIBE: frozenset((_O.ALL, _O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.ALL, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
}
_DENY = AclPermissionType.DENY
_LITERAL, _PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED


@lru_cache(maxsize=4096)
def plain_host(host: str) -> str:
    """Return the canonical spelling of an address, so that another spelling does not evade an ACL."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


class _Rules:
    """The ACLs of one pattern."""

    __slots__ = ("blocks_of", "by_principal", "entries")

    def __init__(self, entries: frozenset[AccessControlEntry]) -> None:
        self.entries = entries
        self.by_principal: dict[str, list[AccessControlEntry]] = {}
        self.blocks_of: dict[str, list[tuple[CidrBlock, AccessControlEntry]]] = {}
        """The entries of a principal whose host is a CIDR block, by the name of the principal."""
        for entry in entries:
            block = block_of(entry.host)
            if block is not None:
                self.blocks_of.setdefault(entry.principal, []).append((block, entry))
                continue
            at_host = entry._replace(host=plain_host(entry.host))
            self.by_principal.setdefault(entry.principal, []).append(at_host)

    def of(self, principal: str, host: str) -> Iterator[AccessControlEntry]:
        for name in (principal, WILDCARD_PRINCIPAL):
            for entry in self.by_principal.get(name, ()):
                if entry.host in (WILDCARD, host):
                    yield entry
            if self.blocks_of and name in self.blocks_of:
                address = address_of(host)
                for block, entry in self.blocks_of[name] if address is not None else ():
                    if address in block:
                        yield entry


class AclIndex:
    """A set of ACLs. Not safe for concurrent use by several threads."""

    def __init__(self) -> None:
        self._rules: dict[ResourcePattern, _Rules] = {}
        self._prefix_lengths: dict[AclResourceType, dict[int, int]] = {}
        """Length -> number of prefixed patterns."""
        self._patterns_of: dict[str, dict[ResourcePattern, None]] = {}
        """The patterns with ACLs of a principal."""

    def __len__(self) -> int:
        return sum(len(rules.entries) for rules in self._rules.values())

    def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """Return the ACLs of one pattern."""
        rules = self._rules.get(pattern)
        return rules.entries if rules is not None else frozenset()

    def replace(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Set all ACLs of a pattern."""
        kept = frozenset(entries)
        if pattern.pattern_type is _PREFIXED and bool(kept) != (pattern in self._rules):
            lengths = self._prefix_lengths.setdefault(pattern.resource_type, {})
            size = len(pattern.name)
            lengths[size] = lengths.get(size, 0) + (1 if kept else -1)
            if not lengths[size]:
                del lengths[size]
        for principal in {entry.principal for entry in self.entries(pattern)}:
            named = self._patterns_of[principal]
            del named[pattern]
            if not named:
                del self._patterns_of[principal]
        if kept:
            self._rules[pattern] = _Rules(kept)
        else:
            self._rules.pop(pattern, None)
        for principal in {entry.principal for entry in kept}:
            self._patterns_of.setdefault(principal, {})[pattern] = None

    def patterns(self) -> list[ResourcePattern]:
        """Return all patterns with ACLs."""
        return list(self._rules)

    def selected(self, wanted: AclBindingFilter) -> Iterator[list[AclBinding]]:
        """Yield the ACLs that a filter matches, pattern by pattern and often none: a caller may yield in between."""
        for pattern in self._patterns_for(wanted):
            is_meant = wanted.selects_pattern(pattern)
            entries = self.entries(pattern) if is_meant else ()
            yield [AclBinding(pattern, entry) for entry in entries if wanted.selects_entry(entry)]

    def _patterns_for(self, wanted: AclBindingFilter) -> list[ResourcePattern]:
        """Return the patterns that may match."""
        exact = wanted.name is not None and wanted.pattern_type in (_LITERAL, _PREFIXED)
        if exact and wanted.resource_type is not AclResourceType.ANY:
            return [ResourcePattern(wanted.resource_type, wanted.name or "", wanted.pattern_type)]
        return list(self._rules if wanted.principal is None else self._patterns_of.get(wanted.principal, ()))

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool | None:
        """Return whether the ACLs allow the operation; None if the resource has no ACL for any principal."""
        host = plain_host(host)
        implied_by = _IMPLIED_BY.get(operation) or (_O.ALL, operation)
        allowed: bool | None = None
        for rules in self._about(resource_type, name):
            allowed = allowed or False
            for entry in rules.of(principal, host):
                if entry.permission is _DENY:
                    if entry.operation in (operation, _O.ALL):
                        return False
                elif entry.operation in implied_by:
                    allowed = True
        return allowed

    def allows_some(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool | None:
        """Whether there may be a resource of the type to which it is allowed (`authorizeByResourceType`, KIP-679).

        None if nothing allows it and nothing denies it to all resources.
        """
        host = plain_host(host)
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        named = (self._patterns_of.get(one, {}) for one in {principal, WILDCARD_PRINCIPAL})
        for pattern in {pattern for patterns in named for pattern in patterns}:
            if pattern.resource_type is resource_type:
                for entry in self._rules[pattern].of(principal, host):
                    if entry.operation in (operation, _O.ALL):
                        if entry.permission is _DENY:
                            denied.add(pattern)
                        else:
                            allowed.append(pattern)
        if ResourcePattern(resource_type, WILDCARD) in denied:
            return False
        if any(not _is_dominated(pattern, denied) for pattern in allowed):
            return True
        return None

    def _about(self, resource_type: AclResourceType, name: str) -> Iterator[_Rules]:
        get = self._rules.get
        literal = get(ResourcePattern(resource_type, name))
        if literal is not None:
            yield literal
        if name != WILDCARD:
            everything = get(ResourcePattern(resource_type, WILDCARD))
            if everything is not None:
                yield everything
        for size in self._prefix_lengths.get(resource_type, ()):
            if size <= len(name):
                prefixed = get(ResourcePattern(resource_type, name[:size], _PREFIXED))
                if prefixed is not None:
                    yield prefixed


def _is_dominated(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Return whether DENY patterns cover all resources of the pattern."""
    if pattern == ResourcePattern(pattern.resource_type, WILDCARD):
        return False
    if pattern.pattern_type is _LITERAL and pattern in denied:
        return True
    prefixes = (pattern.name[:size] for size in range(len(pattern.name) + 1))
    return any(ResourcePattern(pattern.resource_type, prefix, _PREFIXED) in denied for prefix in prefixes)
