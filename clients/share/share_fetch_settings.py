"""The settings of a share consumer, with the names and defaults of Kafka's Java client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ShareAcknowledgementMode(Enum):
    """Kafka's `share.acknowledgement.mode`."""

    IMPLICIT = "implicit"
    EXPLICIT = "explicit"


class ShareAcquireMode(Enum):
    """Kafka's `share.acquire.mode` (KIP-1206): whole batches, or never more records than `max_poll_records`."""

    BATCH_OPTIMIZED = "batch_optimized"
    RECORD_LIMIT = "record_limit"

    @property
    def wire_id(self) -> int:
        return 0 if self is ShareAcquireMode.BATCH_OPTIMIZED else 1


@dataclass(frozen=True, slots=True)
class ShareFetchSettings:
    """Settings of fetches and acknowledgements. Raises ValueError for values that Kafka rejects."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    max_poll_records: int
    check_crcs: bool
    acquire_mode: ShareAcquireMode
    request_timeout_ms: int
    default_api_timeout_ms: int

    def __post_init__(self) -> None:
        if self.max_poll_records < 1:
            raise ValueError(f"max_poll_records: invalid value {self.max_poll_records}. Expected at least 1")
        for name in ("min_bytes", "max_bytes", "max_wait_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"fetch_{name}: invalid value {getattr(self, name)}. Expected at least 0")
