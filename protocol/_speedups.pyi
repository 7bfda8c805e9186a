"""What `protocol/speedups/` compiles to. Every function has a twin in Python, named here, which says what it does.

Rows are (block, capacity, first row, row behind the last) of `RecordColumns`. A map's layout is (slots, bytes of a
key's id, whether keys are compared).
"""

from array import array
from collections.abc import Callable
from typing import Any, TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview
_Rows: TypeAlias = tuple[bytearray, int, int, int]
_Layout: TypeAlias = tuple[int, int, bool]

REVISION: int

def zeroed(size: int, /) -> bytearray:
    """`bytearray(size)`, in large pages if the system gives them."""

def put_many(
    memory: bytearray,
    state: array[int],
    layout: _Layout,
    buffer: _Buffer,
    rows: _Rows,
    digests: bytes | None,
    from_offset: int,
    max_size: int,
    /,
) -> int:
    """`SkimpyOffsetMap.put_many`."""

def get_many(
    memory: bytearray,
    state: array[int],
    layout: _Layout,
    buffer: _Buffer,
    rows: _Rows,
    digests: bytes | None,
    found: array[int],
    /,
) -> None:
    """`SkimpyOffsetMap.get_many`."""

def scan_batches(
    buffer: _Buffer,
    part: tuple[int, int],
    batches: bytearray,
    batch_count: int,
    records: bytearray,
    capacity: int,
    record_count: int,
    special: int,
    check_crc: bool,
    /,
) -> tuple[int, int, int, int, int]:
    """`BatchRun._scan_here`: position, reason, numbers of batches and records now, records that lacked room."""

def header_columns(
    buffer: _Buffer, rows: _Rows, /
) -> tuple[bytearray, bytearray, bytearray, bytearray, bytearray] | None:
    """`header_columns.header_columns_here`, each column as its bytes; None where that raises."""

def filter_batches(
    buffer: _Buffer,
    batches: bytearray,
    batch_count: int,
    rows: _Rows,
    found: array[int],
    rules: tuple[int, int, int],
    keep_empty: array[int],
    output: bytearray,
    at: int,
    /,
) -> tuple[int, int, int]:
    """`BatchFilter.filter`: the fields of `Kept`. The output has the room that the twin makes."""

def encode_records(
    keys: list[bytes | None] | None,
    values: list[bytes | None],
    headers: bytes,
    place: tuple[int, int, int],
    room: int,
    /,
) -> tuple[bytes, int]:
    """`record_codec.encode_records_here`."""

def batch_of_pairs(
    pairs: list[tuple[bytes | None, bytes | None]],
    timestamp: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    /,
) -> bytearray:
    """`record_batch_builder.batch_of_pairs_here`."""

def decode_records(
    data: _Buffer,
    position: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    record_type: type[tuple[object, ...]],
    /,
) -> tuple[list[Any], int] | None:
    """`record_codec.decode_records_here`; None where that raises, or for numbers beyond 64 bits."""

def index_batches(
    data: _Buffer, since: int, interval: int, highest: tuple[int, int], last_offset: int, /
) -> tuple[int, list[tuple[int, int, int, int]], int, tuple[int, int], int]:
    """`storage.cleaning.batch_index.index_batches`: the fields of `IndexScan`."""

def check_replicated_batches(
    data: _Buffer, next_offset: int, leader_epoch: int, /
) -> tuple[int, int, int, int, int, list[int], list[tuple[int, int]]]:
    """`replicated_batches.check_replicated_batches_py`."""

def scan_records(
    data: _Buffer, count: int, base_timestamp: int, rules: tuple[int, int, bool, bool], most_faults: int, /
) -> tuple[int, list[tuple[int, int | None]]] | None:
    """`record_scan.walk_records`: the fields of `RecordScan`; None where that raises."""

def validate_and_stamp(
    records: memoryview,
    plain: bytes | memoryview | None,
    place: tuple[int, int],
    max_size: int,
    rules: tuple[int, int, bool, bool],
    /,
) -> tuple[int, int, int] | None:
    """`usual_batch.validate_and_stamp_py`."""

def read_produce(
    buffer: memoryview, start: int, end: int, /
) -> (
    tuple[
        int, str | None, str | None, int, int, list[tuple[str | bytes, int]], list[tuple[str | bytes, int, memoryview]]
    ]
    | None
):
    """`produce_entries.read_generally`: correlation id, client id and the fields of `ProduceEntries`.

    None for what is not usual, as tagged fields are not: the twin reads it, or says what is wrong with it.
    """

def write_produced(
    version: int,
    correlation_id: int,
    places: list[tuple[str | bytes, int]],
    results: list[tuple[int, ...]],
    throttle_time_ms: int,
    /,
) -> bytes | None:
    """`produce_entries.write_generally`; None where a place or a result is not of the kind that it takes."""

def group_produce_requests(buffer: memoryview, parts: list[tuple[int, int]], /) -> dict[bytes, list[int]]:
    """`joint_produce.group_produces_py`."""

def join_accepted_produces(
    buffer: memoryview,
    parts: list[tuple[int, int]],
    key: bytes,
    place: tuple[int, int],
    limits: tuple[int, int, int],
    rules: tuple[int, int, bool, bool],
    accept: Callable[[bytes], bool],
    /,
) -> tuple[bytes, int, int, list[int], list[bytes]]:
    """`joint_produce.join_produces_py`. Requests with tagged fields, or bytes after them, are left out."""

def locate_batches(data: memoryview, position: int, /) -> tuple[bytes, bytes]:
    """`joint_produce.locate_batches_py`."""

def begin_sending(answers: dict[int, bytes], /) -> None:
    """Have another thread send these; they stay as they are until they are given to `finish_sending`."""

def finish_sending(answers: dict[int, bytes], /) -> list[tuple[int, int]]:
    """Twin of `finish_sending_py` in `server/network/output.py`, for responses whose sending has begun or not."""

def is_sending(answers: dict[int, bytes], /) -> bool:
    """Twin of `is_sending_py` in `server/network/output.py`."""

def open_syncer(
    wake: int, /
) -> tuple[Callable[[list[int]], None], Callable[[], tuple[float, int]], Callable[[], None]]:
    """`server.runtime.host.ThreadWork.sync` with a thread that needs no interpreter: begin, end and close.

    `begin` has open files synced one after the other, and then writes a byte to the descriptor `wake`, upon which `end`
    says how many seconds that took, and the number of the error by which it ended, 0 for none. `close` waits for what
    is under way.
    """

def make_folders(steps: list[tuple[bytes, bytes | None]], /) -> tuple[int, int, bytes]:
    """`storage.filesystem.make_folders`, in steps: (folder, None), or (file, content) for each file of that folder.

    Returns the number of steps that are done, the error number of the next one or 0, and a byte for each that is done:
    1 for a folder that existed and for its files.
    """

def rename_all(steps: list[tuple[bytes, bytes]], /) -> tuple[int, int]:
    """`storage.filesystem.rename_all`: the number of renames that are done, and the error number of the next or 0."""

def watch(count: bytearray, watched: bytearray, /) -> tuple[Callable[[], bool], Callable[[], bool]]:
    """Twin of `watch_py` in `server/metrics/call_watch.py`, by `stopwatch` and the ticks of the kernel."""

def stopwatch() -> float:
    """`time.perf_counter`."""

def mallopt(parameter: int, value: int, /) -> int:
    """glibc's mallopt(3), which `server.runtime.host` reaches by `ctypes` otherwise; 0 with another C library."""

def malloc_trim(pad: int, /) -> int:
    """glibc's malloc_trim(3), likewise."""
