"""The transactions of copiers, the records of readers, and the checks of both.

The partition and offset of an input record determine its copies in one or two partitions of the output. The expected
output therefore follows from the committed offsets of the group, no matter which copier wrote the copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode

Place = tuple[int, int]
"""Partition and offset."""
FATAL = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors that abort a transaction or are fatal for its producer."""


class Fate(Enum):
    """The known result of a transaction."""

    OPEN = auto()
    """No commit was requested, and none will be: the records must never be visible."""
    ASKED = auto()
    """A commit was requested and has no response: the commit may have been executed."""
    COMMITTED = auto()


@dataclass(slots=True)
class Transaction:
    """One transaction of one copier."""

    name: str
    fate: Fate = Fate.OPEN
    copies: list[Copy] = field(default_factory=list)
    """The copies that were sent."""


class Copy(NamedTuple):
    """A record of the output."""

    transaction: str
    source: Place
    """The input record; partition -1 for records of deserters, which have no input record."""
    number: int
    """The number of the record within its producer."""
    target: int
    """The partition of the output."""

    @property
    def value(self) -> bytes:
        return f"{self.transaction}|{self.source[0]}|{self.source[1]}|{self.number}|{self.target}".encode()

    @classmethod
    def of(cls, value: bytes) -> Copy:
        name, partition, offset, number, target = value.decode().split("|")
        return cls(name, (int(partition), int(offset)), int(number), int(target))

    @property
    def producer(self) -> str:
        """Return the name of the producer, which is one process of one copier."""
        return self.transaction.rpartition(".")[0]


class Written(NamedTuple):
    """A record in the log, and whether its transaction has a commit marker."""

    offset: int
    copy: Copy
    is_committed: bool


def targets(source: Place, partitions: int) -> list[int]:
    """Return the partitions of the output that an input record is copied to."""
    first = (source[0] + source[1]) % partitions
    return [first] if source[1] % 3 else sorted({first, (first + 1) % partitions})


@dataclass
class Ledger:
    """The transactions, records and offsets of one run."""

    partitions: int
    """The number of partitions of the output."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    copied: Counter[int] = field(default_factory=Counter)
    """The number of acknowledged commits by partition of the input."""
    committed_reads: list[list[tuple[int, int, bytes]]] = field(default_factory=list)
    """The records of each read_committed reader, in order: partition, offset, value."""
    other_reads: list[list[tuple[int, int, bytes]]] = field(default_factory=list)
    """The records of each read_uncommitted reader, in order: partition, offset, value."""
    log: dict[int, list[Written]] = field(default_factory=dict)
    """The final output in the logs of the leaders, by partition."""
    final: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    """The records of a final read_committed reader, by partition."""
    errors: list[tuple[str, ErrorCode]] = field(default_factory=list)
    """The names of copiers that failed, and their errors."""
    offsets: dict[int, int] = field(default_factory=dict)
    """The final committed offsets of the group, by partition of the input."""

    def begin(self, name: str) -> Transaction:
        transaction = self.transactions[name] = Transaction(name)
        return transaction

    @property
    def acknowledged(self) -> int:
        """Return the number of transactions whose commit was acknowledged."""
        return sum(one.fate is Fate.COMMITTED for one in self.transactions.values())

    def check(self) -> list[str]:
        """Return all violations."""
        return [*self.check_reads(), *self._once(), *self._torn(), *self._last_read(), *self._readers(), *self._order()]

    def check_errors(self, *, only_brokers_die: bool) -> Iterator[str]:
        """Check that no copier received a forbidden error. If only brokers die, no error may end a transaction."""
        for name, error in self.errors:
            if error is ErrorCode.INVALID_TXN_STATE or (only_brokers_die and error in FATAL):
                yield f"fatal: copier {name} received {error.name}"

    def check_reads(self) -> Iterator[str]:
        """Check that no reader has ever returned an aborted record (G1a)."""
        for reads in self.committed_reads:
            for partition, offset, value in reads:
                yield from self._unseen(partition, offset, value)
        for partition, records in self.final.items():
            for offset, value in records:
                yield from self._unseen(partition, offset, value)

    def _unseen(self, partition: int, offset: int, value: bytes) -> Iterator[str]:
        name = Copy.of(value).transaction
        transaction = self.transactions.get(name)
        if transaction is None:
            yield f"phantom: {value!r} at {(partition, offset)} was never sent"
        elif transaction.fate is Fate.OPEN:
            yield f"G1a: {value!r} at {(partition, offset)} was read, but its commit was never requested"

    def _visible(self) -> Iterable[Copy]:
        return (one.copy for records in self.log.values() for one in records if one.is_committed)

    def _once(self) -> Iterator[str]:
        """Check that each input record below the group's offset has its copies once, and other records have none."""
        found = Counter((copy.source, copy.target) for copy in self._visible() if copy.source[0] >= 0)
        for (source, target), count in found.items():
            if count > 1:
                yield f"duplicate: {source} is {count} times in {target}"
            if source[1] >= self.offsets.get(source[0], 0):
                yield f"offset: {source} is copied, but the group has committed {self.offsets.get(source[0])}"
        for partition, end in self.offsets.items():
            for offset in range(end):
                for target in targets((partition, offset), self.partitions):
                    if not found[(partition, offset), target]:
                        yield f"lost: {(partition, offset)} is not in {target}, but the group has committed {end}"

    def _torn(self) -> Iterator[str]:
        seen: dict[str, int] = Counter(copy.transaction for copy in self._visible())
        for name, transaction in self.transactions.items():
            count = seen.get(name, 0)
            if count and count != len(transaction.copies):
                yield f"torn: {count} of {len(transaction.copies)} records of {name} are committed"
            elif transaction.fate is Fate.COMMITTED and count != len(transaction.copies):
                yield f"lost: {name} was committed, but none of its {len(transaction.copies)} records is"

    def _last_read(self) -> Iterator[str]:
        """Check that the final reader returns exactly the records with a commit marker in the log."""
        for partition, records in self.log.items():
            wanted = [(one.offset, one.copy.value) for one in records if one.is_committed]
            if self.final.get(partition, []) != wanted:
                yield from _first_difference("final", partition, self.final.get(partition, []), wanted)

    def _readers(self) -> Iterator[str]:
        """Check that the continuous readers have read each record exactly once, in order."""
        for reads, is_committed in self._all_reads():
            by_partition: dict[int, list[tuple[int, bytes]]] = {}
            for partition, offset, value in reads:
                by_partition.setdefault(partition, []).append((offset, value))
            for partition, seen in by_partition.items():
                records = self.log.get(partition, [])
                wanted = [(one.offset, one.copy.value) for one in records if one.is_committed or not is_committed]
                if seen != wanted[: len(seen)]:
                    kind = "committed" if is_committed else "all"
                    yield from _first_difference(f"reader of {kind}", partition, seen, wanted)

    def _all_reads(self) -> Iterator[tuple[list[tuple[int, int, bytes]], bool]]:
        yield from ((reads, True) for reads in self.committed_reads)
        yield from ((reads, False) for reads in self.other_reads)

    def _order(self) -> Iterator[str]:
        """Check that the records of each producer are in the log once, in the order in which they were sent."""
        for partition, records in self.log.items():
            last: dict[str, int] = {}
            for one in records:
                before = last.get(one.copy.producer, -1)
                if one.copy.number <= before:
                    yield f"order: {one.copy.value!r} at {(partition, one.offset)} is after number {before}"
                last[one.copy.producer] = one.copy.number
                if one.copy.target != partition:
                    yield f"phantom: {one.copy.value!r} is in {partition}"


def _first_difference(
    who: str, partition: int, seen: list[tuple[int, bytes]], wanted: list[tuple[int, bytes]]
) -> Iterator[str]:
    for number, (found, due) in enumerate(zip(seen, wanted, strict=False)):
        if found != due:
            yield f"{who}: {partition} has {found} as number {number}, not {due}"
            return
    if len(seen) != len(wanted):
        yield f"{who}: {partition} has {len(seen)} records, not {len(wanted)}"
