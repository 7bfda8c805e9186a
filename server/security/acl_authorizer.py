"""Authorization by the ACLs of the cluster: Kafka's AclAuthorizer and StandardAuthorizer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from ...protocol.acls import AclOperation, AclResourceType
from ..metadata.metadata_store import StoreError
from ..metadata.store_follower import StoreFollower
from ..metadata.topic_names import MAX_NAME_LENGTH
from ..runtime.log_limit import LimitedLogs
from ..runtime.loop_sharing import CountBudget, next_turn
from .acl_index import AclIndex

if TYPE_CHECKING:
    from ..metadata.acl_store import AclStore, Change
    from .session import Session

logger = room_logger("authorizer")

PATTERNS_PER_CHANGE = 50
"""Resource patterns whose ACLs are changed together: some milliseconds of the loop, and one sync."""
ACLS_PER_CHANGE = 2000
"""ACLs before and after a change, summed over its patterns; a single pattern may have more."""

DECISIONS = 20_000
"""Decisions that are cached until an ACL changes."""
MAX_CACHED_NAME_CHARACTERS = MAX_NAME_LENGTH
"""Decisions about longer names are not cached: requests may have names of 32 KB, which no resource has."""
PAUSE_SECONDS = 0.1
"""The shortest time between two reads of changes, so that many changes are read together."""

Rules = Mapping[ResourcePattern, frozenset[AccessControlEntry]]
Failures = dict[ResourcePattern, StoreError | ValueError]
_Question = tuple[str, str, AclOperation, AclResourceType, str]
_Some = tuple[str, str, AclOperation, AclResourceType]
"""Whether it is allowed for any resource of the type."""


class AclAuthorizer:
    """Kafka's AclAuthorizer: ACLs in memory, written to the store first. Used on the loop's thread only."""

    def __init__(
        self,
        store: AclStore | None,
        loop: asyncio.AbstractEventLoop,
        *,
        super_users: Iterable[str] = (),
        allow_if_no_acl: bool = False,
    ) -> None:
        """`super_users` may do everything; with `allow_if_no_acl`, resources without ACLs are open to all.

        Without a `store` the ACLs are set by `replace` alone, and changed by requests to the controller alone.
        """
        self._store = store
        self._index = AclIndex()
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._decisions: dict[_Question | _Some, bool] = {}
        self._seen: dict[str, str] = {}
        self._follower = (
            None if store is None else StoreFollower(store.store, "ACLs", self._read, pause_seconds=PAUSE_SECONDS)
        )
        self._changing = asyncio.Lock()
        self._denials = LimitedLogs(logger, loop.time)

    async def start(self) -> None:
        """Read all ACLs and follow their changes, if there is a store. Raises StoreError, ValueError."""
        if self._store is not None and self._follower is not None:
            await self._store.prepare()
            await self._follower.start()

    async def close(self) -> None:
        """Stop following changes."""
        if self._follower is not None:
            await self._follower.close()

    def authorize(self, session: Session, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Return whether the client of the session may do the operation on the resource."""
        question = str(session.principal), session.client_host, operation, resource_type, name
        known = self._decisions.get(question)
        if known is None:
            known = self._decide(question)
        if not known:
            self._denials.write(
                question[0],
                logging.INFO,
                "principal %s from %s was denied %s on %s %s",
                question[0],
                question[1],
                operation.name,
                resource_type.name,
                name,
            )
        return known

    def authorize_some(self, session: Session, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the client may do the operation on any resource of the type (KIP-679)."""
        question = str(session.principal), session.client_host, operation, resource_type
        known = self._decisions.get(question)
        return self._decide(question) if known is None else known

    def _decide(self, question: _Question | _Some) -> bool:
        allowed: bool | None = True
        if question[0] not in self._super_users:
            allowed = self._index.decide(*question) if len(question) == 5 else self._index.allows_some(*question)
        decision = self._allow_if_no_acl if allowed is None else allowed
        if len(question) != 5 or len(question[4]) <= MAX_CACHED_NAME_CHARACTERS:
            if len(self._decisions) >= DECISIONS:
                self._decisions.clear()
            self._decisions[question] = decision
        return decision

    # -- ACLs ------------------------------------------------------------------------------------------------------

    async def selected(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """Return the ACLs that a filter matches."""
        found: list[AclBinding] = []
        budget = CountBudget()
        for bindings in self._index.selected(wanted):
            found += bindings
            await budget.step(1 + len(bindings))
        return found

    async def create(self, bindings: Iterable[AclBinding]) -> Failures:
        """Add ACLs, which apply when this returns. Return an error for each pattern whose ACLs could not be stored."""
        return await self._change(_by_pattern(bindings), lambda entries: entries.union)

    async def delete(self, bindings: Iterable[AclBinding]) -> None:
        """Delete ACLs, which do not apply any more when this returns.

        Raises StoreError, ValueError if some of them could not be deleted.
        """
        for error in (await self._change(_by_pattern(bindings), lambda entries: partial(_without, entries))).values():
            raise error

    async def _change(self, rules: Rules, change_by: Callable[[frozenset[AccessControlEntry]], Change]) -> Failures:
        """Change patterns in portions: the store syncs once for all changes of a portion."""
        store = self._present_store
        failed: Failures = {}
        for some in self._portions(rules):
            async with self._changing:
                work = (store.change(pattern, change_by(entries)) for pattern, entries in some)
                outcomes = await asyncio.gather(*work, return_exceptions=True)
                for (pattern, _), outcome in zip(some, outcomes, strict=True):
                    if isinstance(outcome, StoreError | ValueError):
                        failed[pattern] = outcome
                    elif isinstance(outcome, BaseException):
                        raise outcome
                    else:
                        self.replace(pattern, outcome)
        return failed

    def _portions(self, rules: Rules) -> Iterator[list[tuple[ResourcePattern, frozenset[AccessControlEntry]]]]:
        portion: list[tuple[ResourcePattern, frozenset[AccessControlEntry]]] = []
        count = 0
        for pattern, entries in rules.items():
            size = len(entries) + len(self._index.entries(pattern))
            if portion and (len(portion) == PATTERNS_PER_CHANGE or count + size > ACLS_PER_CHANGE):
                yield portion
                portion, count = [], 0
            portion.append((pattern, entries))
            count += size
        if portion:
            yield portion

    @property
    def _present_store(self) -> AclStore:
        assert self._store is not None, "the controllers of a quorum change ACLs"
        return self._store

    def replace(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
        """Set all ACLs of a pattern, from the next decision on."""
        self._index.replace(pattern, entries)
        self._decisions.clear()

    async def _read(self, is_new_session: bool) -> None:
        """Read the changes of other brokers."""
        assert self._follower is not None
        changed, newest = await self._present_store.read_changes(self._seen, self._follower.watch)
        if is_new_session:
            await self._read_all()
        else:
            for pattern in changed:
                await self._read_one(pattern)
        self._seen = newest

    async def _read_all(self) -> None:
        """Read all ACLs: notifications expire, and the time without a session is not known."""
        async with self._changing:
            rules = await self._present_store.load()
            budget = CountBudget()
            for pattern in {*self._index.patterns(), *rules}:
                entries = rules.get(pattern, frozenset())
                if entries != self._index.entries(pattern):
                    self.replace(pattern, entries)
                await budget.step(1 + len(entries))

    async def _read_one(self, pattern: ResourcePattern) -> None:
        async with self._changing:
            try:
                self.replace(pattern, await self._present_store.entries(pattern))
            except ValueError as error:
                logger.error("the ACLs of %s are unchanged: %s", pattern.name, error)
        await next_turn()


def _by_pattern(bindings: Iterable[AclBinding]) -> Rules:
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for binding in bindings:
        found.setdefault(binding.pattern, set()).add(binding.entry)
    return {pattern: frozenset(entries) for pattern, entries in found.items()}


def _without(
    taken: frozenset[AccessControlEntry], present: frozenset[AccessControlEntry]
) -> frozenset[AccessControlEntry]:
    return present - taken
