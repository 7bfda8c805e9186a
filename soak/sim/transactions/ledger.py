"""The transactions of copiers, the records of readers, and the rules for both.

An input record has its copies in one or two partitions of the output, by its place alone: so what must be there is
known from the offsets that a group has committed, whoever copied.
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
"""Errors that abort a transaction, or end its producer."""


class Fate(Enum):
    """The known result of a transaction."""

    OPEN = auto()
    """Nobody has asked to commit it, and nobody ever will: it may never be seen."""
    ASKED = auto()
    """Its commit was asked for, and not answered: it may have been done."""
    COMMITTED = auto()


@dataclass(slots=True)
class Transaction:
    """One attempt of one copier."""

    name: str
    fate: Fate = Fate.OPEN
    copies: list[Copy] = field(default_factory=list)
    """The copies that were sent."""


class Copy(NamedTuple):
    """A record of the output."""

    transaction: str
    source: Place
    """The input record; partition -1 for what has none."""
    number: int
    """The how manieth of this transaction's producer."""
    target: int
    """Its partition."""

    @property
    def value(self) -> bytes:
        return f"{self.transaction}|{self.source[0]}|{self.source[1]}|{self.number}|{self.target}".encode()

    @classmethod
    def of(cls, value: bytes) -> Copy:
        name, partition, offset, number, target = value.decode().split("|")
        return cls(name, (int(partition), int(offset)), int(number), int(target))

    @property
    def producer(self) -> str:
        """The writer: one life of one copier."""
        return self.transaction.rpartition(".")[0]


class Written(NamedTuple):
    """A record in the log, and whether a marker has made it count."""

    offset: int
    copy: Copy
    is_committed: bool


def targets(source: Place, partitions: int) -> list[int]:
    """The partitions of the output that an input record is copied to."""
    first = (source[0] + source[1]) % partitions
    return [first] if source[1] % 3 else sorted({first, (first + 1) % partitions})


@dataclass
class Ledger:
    """One run."""

    partitions: int
    """The number of partitions of the output."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    copied: Counter[int] = field(default_factory=Counter)
    """Commits that were acknowledged, by partition of the input."""
    committed_reads: list[list[tuple[int, int, bytes]]] = field(default_factory=list)
    """For each reader of committed records what it saw, in order: partition, offset, value."""
    other_reads: list[list[tuple[int, int, bytes]]] = field(default_factory=list)
    """As much for readers of everything."""
    log: dict[int, list[Written]] = field(default_factory=dict)
    """The output as its leaders have it at the end, by partition."""
    final: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    """The records of a final read_committed reader, by partition."""
    errors: list[tuple[str, ErrorCode]] = field(default_factory=list)
    """The names of copiers, and the errors with which they ended."""
    offsets: dict[int, int] = field(default_factory=dict)
    """The final committed offsets of the group, by partition of the input."""

    def begin(self, name: str) -> Transaction:
        transaction = self.transactions[name] = Transaction(name)
        return transaction

    @property
    def acknowledged(self) -> int:
        """Transactions whose commit was."""
        return sum(one.fate is Fate.COMMITTED for one in self.transactions.values())

    def check(self) -> list[str]:
        """All violations."""
        return [*self.check_reads(), *self._once(), *self._torn(), *self._last_read(), *self._readers(), *self._order()]

    def check_errors(self, *, only_brokers_die: bool) -> Iterator[str]:
        """Check that no forbidden error reached an application. If only brokers die, no error may end a transaction."""
        for name, error in self.errors:
            if error is ErrorCode.INVALID_TXN_STATE or (only_brokers_die and error in FATAL):
                yield f"fatal: {error.name} has reached copier {name}"

    def check_reads(self) -> Iterator[str]:
        """Check that no reader saw an aborted record, at any time (G1a)."""
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
            yield f"G1a: {value!r} at {(partition, offset)} was seen, and nobody had asked to commit it"

    def _visible(self) -> Iterable[Copy]:
        return (one.copy for records in self.log.values() for one in records if one.is_committed)

    def _once(self) -> Iterator[str]:
        """Each input record below the group's offset has its copies once, no other has any."""
        found = Counter((copy.source, copy.target) for copy in self._visible() if copy.source[0] >= 0)
        for (source, target), count in found.items():
            if count > 1:
                yield f"duplicate: {source} is {count} times in {target}"
            if source[1] >= self.offsets.get(source[0], 0):
                yield f"offset: {source} is copied, and the group is at {self.offsets.get(source[0])}"
        for partition, end in self.offsets.items():
            for offset in range(end):
                for target in targets((partition, offset), self.partitions):
                    if not found[(partition, offset), target]:
                        yield f"lost: {(partition, offset)} is not in {target}, and the group is at {end}"

    def _torn(self) -> Iterator[str]:
        seen: dict[str, int] = Counter(copy.transaction for copy in self._visible())
        for name, transaction in self.transactions.items():
            count = seen.get(name, 0)
            if count and count != len(transaction.copies):
                yield f"torn: {count} of {len(transaction.copies)} records of {name} count"
            elif transaction.fate is Fate.COMMITTED and count != len(transaction.copies):
                yield f"lost: {name} was committed, and none of its {len(transaction.copies)} records counts"

    def _last_read(self) -> Iterator[str]:
        """A reader of all of it sees what the markers in the log say, no more and no less."""
        for partition, records in self.log.items():
            wanted = [(one.offset, one.copy.value) for one in records if one.is_committed]
            if self.final.get(partition, []) != wanted:
                yield from _first_difference("final", partition, self.final.get(partition, []), wanted)

    def _readers(self) -> Iterator[str]:
        """Check that continuous readers have skipped no record, and seen none twice."""
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
                    yield f"order: {one.copy.value!r} at {(partition, one.offset)} stands behind number {before}"
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
