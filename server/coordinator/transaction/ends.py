"""What EndTxn comes to, by the protocol that the producer speaks. Functions of what is known; no I/O, no time.

Kafka's TransactionCoordinator.endTransaction and endTransactionWithTV1. A producer of version 2 gets a new epoch with
each end (KIP-890), so a request that is one epoch behind is a repetition, and one with the present epoch is not:

| state           | abort, again | abort   | commit, again | commit  |
|-----------------|--------------|---------|---------------|---------|
| Empty           | fenced       | bump    | fenced        | invalid |
| CompleteAbort   | done         | bump    | invalid       | invalid |
| CompleteCommit  | invalid      | bump    | done          | invalid |
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from .metadata import LAST_EPOCH, TransactionMetadata
from .states import COMPLETED, ENDING, TransactionState

_S = TransactionState

Outcome = TransactionState | ErrorCode
"""The state to go to, or the answer: NONE if what is asked for is done already."""


def end_v1(known: TransactionMetadata, producer_id: int, epoch: int, wanted: TransactionState) -> Outcome:
    """`wanted` is PREPARE_COMMIT or PREPARE_ABORT."""
    if known.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if epoch != known.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state is _S.ONGOING:
        return wanted
    if known.state is wanted:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if known.state is COMPLETED[wanted] else ErrorCode.INVALID_TXN_STATE


def end_v2(known: TransactionMetadata, producer_id: int, epoch: int, wanted: TransactionState) -> Outcome:
    """As `end_v1`, for producers whose epoch counts their transactions."""
    is_after_overflow = known.previous_id == producer_id and epoch == LAST_EPOCH - 1 and known.producer_epoch == 0
    if known.producer_id != producer_id and not is_after_overflow:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_again = known.producer_epoch == epoch + 1 or is_after_overflow
    if not _is_epoch_in_order(known, epoch, is_after_overflow=is_after_overflow):
        return ErrorCode.PRODUCER_FENCED
    if known.state is _S.ONGOING:
        return wanted
    if known.state is wanted:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if is_again:
        return ErrorCode.NONE if known.state is COMPLETED[wanted] else ErrorCode.INVALID_TXN_STATE
    # There is nothing to commit; a producer that does not know whether there is something to abort may ask for it.
    is_abort = wanted is _S.PREPARE_ABORT and known.state not in ENDING
    return wanted if is_abort else ErrorCode.INVALID_TXN_STATE


def _is_epoch_in_order(known: TransactionMetadata, epoch: int, *, is_after_overflow: bool) -> bool:
    """The present epoch where a transaction can be open, the one before where it has been ended."""
    is_before, is_present = known.producer_epoch == epoch + 1, known.producer_epoch == epoch
    if known.state in ENDING:
        return is_before
    if known.state in (_S.ONGOING, _S.EMPTY):
        return is_present
    return is_before or is_present or is_after_overflow
