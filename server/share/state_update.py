"""State changes of a share-partition that the persister writes together."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ..coordinator.share.persister_state_batch_combiner import PersisterStateBatch
from .record_state import RecordState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .in_flight_batch import InFlightState


class DeadLetterCause(Enum):
    """The reason why records are written to the dead-letter queue: the value of the header `__dlq.errors.message`."""

    CLIENT_REJECT = "Offset rejected by client."
    DELIVERY_COUNT_EXCEEDED = "Offset delivery count exceeded the threshold."


class StateChange(NamedTuple):
    """A new state of one run. `batch` has its offsets, because a move of the log start offset may shorten the run."""

    state: InFlightState
    batch: PersisterStateBatch
    cause: DeadLetterCause | None


class StateUpdate:
    """The changes of one acknowledgement, release or lock timeout: Kafka's list of PersisterBatch."""

    __slots__ = ("changes", "is_immediate")

    def __init__(self, *, is_immediate: bool = False) -> None:
        self.changes: list[StateChange] = []
        self.is_immediate = is_immediate
        """Whether the changes remain in effect if the persister cannot write them, as for expired acquisition locks."""

    def __bool__(self) -> bool:
        return bool(self.changes)

    def add(self, state: InFlightState, cause: DeadLetterCause | None = None) -> None:
        """Add the current state of a run."""
        batch = PersisterStateBatch(state.first_offset, state.last_offset, state.state, state.delivery_count)
        self.changes.append(StateChange(state, batch, cause if state.state is RecordState.ARCHIVING else None))


def merged_batches(updates: Iterable[StateUpdate]) -> list[PersisterStateBatch]:
    """Return the batches of several updates in their order, with adjacent batches of equal state joined."""
    merged: list[PersisterStateBatch] = []
    for update in updates:
        for _, batch, _ in update.changes:
            last = merged[-1] if merged else None
            if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
                merged[-1] = last._replace(last_offset=batch.last_offset)
            else:
                merged.append(batch)
    return merged
