"""Where the newest batches of a segment start."""

from array import array
from bisect import bisect_right

_ENTRIES_MAX = 512
_ENTRIES_KEPT = 256


class SegmentTail:
    """Exact positions of some hundred batches that were appended last, so that reads near the log's end search nothing.

    Every batch from the first one that it knows on is known to it.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def append(self, first_offset: int, position: int) -> None:
        """Note one more batch; when there are too many, the oldest are forgotten."""
        offsets = self._offsets
        offsets.append(first_offset)
        self._positions.append(position)
        if len(offsets) > _ENTRIES_MAX:
            del offsets[:-_ENTRIES_KEPT]
            del self._positions[:-_ENTRIES_KEPT]

    def floor(self, offset: int) -> tuple[int, int] | None:
        """First offset and position of the last batch that starts at or below `offset`; None if that is older."""
        offsets = self._offsets
        if not offsets or offset < offsets[0]:
            return None
        slot = bisect_right(offsets, offset) - 1
        return offsets[slot], self._positions[slot]

    def clear(self) -> None:
        """Forget all of them."""
        del self._offsets[:]
        del self._positions[:]
