"""The binary files beside a segment, written down with `construct`: a second reading, apart from the code in service.

`barnabas dump-log` reads with these, and tests hold the index and snapshot classes against them. All integers are
big-endian. An index file may end in zeros where its broker preallocated it and did not close it.
"""

from typing import Any

import construct as c

OFFSET_INDEX_ENTRY = c.Struct("relative_offset" / c.Int32sb, "position" / c.Int32sb)

TIME_INDEX_ENTRY = c.Struct("timestamp" / c.Int64sb, "relative_offset" / c.Int32sb)

TRANSACTION_INDEX_ENTRY = c.Struct(
    "version" / c.Int16sb,
    "producer_id" / c.Int64sb,
    "first_offset" / c.Int64sb,
    "last_offset" / c.Int64sb,
    "last_stable_offset" / c.Int64sb,
)

PRODUCER_ENTRY = c.Struct(
    "producer_id" / c.Int64sb,
    "producer_epoch" / c.Int16sb,
    "last_sequence" / c.Int32sb,
    "last_offset" / c.Int64sb,
    "offset_delta" / c.Int32sb,
    "timestamp" / c.Int64sb,
    "coordinator_epoch" / c.Int32sb,
    "current_txn_first_offset" / c.Int64sb,
)

PRODUCER_SNAPSHOT = c.Struct(
    "version" / c.Int16sb,
    "crc" / c.Int32ub,
    "producers" / c.PrefixedArray(c.Int32sb, PRODUCER_ENTRY),
)


def entries(description: Any, data: bytes) -> list[dict[str, int]]:
    """All whole entries of a file that holds nothing else; a torn last one is left out."""
    size = description.sizeof()
    return [plain(description.parse(data[at : at + size])) for at in range(0, len(data) - size + 1, size)]


def plain(container: Any) -> dict[str, int]:
    """What was parsed, without construct's own bookkeeping."""
    return {key: value for key, value in container.items() if not key.startswith("_")}
