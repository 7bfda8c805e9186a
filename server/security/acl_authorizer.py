"""Who may do what by rules that the cluster keeps: Kafka's AclAuthorizer and StandardAuthorizer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from ...protocol.acls import AclOperation, AclResourceType
from ...protocol.room_logger import room_logger
from ..metadata.metadata_store import SessionState, StoreError
from ..runtime.log_limit import LimitedLog
from .acl_index import AclIndex

if TYPE_CHECKING:
    from ..metadata.acl_store import AclStore, Change
    from .session import Session

logger = room_logger("authorizer")

DECISIONS = 20_000
"""Decisions that are remembered until a rule changes."""
PAUSE_SECONDS = 0.1
"""Between two looks at what has changed: of many changes at once not each is looked for."""
RETRY_SECONDS = 1.0
"""A change that could not be read is looked for again after this time."""

_Question = tuple[str, str, AclOperation, AclResourceType, str]


class AclAuthorizer:
    """Decides by the rules in memory; changes are written to the store first. Loop-thread only."""

    def __init__(
        self,
        store: AclStore,
        loop: asyncio.AbstractEventLoop,
        *,
        super_users: Iterable[str] = (),
        allow_if_no_acl: bool = False,
    ) -> None:
        """`super_users` may do everything; `allow_if_no_acl` lets everybody do what no rule is about."""
        self._store = store
        self._loop = loop
        self._index = AclIndex()
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._decisions: dict[_Question, bool] = {}
        self._seen: dict[str, str] = {}
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._changing = asyncio.Lock()
        self._denials = LimitedLog(logger, loop.time)

    async def start(self) -> None:
        """Read all rules and hear of changes from now on. Raises StoreError, ValueError."""
        await self._store.prepare()
        _, self._seen = await self._store.notices(self._seen, self._news.set)
        for pattern, entries in (await self._store.load()).items():
            self._index.replace(pattern, entries)
        self._reading = self._loop.create_task(self._follow())

    async def close(self) -> None:
        """Hear of nothing more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def session_changed(self, state: SessionState) -> None:
        """Told of the store's session: what happened while there was none is looked up."""
        if state is SessionState.CONNECTED:
            self._store.session_lost()
            self._seen = {}
            self._news.set()

    def authorize(self, session: Session, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Whether the client of the session may do that to the resource."""
        question = str(session.principal), session.client_host, operation, resource_type, name
        known = self._decisions.get(question)
        if known is None:
            known = self._decide(question)
            if len(self._decisions) >= DECISIONS:
                self._decisions.clear()
            self._decisions[question] = known
        if not known:
            self._denials.write(
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
        """Whether there may be any resource of the type to which the client may do that (KIP-679)."""
        principal = str(session.principal)
        if principal in self._super_users:
            return True
        allowed = self._index.allows_some(principal, session.client_host, operation, resource_type)
        return self._allow_if_no_acl if allowed is None else allowed

    def _decide(self, question: _Question) -> bool:
        if question[0] in self._super_users:
            return True
        allowed = self._index.decide(*question)
        return self._allow_if_no_acl if allowed is None else allowed

    # -- rules -----------------------------------------------------------------------------------------------------

    def selected(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """The rules that a filter selects."""
        return list(self._index.selected(wanted))

    async def create(self, bindings: Iterable[AclBinding]) -> None:
        """Add rules; they count when this returns. Raises StoreError, ValueError."""
        for pattern, entries in _by_pattern(bindings).items():
            await self._change(pattern, entries.union)

    async def delete(self, bindings: Iterable[AclBinding]) -> None:
        """Take rules back; they no longer count when this returns. Raises StoreError, ValueError."""
        for pattern, entries in _by_pattern(bindings).items():
            await self._change(pattern, partial(_without, entries))

    async def _change(self, pattern: ResourcePattern, change: Change) -> None:
        async with self._changing:
            self._replace(pattern, await self._store.change(pattern, change))

    def _replace(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
        self._index.replace(pattern, entries)
        self._decisions.clear()

    async def _follow(self) -> None:
        """Take over what other brokers change."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._read_news()
            except (StoreError, ValueError) as error:
                logger.error("a change of access rules could not be read, and is looked for again: %r", error)
                self._seen = {}
                await asyncio.sleep(RETRY_SECONDS)
                self._news.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read_news(self) -> None:
        changed, newest = await self._store.notices(self._seen, self._news.set)
        for pattern in changed:
            async with self._changing:
                self._replace(pattern, await self._store.entries(pattern))
            await asyncio.sleep(0)
        self._seen = newest


def _by_pattern(bindings: Iterable[AclBinding]) -> Mapping[ResourcePattern, frozenset[AccessControlEntry]]:
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for binding in bindings:
        found.setdefault(binding.pattern, set()).add(binding.entry)
    return {pattern: frozenset(entries) for pattern, entries in found.items()}


def _without(
    taken: frozenset[AccessControlEntry], present: frozenset[AccessControlEntry]
) -> frozenset[AccessControlEntry]:
    return present - taken
