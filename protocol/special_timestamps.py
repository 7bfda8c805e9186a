"""The negative timestamps of ListOffsets, which mean positions in a log."""

LATEST = -1
"""The end of the log that is visible to the client."""
EARLIEST = -2
"""The log start offset."""
MAX_TIMESTAMP = -3
"""The record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL = -4
"""The first offset that is not only in remote storage (KIP-405)."""
LATEST_TIERED = -5
"""The last offset in remote storage (KIP-1005)."""
EARLIEST_PENDING_UPLOAD = -6
"""The first offset that is not in remote storage yet (KIP-1023)."""

FIRST_VERSIONS = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The ListOffsets version that introduced each."""
