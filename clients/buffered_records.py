"""Fetched records that wait for the application: returned partition by partition, which moves the positions."""

from __future__ import annotations

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .assignment import Assignment, TopicPartitionState
from .fetched_records import ConsumerRecord
from .fetcher import Fetcher


class BufferedRecords:
    """The buffers of all assigned partitions."""

    def __init__(self, assignment: Assignment, fetcher: Fetcher) -> None:
        self._assignment = assignment
        self._fetcher = fetcher

    def take(self, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to this number of records by partition, and move the positions after them. Raises the error of a
        partition.
        """
        self._fetcher.data_ready.clear()
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for state in list(self._assignment.states.values()):
            if state.error is not None:
                if taken:
                    self._fetcher.data_ready.set()
                    break
                raise_error_of(state, self._fetcher)
            if state.buffered is None or state.is_paused:
                continue
            records = self._take_from(state, max_records)
            if records:
                taken[state.partition] = records
                max_records -= len(records)
                if max_records <= 0:
                    self._fetcher.data_ready.set()
                    break
        return taken

    def _take_from(self, state: TopicPartitionState, max_records: int) -> list[ConsumerRecord]:
        fetched = state.buffered
        assert fetched is not None
        try:
            records = fetched.take(max_records)
        except KafkaError as error:
            state.fail(error)
            self._fetcher.data_ready.set()
            return []
        state.position = fetched.next_offset
        if fetched.leader_epoch >= 0:
            state.position_epoch = fetched.leader_epoch
        if len(records) < max_records:
            state.buffered = None
            self._assignment.move_to_end(state.partition)
            self._fetcher.wake()
        return records


def raise_error_of(state: TopicPartitionState, fetcher: Fetcher) -> None:
    """Raise the error once, and try again later: only a position outside of the log requires a seek."""
    error = state.error
    if error is not None:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            state.error = None
            fetcher.wake()
        raise error
