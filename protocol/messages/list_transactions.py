"""ListTransactions (key 66): transactions this broker coordinates.

Versions 0-2, flexible from 0.
   1  duration filter (KIP-994)
   2  transactional-id pattern filter (KIP-1152)
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message(versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = wire([string], "0+")
    producer_id_filters: list[int] = wire([int64], "0+")
    duration_filter: int = wire(int64, "1+", default=-1)
    transactional_id_pattern: str | None = wire(string, "2+", null="2+", default=None)


@message
class TransactionState:
    transactional_id: str = wire(string, "0+")
    producer_id: int = wire(int64, "0+")
    transaction_state: str = wire(string, "0+")


@message(versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    unknown_state_filters: list[str] = wire([string], "0+")
    transaction_states: list[TransactionState] = wire([TransactionState], "0+")
