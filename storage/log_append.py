"""What producer state has to say before a batch is appended."""

from collections.abc import Sequence

from ..protocol.record_batch import RecordBatch
from .log_config import LogConfig
from .log_values import LogAppendInfo
from .producer_state import ProducedBatch, ProducerStateManager
from .record_validator import Origin
from .validation_result import ValidationResult


def check_producers(
    state: ProducerStateManager, batches: Sequence[RecordBatch], origin: Origin
) -> ProducedBatch | None:
    """Judge batches with producer ids before they are written; the earlier append that they repeat, if they do.

    Raises `KafkaError` as `ProducerStateManager.check` and `check_marker`.
    """
    is_client = origin == "client"
    for batch in batches:
        header = batch.header
        if not header.is_control:
            duplicate = state.check(header, is_client=is_client)
            if duplicate is not None:
                return duplicate
        elif (marker := batch.end_marker) is not None:
            state.check_marker(header, marker.coordinator_epoch)
    return None


def duplicate_info(batch: ProducedBatch, log_start_offset: int, config: LogConfig) -> LogAppendInfo:
    """The answer to a repeated batch: what the first one was answered."""
    append_time = batch.timestamp if config.message_timestamp_type == "LogAppendTime" else -1
    return LogAppendInfo(
        batch.first_offset,
        batch.last_offset,
        batch.timestamp,
        append_time,
        log_start_offset,
        record_count=batch.offset_delta + 1,
        bytes=0,
        duplicate=True,
    )


def append_info(result: ValidationResult, log_start_offset: int) -> LogAppendInfo:
    """The answer to an append."""
    return LogAppendInfo(
        result.first_offset,
        result.last_offset,
        result.max_timestamp,
        result.log_append_time_ms,
        log_start_offset,
        result.record_count,
        len(result.records),
    )
