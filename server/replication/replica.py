"""Kafka's Replica: the state of a follower at its leader; and the followers of one partition with its maximal ISR.

The ISR is changed by the controller (`leader_and_isr.py`). While a change is pending, an election may choose from
either set, so the high watermark depends on both (KIP-497): a replica that is about to join counts already,
and a replica that is about to leave still counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from .leader_and_isr import IsrChange

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NEVER_CAUGHT_UP = float("-inf")


class FollowerFetch(NamedTuple):
    """The state of a follower that its fetch of a partition reports."""

    replica_id: int
    broker_epoch: int
    """-1 before Fetch version 15."""
    offset: int
    """The follower has all records below."""
    log_start_offset: int
    knows_epoch: bool
    """Whether the fetch names the leader epoch."""


class Replica:
    """Kafka's Replica: the state of one follower, updated by its fetches. Times are loop seconds."""

    __slots__ = (
        "_last_fetch",
        "_leader_end_at_last_fetch",
        "broker_epoch",
        "broker_id",
        "last_caught_up",
        "last_sent_high_watermark",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, last_caught_up: float) -> None:
        self.broker_id = broker_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up = last_caught_up
        """The last time at which the follower had all records of the leader."""
        self.broker_epoch = UNKNOWN_EPOCH
        """The epoch of the follower's broker (KIP-903)."""
        self.last_sent_high_watermark = -1
        self._last_fetch = last_caught_up
        self._leader_end_at_last_fetch = UNKNOWN_OFFSET

    def begin_epoch(self, leader_end: int, now: float, *, is_in_sync: bool) -> None:
        """Begin a new epoch of the same leader: an in-sync follower gets the whole `replica.lag.time.max.ms` again."""
        self.last_caught_up = self._last_fetch = now if is_in_sync else NEVER_CAUGHT_UP
        self._leader_end_at_last_fetch = leader_end

    def check_epoch(self, broker_epoch: int) -> None:
        """Raise KafkaError NOT_LEADER_OR_FOLLOWER for a fetch from before the broker's last restart."""
        if UNKNOWN_EPOCH < broker_epoch < self.broker_epoch:
            reason = f"broker epoch {broker_epoch} of broker {self.broker_id} is older than {self.broker_epoch}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)

    def update_fetch_state(self, fetch: FollowerFetch, leader_end: int, now: float) -> None:
        """Apply a fetch that arrived while the leader's log end offset was `leader_end`.

        The follower is caught up now if it has all records, and was at its last fetch if it has the records of then.
        """
        offset = fetch.offset
        # Comparisons instead of max(), because a fetch reports a thousand unchanged partitions for each changed one.
        if offset >= leader_end:
            if self.last_caught_up < now:
                self.last_caught_up = now
        elif offset >= self._leader_end_at_last_fetch >= 0 and self.last_caught_up < self._last_fetch:
            self.last_caught_up = self._last_fetch
        self.log_end_offset, self.log_start_offset = offset, fetch.log_start_offset
        if self.broker_epoch < fetch.broker_epoch:
            self.broker_epoch = fetch.broker_epoch
        self._last_fetch = now
        if self._leader_end_at_last_fetch < leader_end:
            self._leader_end_at_last_fetch = leader_end

    def is_caught_up(self, leader_end: int, now: float, longest_lag: float) -> bool:
        """Whether it has all records, or had them within `longest_lag` seconds (`replica.lag.time.max.ms`)."""
        return self.log_end_offset == leader_end or now - self.last_caught_up <= longest_lag


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """The facts about the cluster that a leader needs."""

    broker_id: int
    """The id of this broker."""
    now: Callable[[], float]
    """Returns monotonic seconds."""
    longest_lag: Callable[[], float]
    """Returns `replica.lag.time.max.ms` in seconds."""
    is_eligible: Callable[[int, int], bool]
    """Whether a broker with a broker epoch (-1 if unknown) is alive and may join the ISR."""
    is_alive: Callable[[int], bool]


class Followers:
    """The other replicas of a partition during one leader epoch. Owned by the Partition; runs on the event loop."""

    __slots__ = ("_leader_context", "epoch_start", "isr", "pending", "replicas")

    def __init__(
        self,
        leader_context: LeaderContext,
        replicas: Iterable[int],
        isr: tuple[int, ...],
        epoch_start: int,
        former: Followers | None,
    ) -> None:
        """`former` is the state of the same leader in the previous epoch."""
        now = leader_context.now()
        self._leader_context = leader_context
        self.epoch_start = epoch_start
        """The leader's log end offset when the epoch began."""
        self.isr = isr
        """The committed ISR, with this broker."""
        self.pending: IsrChange | None = None
        """The change that the controller has not answered yet."""
        self.replicas: dict[int, Replica] = {}
        in_sync = frozenset(isr)
        for broker_id in replicas:
            if broker_id != leader_context.broker_id:
                known = None if former is None else former.replicas.get(broker_id)
                if known is not None:
                    known.begin_epoch(epoch_start, now, is_in_sync=broker_id in in_sync)
                self.replicas[broker_id] = known or Replica(broker_id, now if broker_id in in_sync else NEVER_CAUGHT_UP)

    def update(self, replicas: Iterable[int], isr: tuple[int, ...]) -> None:
        """Set the replicas and the ISR that the controller has committed in this leader epoch.

        A pending change is decided by it: if the controller has not made that change, it refuses it as outdated.
        """
        own, known = self._leader_context.broker_id, self.replicas
        self.replicas = {
            broker_id: known.get(broker_id) or Replica(broker_id, NEVER_CAUGHT_UP)
            for broker_id in replicas
            if broker_id != own
        }
        self.isr, self.pending = isr, None

    def replica(self, broker_id: int, *, knows_epoch: bool) -> Replica:
        """Return the follower on a broker.

        Raises KafkaError for a broker without a replica: UNKNOWN_LEADER_EPOCH if its fetch names the leader epoch, so
        that its metadata is newer than this broker's, else NOT_LEADER_OR_FOLLOWER.
        """
        found = self.replicas.get(broker_id)
        if found is None:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"broker {broker_id} has no replica of this partition")
        return found

    @property
    def maximal_isr(self) -> set[int]:
        """The replicas that may be elected, whether or not the pending change is committed (KIP-497)."""
        return {*self.isr, *(self.pending.isr if self.pending is not None else ())}

    @property
    def other_electable_replicas(self) -> set[int]:
        """The replicas that may be elected next, and may already lead without this broker's knowledge."""
        return self.maximal_isr - {self._leader_context.broker_id}

    def isr_min_log_end_offset(self, leader_end: int, durable_end: int) -> int:
        """Return the smallest log end offset of the maximal ISR, with `durable_end` for this broker.

        A replica that has caught up and is about to join counts, too: otherwise it could never reach the high watermark
        of a partition with constant writes.
        """
        maximal, least = self.maximal_isr, durable_end
        for replica in self.replicas.values():
            end = replica.log_end_offset
            if end < least and (replica.broker_id in maximal or self._is_about_to_join(replica, leader_end)):
                least = end
        return least

    def _is_about_to_join(self, replica: Replica, leader_end: int) -> bool:
        leader_context = self._leader_context
        return replica.is_caught_up(
            leader_end, leader_context.now(), leader_context.longest_lag()
        ) and self._is_eligible(replica)

    def _is_eligible(self, replica: Replica) -> bool:
        return self._leader_context.is_eligible(replica.broker_id, replica.broker_epoch)

    def expanded_isr(self, replica: Replica, high_watermark: int) -> tuple[int, ...] | None:
        """Return the ISR with a follower that has all committed records and the log start of this epoch, or None."""
        end = replica.log_end_offset
        if self.pending is not None or replica.broker_id in self.isr or end < max(high_watermark, self.epoch_start):
            return None
        return (*self.isr, replica.broker_id) if self._is_eligible(replica) else None

    def shrunken_isr(self, leader_end: int) -> tuple[int, ...] | None:
        """Return the ISR without the replicas that lag too long, or None if there are none."""
        if self.pending is not None:
            return None
        now, longest = self._leader_context.now(), self._leader_context.longest_lag()
        lagging = {one.broker_id for one in self.replicas.values() if not one.is_caught_up(leader_end, now, longest)}
        kept = tuple(broker_id for broker_id in self.isr if broker_id not in lagging)
        return kept if len(kept) < len(self.isr) else None

    def broker_epochs(self, isr: Iterable[int]) -> tuple[int, ...]:
        """Return the broker epochs of these replicas, -1 where unknown."""
        known = self.replicas
        return tuple(known[one].broker_epoch if one in known else UNKNOWN_EPOCH for one in isr)

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start offset of the live replicas, with `log_start_offset` for this broker."""
        starts = [
            one.log_start_offset for one in self.replicas.values() if self._leader_context.is_alive(one.broker_id)
        ]
        return min([log_start_offset, *starts])
