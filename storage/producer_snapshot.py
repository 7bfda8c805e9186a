"""The names of `.snapshot` files: producer state at an offset, so that opening a log need not read all of it."""

SNAPSHOT_SUFFIX = ".snapshot"


def snapshot_file_name(offset: int) -> str:
    """Name of the snapshot of everything below `offset`."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int:
    """Return the offset in a snapshot's name."""
    return int(name.removesuffix(SNAPSHOT_SUFFIX))
