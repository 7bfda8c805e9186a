"""What a segment remembers of its newest batches."""

from barnabas.storage.log_segment import SegmentTail


def test_the_last_batch_at_or_below_an_offset_is_found() -> None:
    tail = SegmentTail()
    assert tail.floor(0) is None
    for first_offset, position in ((10, 0), (13, 200), (20, 300)):
        tail.append(first_offset, position)
    found = {offset: tail.floor(offset) for offset in (9, 10, 12, 13, 19, 20, 99)}
    assert found == {9: None, 10: (10, 0), 12: (10, 0), 13: (13, 200), 19: (13, 200), 20: (20, 300), 99: (20, 300)}
    tail.clear()
    assert tail.floor(20) is None


def test_the_newest_are_kept_without_a_gap_and_old_ones_forgotten() -> None:
    tail = SegmentTail()
    for offset in range(5000):
        tail.append(offset, 70 * offset)
        assert tail.floor(offset) == (offset, 70 * offset)
    known = [offset for offset in range(5000) if tail.floor(offset) is not None]
    assert known == list(range(known[0], 5000))
    assert 256 <= len(known) <= 512
    assert all(tail.floor(offset) == (offset, 70 * offset) for offset in known)
