"""The position in the metadata log up to which an image contains records."""

from __future__ import annotations

from typing import NamedTuple


class MetadataProvenance(NamedTuple):
    """Offset, epoch and append time (milliseconds) of the last record in an image.

    `is_offset_batch_aligned` is False if the record is in the middle of a batch; no snapshot can end there.
    """

    last_contained_offset: int = -1
    last_contained_epoch: int = -1
    last_contained_log_time_ms: int = -1
    is_offset_batch_aligned: bool = True
