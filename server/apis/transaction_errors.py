"""What older clients are told instead of errors that came with later versions of an API."""

from __future__ import annotations

from ...protocol.errors import ErrorCode


def known_to(version: int, first_with_fencing: int, error: ErrorCode) -> ErrorCode:
    """PRODUCER_FENCED is INVALID_PRODUCER_EPOCH to clients from before KIP-588."""
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < first_with_fencing
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error
