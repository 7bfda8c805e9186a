"""Kafka's InFlightBatch and InFlightState: acquired batches and the delivery states of their offsets.

Kafka keeps one state per batch, and one per offset when the offsets of the batch differ. Barnabas keeps one state per
run of offsets with equal states, so that the cost of a batch does not depend on the number of its records.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from .record_state import RecordState

by_first_offset = attrgetter("first_offset")
by_last_offset = attrgetter("last_offset")

NO_MEMBER = ""
"""The owner of records that are not acquired."""


class RollbackState(NamedTuple):
    """The owner and the lock of ACQUIRED records before a state change that is not persisted yet."""

    member_id: str
    lock_deadline: float


class InFlightState:
    """The state of a run of consecutive offsets of one in-flight batch."""

    __slots__ = (
        "delivery_count",
        "first_offset",
        "is_tracked",
        "last_offset",
        "lock_deadline",
        "member_id",
        "rollback_state",
        "state",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        state: RecordState,
        delivery_count: int,
        *,
        member_id: str = NO_MEMBER,
        lock_deadline: float = 0.0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        """The last offset, inclusive."""
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_deadline = lock_deadline
        """Loop time at which the acquisition lock expires, while ACQUIRED."""
        self.rollback_state: RollbackState | None = None
        """Set while the persister writes the state change that `state` already shows."""
        self.is_tracked = True
        """Whether the run is still part of its share-partition."""

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def __repr__(self) -> str:
        pending = "*" if self.has_ongoing_state_transition else ""
        return f"{self.first_offset}-{self.last_offset} {self.state.name}{pending} {self.delivery_count}"

    @property
    def has_ongoing_state_transition(self) -> bool:
        """Whether the persister has not written the state yet."""
        return self.rollback_state is not None

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire the records now."""
        return self.state is RecordState.AVAILABLE and self.rollback_state is None

    @property
    def is_finished(self) -> bool:
        """Whether the records have reached their durable last state."""
        return self.state.is_terminal and self.rollback_state is None


class InFlightBatch:
    """Consecutive offsets that were acquired together, as runs in ascending order without gaps.

    A batch with `is_unread` represents offsets that no member has acquired since the state was loaded. It consists of a
    single AVAILABLE run, which is replaced by batches as fetches reach it.
    """

    __slots__ = ("is_unread", "states")

    def __init__(self, state: InFlightState, *, is_unread: bool = False) -> None:
        self.states = [state]
        self.is_unread = is_unread

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def __repr__(self) -> str:
        return f"InFlightBatch({self.states})"

    @property
    def first_offset(self) -> int:
        return self.states[0].first_offset

    @property
    def last_offset(self) -> int:
        return self.states[-1].last_offset

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightState]:
        """Return the runs that contain at least one of these offsets."""
        states = self.states
        if len(states) == 1:
            only = states[0]
            return states[:] if only.last_offset >= first_offset and only.first_offset <= last_offset else []
        begin = bisect_left(states, first_offset, key=by_last_offset)
        return states[begin : bisect_left(states, last_offset + 1, begin, key=by_first_offset)]

    def split(self, state: InFlightState, offset: int) -> InFlightState:
        """Cut a run without an ongoing state transition, so that a new run, which is returned, begins at `offset`."""
        assert state.first_offset < offset <= state.last_offset, f"split of {state} at {offset}"
        assert state.rollback_state is None, f"split of {state} during a state transition"
        rest = InFlightState(
            offset,
            state.last_offset,
            state.state,
            state.delivery_count,
            member_id=state.member_id,
            lock_deadline=state.lock_deadline,
        )
        state.last_offset = offset - 1
        self.states.insert(bisect_left(self.states, offset, key=by_first_offset), rest)
        return rest
