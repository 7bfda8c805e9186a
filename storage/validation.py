"""The check of records as a job for a lane, for those that take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..protocol.errors import ErrorCode, KafkaError
from .record_validator import ValidationResult, validate_and_assign

if TYPE_CHECKING:
    from .log import Log

Validate: TypeAlias = Callable[..., ValidationResult]
"""`validate_and_assign`, or a `Validation` that has run."""


class Validation:
    """What `Log.append_as_leader` does first with a client's records, done by `run`, which any thread calls once."""

    def __init__(self, log: Log, records: memoryview, *, leader_epoch: int, produce_version: int, now_ms: int) -> None:
        self._records = records
        self._terms: dict[str, Any] = {
            "base_offset": log.log_end_offset,
            "config": log.config,
            "leader_epoch": leader_epoch,
            "require_single_v2_batch": produce_version >= 3,
            "allow_zstd": produce_version >= 7,
            "target_magic": log.config.message_magic,
        }
        self._now_ms = now_ms
        self._result: ValidationResult | KafkaError = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "not validated")

    def run(self) -> None:
        """Check the records, whatever time it takes."""
        # The buffer is patched: if the result does not count in the end, the records are needed as they came.
        records = memoryview(bytearray(self._records))
        try:
            self._result = validate_and_assign(records, now_ms=self._now_ms, **self._terms)
        except KafkaError as error:
            self._result = error.as_result()

    def __call__(self, records: memoryview, **terms: Any) -> ValidationResult:
        """What `run` found, if it went by the same terms. Raises as `validate_and_assign`."""
        if any(terms[name] != value for name, value in self._terms.items()):
            return validate_and_assign(records, **terms)
        if isinstance(self._result, KafkaError):
            raise self._result
        return self._result
