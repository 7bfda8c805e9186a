"""The deliveries and acknowledgements of share groups as the leaders execute them, and the rules for them.

`ShareWatch.installed` observes the acquisitions, acknowledgements and ended sessions of all leaders at the border of
`SharePartition`, whose states it does not use. It computes the owner of each record from these events, so an error of
the state machine contradicts it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.server.share.delayed_share_fetch import DelayedShareFetch, ShareFetchedRecords
from barnabas.server.share.managed_share_partition import ManagedSharePartition
from barnabas.server.share.record_state import AcknowledgementType
from barnabas.server.share.share_partition_manager import SharePartitionManager
from barnabas.server.share.share_session import ShareSession

FINAL = (AcknowledgementType.ACCEPT, AcknowledgementType.REJECT)
MAX_VIOLATIONS = 50


@dataclass(slots=True)
class Ownership:
    """The acquisition of one record by one member."""

    member_id: str
    count: int
    deadline: float
    """Loop time at which the acquisition lock expires."""
    is_released: bool = False
    """Whether the session of the member has ended."""

    def is_over(self, now: float) -> bool:
        return self.is_released or self.deadline <= now


@dataclass(slots=True)
class Term:
    """A share-partition on one leader, from its load to its end."""

    leader_epoch: int
    owners: dict[int, Ownership] = field(default_factory=dict)
    """The last owner of each offset, also after the lock has expired."""
    counts: dict[int, int] = field(default_factory=dict)
    """The last delivery count by offset."""
    in_transition: Counter[int] = field(default_factory=Counter)
    """Offsets with an acknowledgement that is not durable yet."""


@dataclass(slots=True)
class Deliveries:
    """The history of one partition in one group, on all of its leaders."""

    terms: dict[ManagedSharePartition, Term] = field(default_factory=dict)
    highest: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The highest delivery count of each offset, and the highest leader epoch that delivered the offset."""
    durable: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The delivery count and the leader epoch of the last durable release of each offset."""
    finished: dict[int, int] = field(default_factory=dict)
    """The leader epoch of the durable accept or reject of each finished offset."""
    requested: set[int] = field(default_factory=set)
    """Offsets for which the owner has requested an accept or a reject, with or without a response."""
    acquired: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """Acquisitions by member id, offset and delivery count."""
    delivered: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """Records that an application has received, by member id, offset and delivery count."""
    accepted: set[tuple[str, int]] = field(default_factory=set)
    """Member id and offset of each requested accept."""
    granted: set[tuple[str, int, int]] = field(default_factory=set)
    """Member id, offset and type of each acknowledgement without an error."""


class ShareWatch:
    """All share-partitions of one run, and the violations with their times."""

    def __init__(self, lock_seconds: float, delivery_count_limit: int) -> None:
        self.lock_seconds = lock_seconds
        self.limit = delivery_count_limit
        self.violations: list[str] = []
        self.partitions: dict[tuple[str, int], Deliveries] = {}
        """The history by group and partition. A run has one topic."""
        self.acknowledged = 0
        """Records whose accept or reject is durable."""

    def of(self, group_id: str, partition: int) -> Deliveries:
        """Return the history of a partition in a group."""
        return self.partitions.setdefault((group_id, partition), Deliveries())

    def _say(self, violation: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(f"{_now():.3f} {violation}")

    # -- leaders ---------------------------------------------------------------------------------------------------

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe the leaders of all simulated brokers."""
        watch = self
        acquire, acknowledge = DelayedShareFetch._acquire, SharePartitionManager._acknowledge
        release = SharePartitionManager._release

        def observed_acquire(
            fetch: DelayedShareFetch, managed: ManagedSharePartition, *arguments: Any, **named: Any
        ) -> ShareFetchedRecords:
            found = acquire(fetch, managed, *arguments, **named)
            for first, last, count in found.acquired:
                watch._acquired(managed, fetch._fetch.member_id, range(first, last + 1), count)
            return found

        def observed_acknowledge(
            manager: SharePartitionManager,
            group_id: str,
            member_id: str,
            topic_id_partition: TopicIdPartition,
            batches: Any,
            acknowledged: Any,
        ) -> None:
            topic_id, _, index = topic_id_partition
            managed = manager._partitions.get(group_id, {}).get((topic_id, index))
            if managed is None:
                acknowledge(manager, group_id, member_id, topic_id_partition, batches, acknowledged)
                return
            request = watch._requested(managed, member_id, _types(batches))

            def done(place: TopicIdPartition, error: KafkaError | None) -> None:
                request.done(error)
                acknowledged(place, error)

            acknowledge(manager, group_id, member_id, topic_id_partition, batches, done)
            request.after_call()

        def observed_release(manager: SharePartitionManager, session: ShareSession) -> None:
            group_id, member_id = session.key
            for managed in manager._partitions.get(group_id, {}).values():
                watch._session_ended(managed, member_id)
            release(manager, session)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DelayedShareFetch, "_acquire", observed_acquire)
            patch.setattr(SharePartitionManager, "_acknowledge", observed_acknowledge)
            patch.setattr(SharePartitionManager, "_release", observed_release)
            yield

    def _term(self, managed: ManagedSharePartition) -> tuple[Deliveries, Term, str]:
        partition = managed.topic_id_partition.partition
        history = self.of(managed.group_id, partition)
        term = history.terms.get(managed)
        if term is None:
            term = history.terms[managed] = Term(managed.share.leader_epoch)
        return history, term, f"{managed.group_id}:{partition} in leader epoch {term.leader_epoch}"

    def _acquired(self, managed: ManagedSharePartition, member_id: str, offsets: range, count: int) -> None:
        history, term, name = self._term(managed)
        # Use the epoch of the partition: a leader that has missed an election may have an outdated share-partition.
        epoch, now = managed.partition.leader_epoch, _now()
        for offset in offsets:
            owner = term.owners.get(offset)
            record = f"{name}: offset {offset} is acquired by {member_id} with delivery count {count}"
            if owner is not None and not owner.is_over(now):
                self._say(f"two owners: {record}; {owner.member_id} has the lock until {owner.deadline:.3f}")
            if term.in_transition[offset]:
                self._say(f"transition: {record} during the write of an acknowledgement")
            # A former leader without current metadata may deliver records, but cannot acknowledge them.
            if history.finished.get(offset, epoch + 1) <= epoch:
                self._say(f"again: {record} after its acknowledgement in epoch {history.finished[offset]}")
            before = term.counts.get(offset)
            if before is not None and count != before + 1:
                self._say(f"count: {record} after {before}")
            durable, since = history.durable.get(offset, (0, epoch))
            if count <= durable and since <= epoch:
                self._say(f"count: {record}; its release with {durable} was durable")
            if count > self.limit:
                self._say(f"limit: {record}; the limit is {self.limit}")
            term.counts[offset] = count
            term.owners[offset] = Ownership(member_id, count, now + self.lock_seconds)
            highest, latest = history.highest.get(offset, (0, term.leader_epoch))
            history.highest[offset] = max(highest, count), max(latest, term.leader_epoch)
            history.acquired[member_id, offset, count] += 1

    def _requested(self, managed: ManagedSharePartition, member_id: str, types: Mapping[int, int]) -> Request:
        history, term, name = self._term(managed)
        owned = {
            offset: owner
            for offset in types
            if (owner := term.owners.get(offset)) is not None and owner.member_id == member_id
        }
        return Request(self, history, term, name, member_id, types, owned)

    def _session_ended(self, managed: ManagedSharePartition, member_id: str) -> None:
        _, term, _ = self._term(managed)
        for owner in term.owners.values():
            if owner.member_id == member_id:
                owner.is_released = True

    # -- applications ----------------------------------------------------------------------------------------------

    def delivered(self, group_id: str, partition: int, member_id: str, offset: int, count: int) -> None:
        """Record that an application has received a record."""
        history, key = self.of(group_id, partition), (member_id, offset, count)
        history.delivered[key] += 1
        if history.delivered[key] > history.acquired[key]:
            self._say(f"not acquired: {group_id}:{partition}: {key} was delivered {history.delivered[key]} times")

    def answered(self, group_id: str, partition: int, member_id: str, offset: int, kind: int) -> None:
        """Record that an application has received the result of an acknowledgement without an error."""
        if (member_id, offset, kind) not in self.of(group_id, partition).granted:
            name = AcknowledgementType(kind).name
            self._say(f"not acknowledged: {group_id}:{partition}: {name} of {offset} by {member_id}")

    # -- the end ---------------------------------------------------------------------------------------------------

    def check(self, written: Mapping[int, list[int]], groups: list[str]) -> list[str]:
        """Return all violations of a run whose groups have no lag. `written` has the offsets of each partition."""
        found = list(self.violations)
        for group_id in groups:
            for partition, offsets in written.items():
                history = self.of(group_id, partition)
                for offset in offsets:
                    count, _ = history.highest.get(offset, (0, 0))
                    if offset not in history.requested and count < self.limit:
                        found.append(f"lost: {group_id}:{partition}: offset {offset} was delivered {count} times")
                for member_id, offset in sorted(history.accepted):
                    if not any(key[:2] == (member_id, offset) for key in history.delivered):
                        found.append(f"unseen: {group_id}:{partition}: {member_id} accepted {offset} unseen")
        return found[:MAX_VIOLATIONS]


class Request:
    """One acknowledgement request for one partition, from its arrival to its result."""

    def __init__(
        self,
        watch: ShareWatch,
        history: Deliveries,
        term: Term,
        name: str,
        member_id: str,
        types: Mapping[int, int],
        owned: Mapping[int, Ownership],
    ) -> None:
        self._watch, self._history, self._term, self._name = watch, history, term, name
        self._member_id, self._types, self._owned = member_id, types, owned
        self._began = _now()
        self._is_done = self._is_written = False
        self._changed = [offset for offset in owned if types[offset] != AcknowledgementType.RENEW]

    def after_call(self) -> None:
        """Note that the request was valid, and that its changes are being written."""
        if not self._is_done:
            self._take_effect()
            self._is_written = True
            self._term.in_transition.update(self._changed)

    def _take_effect(self) -> None:
        """Extend the locks: renewals are in effect before the other acknowledgements of the request are durable."""
        for offset, owner in self._owned.items():
            kind = self._types[offset]
            if kind == AcknowledgementType.RENEW:
                owner.deadline = self._began + self._watch.lock_seconds
            if kind in FINAL:
                self._history.requested.add(offset)
            if kind == AcknowledgementType.ACCEPT:
                self._history.accepted.add((self._member_id, offset))

    def done(self, error: KafkaError | None) -> None:
        """Apply the result."""
        history, term = self._history, self._term
        self._is_done = True
        if self._is_written:
            term.in_transition.subtract(self._changed)
        elif error is None:
            self._take_effect()
        if error is not None:
            return
        for offset, kind in self._types.items():
            history.granted.add((self._member_id, offset, kind))
            other = term.owners.get(offset)
            if other is not None and other.member_id != self._member_id and not other.is_over(self._began):
                self._watch._say(f"foreign: {self._name}: offset {offset} of {other.member_id} by {self._member_id}")
        for offset in self._changed:
            owner, kind = self._owned[offset], self._types[offset]
            if term.owners.get(offset) is not owner:
                self._watch._say(f"stolen: {self._name}: offset {offset} during its acknowledgement")
            owner.is_released = True
            if kind not in FINAL:
                history.durable[offset] = max(history.durable.get(offset, (0, 0)), (owner.count, term.leader_epoch))
                continue
            _, latest = history.highest[offset]
            if latest > term.leader_epoch:
                self._watch._say(f"fenced: {self._name}: offset {offset} after its delivery in epoch {latest}")
            if offset not in history.finished:
                history.finished[offset] = term.leader_epoch
                self._watch.acknowledged += 1


def _types(batches: Any) -> dict[int, int]:
    """Return the acknowledge type of each offset."""
    types: dict[int, int] = {}
    for first, last, kinds in batches:
        count = last - first + 1
        if count > 0 and len(kinds) in (1, count):
            types |= zip(range(first, last + 1), kinds if len(kinds) == count else kinds * count, strict=True)
    return types


def _now() -> float:
    return asyncio.get_running_loop().time()
