"""What a follower appends: many batches at once, as the leader has them, the last one perhaps cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.logs import append, batch, offsets_in, open_log

from barnabas.protocol.errors import ErrorCode, KafkaError


def fetched(*epochs: int, first: int = 0) -> bytes:
    """A leader's batches of two records, one for each epoch, as a fetch brings them."""
    return b"".join(
        batch(2, base_offset=first + 2 * number, partition_leader_epoch=epoch) for number, epoch in enumerate(epochs)
    )


def test_epochs_begin_where_the_leader_began_them(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    info = log.append_as_follower(memoryview(bytearray(fetched(0, 0, 3, 3, 4))))
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 9, 10)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (3, 4), (4, 8)]
    assert offsets_in(log) == list(range(10))
    assert bytes(log.read(0, 1 << 20).data) == fetched(0, 0, 3, 3, 4)


@pytest.mark.parametrize("kept", [1, 11, 12, 60, 61, 70])
def test_a_batch_cut_off_at_the_end_comes_again(tmp_path: Path, kept: int) -> None:
    log = open_log(tmp_path / "t-0")
    whole = fetched(0, 1)
    cut = whole + bytes(fetched(2, first=4))[:kept]
    assert log.append_as_follower(memoryview(bytearray(cut))).last_offset == 3
    assert (log.log_end_offset, log.size) == (4, len(whole))
    assert log.append_as_follower(memoryview(bytearray(fetched(2, first=4)))).first_offset == 4
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (1, 2), (2, 4)]
    log.flush()
    log.close_handles()
    again = open_log(tmp_path / "t-0", clean=False)
    assert offsets_in(again) == list(range(6))
    assert again.leader_epochs.latest_epoch == 2


def test_offsets_below_the_end_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, 4)
    with pytest.raises(KafkaError):
        log.append_as_follower(memoryview(bytearray(fetched(0, first=2))))
    assert (log.log_end_offset, offsets_in(log)) == (4, [0, 1, 2, 3])


def test_a_damaged_batch_spoils_none_of_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    data = bytearray(fetched(0, 0))
    data[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.size) == (0, 0)
