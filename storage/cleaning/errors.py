"""The errors of a pass of the cleaner, which leave the log unchanged."""

from ..errors import StorageError


class OffsetMapFullError(StorageError):
    """The offset map has no room for another key."""


class OffsetMapTooSmallError(StorageError):
    """The offset map does not hold the keys of even one record, so that no pass could ever get further."""


class SegmentOffsetOverflowError(StorageError):
    """A segment holds offsets too far above its base offset for an index to name them."""
