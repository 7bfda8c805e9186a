"""Markers: control batches that end a transaction on the partitions that took part in it (WriteTxnMarkers)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.record_batch import ControlType, control_batch
from ...metadata.topic_names import GROUP_METADATA_TOPIC
from ...runtime.turns import MARKERS
from .metadata import Place

if TYPE_CHECKING:
    from ...replication.delayed_produce import AppendResult
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.turns import LongWork

PRODUCE_VERSION = 7

Written = Callable[[dict[Place, ErrorCode]], None]


class TransactionMarker(NamedTuple):
    """What ends a transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class OffsetsInTransactions(Protocol):
    """Whoever keeps the offsets that are committed in transactions (`GroupCoordinator`)."""

    def check_loaded(self, index: int) -> None:
        """Raises KafkaError unless groups of that partition of `__consumer_offsets` are served here."""

    def end_transaction(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """The marker is durable: offsets of the producer's transaction count from now on, or never."""


class MarkerWriter:
    """Writes markers into partitions that this broker leads. Loop-thread only."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        offsets: OffsetsInTransactions,
        now_ms: Callable[[], int],
        timeout_ms: Callable[[], int],
        long_work: LongWork,
    ) -> None:
        self._replicas = replica_manager
        self._offsets = offsets
        self._long_work = long_work
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms

    def write(self, marker: TransactionMarker, places: Iterable[Place], written: Written) -> None:
        """Append the marker to each partition; `written` is told for each how it went, once all are durable or not.

        Of very many partitions some are written in each turn.
        """
        self._write_on(marker, list(dict.fromkeys(places)), {}, written)

    def _write_on(
        self, marker: TransactionMarker, left: list[Place], outcomes: dict[Place, ErrorCode], written: Written
    ) -> None:
        some = left[-MARKERS:]
        del left[-MARKERS:]

        def some_written(found: dict[Place, ErrorCode]) -> None:
            outcomes.update(found)
            if left:
                self._long_work.later(partial(self._write_on, marker, left, outcomes, written))
            else:
                written(outcomes)

        self._write_some(marker, some, some_written)

    def _write_some(self, marker: TransactionMarker, places: list[Place], written: Written) -> None:
        outcomes: dict[Place, ErrorCode] = {}
        wanted: list[Place] = []
        for place in places:
            error = self._refusal(place)
            if error is ErrorCode.NONE:
                wanted.append(place)
            else:
                outcomes[place] = error
        if not wanted:
            written(outcomes)
            return

        def appended(results: list[AppendResult]) -> None:
            for place, result in zip(wanted, results, strict=True):
                outcomes[place] = result.code if isinstance(result, KafkaError) else ErrorCode.NONE
                if place[0] == GROUP_METADATA_TOPIC and outcomes[place] is ErrorCode.NONE:
                    self._offsets.end_transaction(place[1], marker.producer_id, is_commit=marker.is_commit)
            written(outcomes)

        for place in wanted:
            self._replicas.verified.forget(place, marker.producer_id)
        batch = control_batch(
            ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._now_ms(),
        )
        self._replicas.append_records(
            [(*place, memoryview(bytearray(batch))) for place in wanted],
            -1,
            self._timeout_ms(),
            appended,
            produce_version=PRODUCE_VERSION,
            origin="coordinator",
        )

    def _refusal(self, place: Place) -> ErrorCode:
        """The error if no marker can be written there, else NONE."""
        try:
            config = self._replicas.log_config(*place)
            if place[0] == GROUP_METADATA_TOPIC:
                self._offsets.check_loaded(place[1])
        except KafkaError as error:
            return _AS_TOLD.get(error.code, error.code)
        return ErrorCode.NONE if config.message_magic == 2 else ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


_AS_TOLD = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""To whom a marker is refused a coordinator is a leader like others."""
