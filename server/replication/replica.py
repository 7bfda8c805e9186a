"""What a leader knows of one of its followers (Kafka's Replica)."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NEVER_CAUGHT_UP = float("-inf")


class FollowerFetch(NamedTuple):
    """What a follower says by asking for the next records of a partition."""

    replica_id: int
    broker_epoch: int
    """-1 before Fetch 15."""
    offset: int
    """Everything below is there."""
    log_start_offset: int
    knows_epoch: bool
    """Whether it has named the epoch of the leader that it follows."""


class Replica:
    """A follower by its fetches: to ask for an offset is to say that everything below is there. Times are seconds."""

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
        """When it last had all that the leader had."""
        self.broker_epoch = UNKNOWN_EPOCH
        """Which life of its broker fetches (KIP-903)."""
        self.last_sent_high_watermark = -1
        self._last_fetch = last_caught_up
        self._leader_end_at_last_fetch = UNKNOWN_OFFSET

    def next_term(self, leader_end: int, now: float, *, is_in_sync: bool) -> None:
        """The same leader goes on in a new epoch: who is in sync has the whole time that may pass, anew."""
        self.last_caught_up = self._last_fetch = now if is_in_sync else NEVER_CAUGHT_UP
        self._leader_end_at_last_fetch = leader_end

    def check_epoch(self, broker_epoch: int) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER for a fetch that an earlier life of the broker has sent."""
        if UNKNOWN_EPOCH < broker_epoch < self.broker_epoch:
            reason = f"broker {self.broker_id} has fetched with epoch {self.broker_epoch}, and this is {broker_epoch}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)

    def fetched(self, fetch: FollowerFetch, leader_end: int, now: float) -> None:
        """It has asked for more while the leader's log ended at `leader_end`.

        Caught up it is now if it has everything, and was at its last fetch if it has what was there then.
        """
        offset = fetch.offset
        # Comparisons instead of max(): a follower says this of a thousand partitions for each that has news.
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
        """Whether it has everything, or had so lately (`replica.lag.time.max.ms`)."""
        return self.log_end_offset == leader_end or now - self.last_caught_up <= longest_lag
