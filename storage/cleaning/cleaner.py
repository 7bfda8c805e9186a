"""One pass of compaction: learn the last offset of every key in the dirty part, then rewrite what lies below."""

from collections.abc import Callable, Iterator

from ..filesystem import FileSystem
from .clean_job import CleanJob, Event


def clean(
    job: CleanJob, fs: FileSystem, throttle: Callable[[int], None], *, use_native: bool = True
) -> Iterator[Event]:
    """Do the pass, as far as the offset map reaches; Kafka's Cleaner.

    Writes `<base offset>.log.cleaned` and its indexes for one group of segments after the other, everything synced, and
    yields `GroupCleaned` for each, whose files may take their places while the pass goes on; `Progress` after every
    buffer; at last `PassFinished`. `throttle` hears of every number of bytes read or written, and may take its time.
    Closing the iterator ends the pass; what it leaves are files that end in `.cleaned`.

    Raises OSError, `CorruptSegmentError` for what is no sound record batch, `OffsetMapTooSmallError` and
    `SegmentOffsetOverflowError`.
    """
    raise NotImplementedError
