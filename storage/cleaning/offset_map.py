"""Maps keys to the offsets of their last records, in a fixed amount of memory.

`put_many` and `get_many`, which run once per record, have compiled twins; this module is their specification.
"""

import hashlib
from array import array
from collections.abc import Callable
from struct import Struct

from ...protocol.native import native
from ...protocol.record_columns import RecordColumns
from .clean_job import HASHES
from .errors import OffsetMapFullError

NOT_FOUND = -1
EXACT = "exact"

_offset_field = Struct(">q")
_window = Struct(">i")
_reference = Struct(">Q")
_key_size = Struct(">I")
_WINDOW_SIZE = _window.size
_INT32_VALUES = 2**32
_EXACT_BYTES_PER_SLOT = 64
_ENTRIES, _LATEST, _LOOKUPS, _PROBES, _ARENA_END = range(5)


class SkimpyOffsetMap:
    """Kafka's SkimpyOffsetMap: hashes in place of keys, in one block of memory.

    A slot contains the key's hash and 8 bytes of offset, 24 bytes with MD5; an empty slot contains zeros. The probe
    sequence of a key consists of the 4-byte windows of its hash, each starting one byte further, followed by the last
    window plus 1, 2 and so on.
    Two keys with the same hash count as one key. With 128 bits and a billion keys, this happens in one of 10²⁰ maps;
    `ExactOffsetMap` excludes it.

    Invariant: memory[: slots × bytes_per_slot] are the slots, `_state` contains the counters; the compiled twin changes
    both.
    """

    def __init__(self, memory_bytes: int, hash_name: str = "MD5", *, use_native: bool = True) -> None:
        """Create an empty map. Raises ValueError for an unknown hash, or memory for fewer than two slots."""
        self._digest = _digest_of(hash_name)
        self.hash_name = hash_name
        self._id_size = self._size_of_id()
        self.bytes_per_slot = self._id_size + _offset_field.size
        self.slots = self._slots_in(memory_bytes)
        if self.slots < 2:
            raise ValueError(f"{memory_bytes} bytes are too few for an offset map")
        self._use_native = use_native and native is not None
        self._memory = native.zeroed(memory_bytes) if self._use_native else bytearray(memory_bytes)
        self._empty = bytes(self.bytes_per_slot)
        self._state = array("q", [0, NOT_FOUND, 0, 0, self.slots * self.bytes_per_slot])

    def _size_of_id(self) -> int:
        return len(self._digest(b""))

    def _slots_in(self, memory_bytes: int) -> int:
        return memory_bytes // self.bytes_per_slot

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of keys; `slots` is the capacity."""
        return self._state[_ENTRIES]

    @property
    def latest_offset(self) -> int:
        """The offset of the last `put`, or the argument of a later `update_latest_offset`; -1 at first."""
        return self._state[_LATEST]

    @property
    def lookups(self) -> int:
        """The number of calls of `put` and `get`; the bulk methods count each key."""
        return self._state[_LOOKUPS]

    @property
    def probes(self) -> int:
        """The number of slots that lookups have read."""
        return self._state[_PROBES]

    @property
    def collision_rate(self) -> float:
        """Probes beyond the first, per lookup."""
        return (self.probes - self.lookups) / self.lookups if self.lookups else 0.0

    @property
    def utilization(self) -> float:
        """size / slots."""
        return self.size / self.slots

    def update_latest_offset(self, offset: int) -> None:
        self._state[_LATEST] = offset

    def clear(self) -> None:
        """Remove every key."""
        self._memory[:] = bytes(len(self._memory))
        self._state = array("q", [0, NOT_FOUND, 0, 0, self.slots * self.bytes_per_slot])

    # -- one key -----------------------------------------------------------------------------------------------------

    def put(self, key: bytes, offset: int) -> None:
        """Store the offset as the key's last. Raises `OffsetMapFullError` if the map is full."""
        if not self._has_room(key):
            raise OffsetMapFullError(f"an offset map of {self.slots} slots is full with {self.size} keys")
        digest = self._digest(key)
        position = self._find(digest, key)
        assert position is not None
        if self._memory.startswith(self._empty, position):
            self._take_slot(position, digest, key)
            self._state[_ENTRIES] += 1
        _offset_field.pack_into(self._memory, position + self._id_size, offset)
        self._state[_LATEST] = offset

    def get(self, key: bytes) -> int:
        """Return the key's last offset, or `NOT_FOUND`."""
        position = self._find(self._digest(key), key)
        if position is None or self._memory.startswith(self._empty, position):
            return NOT_FOUND
        offset: int = _offset_field.unpack_from(self._memory, position + self._id_size)[0]
        return offset

    def _find(self, digest: bytes, key: bytes) -> int | None:
        """Return the start of the key's slot, or of the empty slot for it; None if other keys have all slots."""
        self._state[_LOOKUPS] += 1
        last_window = len(digest) - _WINDOW_SIZE
        # The step is added to the window before its absolute value is taken, so from a negative window the slots go
        # down to 0 and then up again: it takes up to twice their number to try each.
        for attempt in range(last_window + 2 * self.slots + 1):
            probe = _window.unpack_from(digest, min(attempt, last_window))[0] + max(0, attempt - last_window)
            probe = (probe + _INT32_VALUES // 2) % _INT32_VALUES - _INT32_VALUES // 2  # Java's sum of two int32
            slot = abs(probe) % self.slots if probe != -_INT32_VALUES // 2 else 0  # Java's Utils.abs
            position = slot * self.bytes_per_slot
            self._state[_PROBES] += 1
            if self._memory.startswith(self._empty, position) or self._is_of(position, digest, key):
                return position
        return None

    def _has_room(self, key: bytes) -> bool:
        return self.size < self.slots

    def _is_of(self, position: int, digest: bytes, key: bytes) -> bool:
        return self._memory.startswith(digest, position)

    def _take_slot(self, position: int, digest: bytes, key: bytes) -> None:
        self._memory[position : position + self._id_size] = digest

    # -- many keys ---------------------------------------------------------------------------------------------------

    def put_many(
        self,
        buffer: bytes | bytearray,
        records: RecordColumns,
        first: int = 0,
        *,
        from_offset: int = 0,
        max_size: int | None = None,
    ) -> int:
        """`put` every record from row `first` on that has a key and an offset of at least `from_offset`.

        Returns the row of the first record that did not fit because the map was full or had `max_size` keys; the number
        of rows if all records fit.
        """
        limit = self.slots if max_size is None else min(max_size, self.slots)
        if self._use_native:
            digests = self._digests(buffer, records, first)
            layout = (self.slots, self._id_size, isinstance(self, ExactOffsetMap))
            rows = (records.block, records.capacity, first, records.count)
            return native.put_many(self._memory, self._state, layout, buffer, rows, digests, from_offset, limit)
        for row in range(first, records.count):
            key, offset = records.key(buffer, row), records.offsets[row]
            if key is None or offset < from_offset:
                continue
            if self.size >= limit or not self._has_room(key):
                return row
            self.put(key, offset)
        return records.count

    def get_many(self, buffer: bytes | bytearray, records: RecordColumns) -> "array[int]":
        """Call `get` for every record with a key; the result is `NOT_FOUND` for a record without a key."""
        found = array("q", bytes(8 * records.count))
        if self._use_native:
            digests = self._digests(buffer, records, 0)
            layout = (self.slots, self._id_size, isinstance(self, ExactOffsetMap))
            rows = (records.block, records.capacity, 0, records.count)
            native.get_many(self._memory, self._state, layout, buffer, rows, digests, found)
            return found
        for row in range(records.count):
            key = records.key(buffer, row)
            found[row] = NOT_FOUND if key is None else self.get(key)
        return found

    def _digests(self, buffer: bytes | bytearray, records: RecordColumns, first: int) -> bytes | None:
        """Compute the digests that the compiled code needs: it implements only MD5, and then no digests are needed."""
        if self.hash_name in ("MD5", EXACT):
            return None
        return b"".join(self._digest(records.key(buffer, row) or b"") for row in range(first, records.count))


class ExactOffsetMap(SkimpyOffsetMap):
    """An offset map that stores the keys and compares them, so that different keys are never confused.

    Of every 64 bytes of memory, 24 are a slot: the first 8 bytes of the key's MD5, the position of the key, its offset.
    The rest holds the keys one after the other, each after its size in 4 bytes, so that keys of 36 bytes fill both
    parts at the same time. The map is full when either part is.
    """

    def __init__(self, memory_bytes: int, *, use_native: bool = True) -> None:
        super().__init__(memory_bytes, EXACT, use_native=use_native)

    def _size_of_id(self) -> int:
        return 2 * _reference.size

    def _slots_in(self, memory_bytes: int) -> int:
        return memory_bytes // _EXACT_BYTES_PER_SLOT

    def _has_room(self, key: bytes) -> bool:
        return self.size < self.slots and self._state[_ARENA_END] + _key_size.size + len(key) <= len(self._memory)

    def _is_of(self, position: int, digest: bytes, key: bytes) -> bool:
        if not self._memory.startswith(digest[: _reference.size], position):
            return False
        start: int = _reference.unpack_from(self._memory, position + _reference.size)[0]
        size: int = _key_size.unpack_from(self._memory, start)[0]
        start += _key_size.size
        return size == len(key) and self._memory.startswith(key, start)

    def _take_slot(self, position: int, digest: bytes, key: bytes) -> None:
        end = self._state[_ARENA_END]
        self._memory[position : position + _reference.size] = digest[: _reference.size]
        _reference.pack_into(self._memory, position + _reference.size, end)
        _key_size.pack_into(self._memory, end, len(key))
        end += _key_size.size
        self._memory[end : end + len(key)] = key
        self._state[_ARENA_END] = end + len(key)


def new_offset_map(memory_bytes: int, hash_name: str, *, use_native: bool = True) -> SkimpyOffsetMap:
    """Create the map for a value of `hash_name`. Raises ValueError as the maps do."""
    if hash_name == EXACT:
        return ExactOffsetMap(memory_bytes, use_native=use_native)
    return SkimpyOffsetMap(memory_bytes, hash_name, use_native=use_native)


def memory_for(slots: int, hash_name: str) -> int | None:
    """Return the size of `slots` slots in bytes; None if it depends on the keys. Raises ValueError: unknown hash."""
    return None if hash_name == EXACT else slots * (len(_digest_of(hash_name)(b"")) + _offset_field.size)


def _digest_of(hash_name: str) -> Callable[[bytes], bytes]:
    if hash_name not in (*HASHES, EXACT):
        raise ValueError(f"{hash_name}: unknown hash of the cleaner. Expected one of {', '.join((*HASHES, EXACT))}")
    name = "md5" if hash_name == EXACT else hash_name.replace("-", "").lower()
    new = getattr(hashlib, name)

    def digest(key: bytes) -> bytes:
        result: bytes = new(key, usedforsecurity=False).digest()
        return result

    return digest
