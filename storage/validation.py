"""The check of records as a job of its own, for those that take so long that nobody shall wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from .record_validator import ValidationResult, validate_and_assign

if TYPE_CHECKING:
    from .log import Log
    from .log_config import LogConfig


class Validation:
    """What `Log.append_as_leader` does first with a client's records. `run` is called once, on any thread."""

    def __init__(self, log: Log, records: memoryview, *, leader_epoch: int, produce_version: int, now_ms: int) -> None:
        self._records = records
        self._base_offset = log.log_end_offset
        self._config = log.config
        self._leader_epoch = leader_epoch
        self._produce_version = produce_version
        self._now_ms = now_ms
        self._result: ValidationResult | KafkaError = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "not validated")

    def run(self) -> None:
        """Check the records, whatever time it takes."""
        try:
            self._result = validate_and_assign(
                # The buffer is patched: if the result does not count in the end, the records are needed as they came.
                memoryview(bytearray(self._records)),
                base_offset=self._base_offset,
                now_ms=self._now_ms,
                config=self._config,
                leader_epoch=self._leader_epoch,
                require_single_v2_batch=self._produce_version >= 3,
                allow_zstd=self._produce_version >= 7,
                target_magic=self._config.message_magic,
            )
        except KafkaError as error:
            self._result = error.as_result()

    def fits(self, base_offset: int, leader_epoch: int, config: LogConfig) -> bool:
        """Whether the result is what it would be now."""
        return (base_offset, leader_epoch) == (self._base_offset, self._leader_epoch) and config is self._config

    def outcome(self) -> ValidationResult:
        """What `run` found. Raises KafkaError as `validate_and_assign`, or if it broke off."""
        if isinstance(self._result, KafkaError):
            raise self._result
        return self._result
