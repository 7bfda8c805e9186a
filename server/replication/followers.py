"""What a leader of several replicas knows of the others, and who of them is in sync (KIP-497's maximal ISR).

The set is changed by asking (`isr_changes.py`). While a change is on its way nobody knows which set an election would
choose from, so the high watermark counts on both: who is to join counts already, who is to leave counts still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from .isr_changes import IsrChange
from .replica import NEVER_CAUGHT_UP, UNKNOWN_EPOCH, Replica


@dataclass(frozen=True, slots=True)
class Peers:
    """What partitions have to know of the cluster around their broker."""

    broker_id: int
    """This broker's."""
    now: Callable[[], float]
    """Seconds that never go back."""
    longest_lag: Callable[[], float]
    """Seconds, `replica.lag.time.max.ms`."""
    is_eligible: Callable[[int, int], bool]
    """Whether a broker, in a life with that epoch (-1 if it told none), is alive and may become in sync."""
    is_alive: Callable[[int], bool]


class Followers:
    """Of one partition in one term of its leader. Loop-thread only."""

    __slots__ = ("_peers", "epoch_start", "isr", "pending", "replicas")

    def __init__(
        self, peers: Peers, replicas: Iterable[int], isr: tuple[int, ...], epoch_start: int, former: Followers | None
    ) -> None:
        """`former` is what the same leader knew in the term before this one."""
        now = peers.now()
        self._peers = peers
        self.epoch_start = epoch_start
        """Where the log ended when the term began."""
        self.isr = isr
        """As it is written down, this broker included."""
        self.pending: IsrChange | None = None
        """The change that is on its way."""
        self.replicas: dict[int, Replica] = {}
        in_sync = frozenset(isr)
        for broker_id in replicas:
            if broker_id != peers.broker_id:
                known = None if former is None else former.replicas.get(broker_id)
                if known is not None:
                    known.next_term(epoch_start, now, is_in_sync=broker_id in in_sync)
                self.replicas[broker_id] = known or Replica(broker_id, now if broker_id in in_sync else NEVER_CAUGHT_UP)

    def replica(self, broker_id: int, *, knows_epoch: bool) -> Replica:
        """The follower on a broker.

        Raises KafkaError for a broker that has none: UNKNOWN_LEADER_EPOCH if it follows in this very term, as it knows
        more than this broker, else NOT_LEADER_OR_FOLLOWER.
        """
        found = self.replicas.get(broker_id)
        if found is None:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"broker {broker_id} has no replica of this partition")
        return found

    @property
    def maximal_isr(self) -> set[int]:
        """Who an election may choose from, however the change that is on its way ends."""
        return {*self.isr, *(self.pending.isr if self.pending is not None else ())}

    @property
    def heirs(self) -> set[int]:
        """Who may lead next, and perhaps does without this broker having heard of it."""
        return self.maximal_isr - {self._peers.broker_id}

    def least_end(self, leader_end: int, durable_end: int) -> int:
        """How far the log is on all replicas that count, `durable_end` being how far it is on this one.

        Who has caught up and is about to join counts, too: else it could never get up to the high watermark of a
        partition that is written to all the time.
        """
        maximal, least = self.maximal_isr, durable_end
        for replica in self.replicas.values():
            end = replica.log_end_offset
            if end < least and (replica.broker_id in maximal or self._is_about_to_join(replica, leader_end)):
                least = end
        return least

    def _is_about_to_join(self, replica: Replica, leader_end: int) -> bool:
        peers = self._peers
        return replica.is_caught_up(leader_end, peers.now(), peers.longest_lag()) and self._is_eligible(replica)

    def _is_eligible(self, replica: Replica) -> bool:
        return self._peers.is_eligible(replica.broker_id, replica.broker_epoch)

    def grown_isr(self, replica: Replica, high_watermark: int) -> tuple[int, ...] | None:
        """The set with a follower that has everything which is committed or older than this term; None if it stays."""
        end = replica.log_end_offset
        if self.pending is not None or replica.broker_id in self.isr or end < max(high_watermark, self.epoch_start):
            return None
        return (*self.isr, replica.broker_id) if self._is_eligible(replica) else None

    def shrunk_isr(self, leader_end: int) -> tuple[int, ...] | None:
        """The set without those that have not caught up for too long; None if it stays."""
        if self.pending is not None:
            return None
        now, longest = self._peers.now(), self._peers.longest_lag()
        lagging = {one.broker_id for one in self.replicas.values() if not one.is_caught_up(leader_end, now, longest)}
        kept = tuple(broker_id for broker_id in self.isr if broker_id not in lagging)
        return kept if len(kept) < len(self.isr) else None

    def broker_epochs(self, isr: Iterable[int]) -> tuple[int, ...]:
        """Of these brokers, as far as they have told them."""
        known = self.replicas
        return tuple(known[one].broker_epoch if one in known else UNKNOWN_EPOCH for one in isr)

    def low_watermark(self, log_start_offset: int) -> int:
        """The lowest offset that any live replica still has, this one's beginning at `log_start_offset`."""
        starts = [one.log_start_offset for one in self.replicas.values() if self._peers.is_alive(one.broker_id)]
        return min([log_start_offset, *starts])
