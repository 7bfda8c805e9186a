"""The rules prove themselves: a history without fault passes, and each fault is flagged by the rule that is for it."""

from __future__ import annotations

import pytest
from soak.sim.transactions.ledger import Copy, Fate, Ledger, Written, targets


def copy(name: str, offset: int, number: int, target: int = 0) -> Copy:
    return Copy(name, (0, offset), number, target)


def history() -> Ledger:
    """Two records of the input, copied in one transaction each; a third transaction was given up."""
    ledger = Ledger(partitions=1)
    for number, name in enumerate(("0.0.1", "0.0.2", "0.0.3")):
        one = ledger.begin(name)
        one.copies = [copy(name, number, number)]
        one.fate = Fate.COMMITTED if number < 2 else Fate.OPEN
    log = [
        Written(2 * number, copy(name, number, number), number < 2) for number, name in enumerate(ledger.transactions)
    ]
    ledger.log[0] = log
    ledger.final[0] = [(one.offset, one.copy.value) for one in log[:2]]
    ledger.committed_reads.append([(0, one.offset, one.copy.value) for one in log[:2]])
    ledger.other_reads.append([(0, one.offset, one.copy.value) for one in log])
    ledger.offsets[0] = 2
    return ledger


def show(ledger: Ledger, records: list[Written]) -> None:
    """Have the log be so, and a reader of committed records see it."""
    ledger.log[0] = records
    ledger.final[0] = [(one.offset, one.copy.value) for one in records if one.is_committed]
    ledger.committed_reads.clear()
    ledger.other_reads.clear()


def lose(ledger: Ledger) -> None:
    show(ledger, ledger.log[0][1:])


def double(ledger: Ledger) -> None:
    again = ledger.begin("0.1.1")
    again.copies, again.fate = [copy("0.1.1", 0, 0)], Fate.ASKED
    show(ledger, [*ledger.log[0], Written(6, again.copies[0], True)])


def tear(ledger: Ledger) -> None:
    ledger.transactions["0.0.2"].copies.append(copy("0.0.2", 1, 5))


def show_what_was_given_up(ledger: Ledger) -> None:
    show(ledger, [one._replace(is_committed=True) for one in ledger.log[0]])


def read_what_was_given_up(ledger: Ledger) -> None:
    last = ledger.log[0][2]
    ledger.committed_reads[0].append((0, last.offset, last.copy.value))


def forget_the_offset(ledger: Ledger) -> None:
    ledger.offsets[0] = 1


def move_the_offset_alone(ledger: Ledger) -> None:
    ledger.offsets[0] = 3


def skip(ledger: Ledger) -> None:
    del ledger.other_reads[0][0]


def see_twice(ledger: Ledger) -> None:
    ledger.committed_reads[0].append(ledger.committed_reads[0][-1])


def invent(ledger: Ledger) -> None:
    del ledger.transactions["0.0.2"]


def swap(ledger: Ledger) -> None:
    first, second, third = ledger.log[0]
    show(ledger, [second._replace(offset=0), first._replace(offset=2), third])


def hide_the_end(ledger: Ledger) -> None:
    ledger.final[0].pop()


def test_a_history_without_fault_passes() -> None:
    assert history().check() == []


def test_where_copies_go_is_known_from_the_place_alone() -> None:
    assert targets((0, 1), 3) == [1]
    assert targets((0, 3), 3) == [0, 1]
    assert targets((2, 0), 1) == [0]


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (lose, "lost"),
        (double, "duplicate"),
        (tear, "torn"),
        (show_what_was_given_up, "G1a"),
        (read_what_was_given_up, "G1a"),
        (forget_the_offset, "offset"),
        (move_the_offset_alone, "lost"),
        (skip, "reader of all"),
        (see_twice, "reader of committed"),
        (invent, "phantom"),
        (swap, "order"),
        (hide_the_end, "final"),
    ],
)
def test_each_fault_is_flagged(fault: object, rule: str) -> None:
    ledger = history()
    assert callable(fault)
    fault(ledger)
    found = ledger.check()
    assert any(violation.startswith(f"{rule}:") for violation in found), found
