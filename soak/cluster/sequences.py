"""The sequence numbers of idempotent producers in the log of a partition."""

from __future__ import annotations

from barnabas.protocol.record_batch import RecordBatch, iter_batches

_SEQUENCES = 2**31


def sequence_violations(log: bytes, partition: str) -> list[str]:
    """Return the batches that a leader must reject according to Kafka's ProducerAppendInfo.

    `log` begins with the first record of the partition. In each epoch of a producer the sequence numbers begin at 0,
    without gaps or repetitions. Epochs never decrease.
    """
    found = []
    following: dict[int, tuple[int, int]] = {}
    for batch in iter_batches(log):
        assert isinstance(batch, RecordBatch), "idempotent producers write batches of format 2"
        header = batch.header
        if header.producer_id < 0 or header.is_control:
            continue
        epoch, sequence = following.get(header.producer_id, (header.producer_epoch, 0))
        if header.producer_epoch > epoch:
            sequence = 0
        if header.producer_epoch < epoch or header.base_sequence != sequence:
            found.append(
                f"sequence: producer {header.producer_id} with epoch {header.producer_epoch} wrote sequence "
                f"{header.base_sequence} at {header.base_offset} of {partition} instead of {sequence} in epoch {epoch}"
            )
        following[header.producer_id] = header.producer_epoch, (header.last_sequence + 1) % _SEQUENCES
    return found
