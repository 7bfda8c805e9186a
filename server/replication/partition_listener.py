"""Who hears of what happens to a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .isr_changes import IsrChange
    from .partition import Partition


class PartitionListener(Protocol):
    """Called by a partition when something happens to it."""

    acks_all_on_disk: bool
    """Whether acks=-1 promises the disk."""

    def flush_wanted(self, partition: Partition, *, may_linger: bool = False) -> None:
        """What has been appended so far shall be on disk soon; `Partition.flushed` is to follow."""

    def progressed(self, partition: Partition) -> None:
        """The high watermark has risen, or what is on disk: more can be read, and producers may be answered."""

    def appended(self, partition: Partition) -> None:
        """A leader with followers has more records: they may fetch them."""

    def synced(self, partition: Partition) -> None:
        """More of what a follower has appended is on its disk."""

    def isr_change_wanted(self, partition: Partition, change: IsrChange) -> None:
        """Have the change made; `Partition.isr_changed` or `Partition.isr_change_failed` is to follow."""

    def low_watermark_raised(self, partition: Partition) -> None:
        """A follower has given up records at the start of its log."""
