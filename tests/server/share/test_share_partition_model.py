"""Random histories of a share partition: members, lock timeouts, failing writes, crashes of the leader, retention."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from barnabas.protocol.errors import KafkaError
from barnabas.server.coordinator.share.persister_state_batch_combiner import PersisterStateBatch
from barnabas.server.share.record_state import AcknowledgementType, AcquireMode, RecordState
from barnabas.server.share.share_group_settings import ShareGroupSettings
from barnabas.server.share.share_partition import (
    AcquiredRecords,
    DeadLetters,
    FetchedBatch,
    ShareAcknowledgementBatch,
    SharePartition,
)
from barnabas.server.share.state_update import StateUpdate, merged_batches

STEPS = 1500
SETTINGS = ShareGroupSettings(delivery_count_limit=4, partition_max_record_locks=120, record_lock_duration_ms=1000)


@dataclass
class Persisted:
    """The durable state of the share partition, by offset, as the share coordinator combines its writes."""

    start_offset: int = 0
    states: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, start_offset: int, batches: list[PersisterStateBatch]) -> None:
        assert start_offset >= self.start_offset, "the start offset fell"
        self.start_offset = start_offset
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                before = self.states.get(offset, (0, 0))
                assert batch.delivery_count >= before[1], f"the delivery count of {offset} fell"
                assert not RecordState(before[0]).is_terminal or batch.delivery_state == before[0], f"{offset} is back"
                self.states[offset] = (batch.delivery_state, batch.delivery_count)
        self.states = {offset: state for offset, state in self.states.items() if offset >= start_offset}

    def read(self) -> list[PersisterStateBatch]:
        return [PersisterStateBatch(offset, offset, *self.states[offset]) for offset in sorted(self.states)]


class History:
    """One share partition, its log, its members and its persister."""

    def __init__(self, seed: int, *, dlq: bool) -> None:
        self.random = random.Random(seed)
        self.settings = SETTINGS._replace(dlq_topic_name="dlq." if dlq else "")
        self.now = 0.0
        self.log: list[FetchedBatch] = []
        self.log_start = self.log_end = 0
        self.persisted = Persisted()
        self.held: dict[str, set[int]] = {}
        """The records that each member holds, by the responses it has received."""
        self.locked_until: dict[int, float] = {}
        self.finished: set[int] = set()
        """Records that are durably acknowledged or archived."""
        self.given_up: set[int] = set()
        """Records that were archived after their last lock timeout, in a write that failed."""
        self.delivery_counts: dict[int, int] = {}
        """Per offset, under this leader."""
        self.pending: list[tuple[StateUpdate, int, list[PersisterStateBatch]]] = []
        self.letters: list[DeadLetters] = []
        self.epoch = 0
        self.load()

    def load(self) -> None:
        self.partition = SharePartition("g", "t-0", self.epoch, lambda: self.settings)
        self.letters = self.partition.initialize(0, self.persisted.start_offset, self.persisted.read())
        self.held.clear()
        self.locked_until.clear()
        self.delivery_counts.clear()
        self.pending.clear()

    def crash(self) -> None:
        self.epoch += 1
        self.load()

    def produce(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            base = self.log_end + (self.random.randint(1, 4) if self.random.random() < 0.1 else 0)
            last = base + self.random.choice((0, 0, 1, 4, 20))
            self.log.append(FetchedBatch(base, last))
            self.log_end = last + 1

    def member(self) -> str:
        return f"m{self.random.randint(0, 5)}"

    def fetch(self) -> None:
        partition = self.partition
        if not partition.can_acquire_records():
            return
        offset = partition.next_fetch_offset()
        if offset < self.log_start:
            partition.update_cache_and_offsets(self.log_start)
            self.drop_below(self.log_start)
            return
        batches = [batch for batch in self.log if batch.last_offset >= offset][: self.random.randint(1, 8)]
        if not batches:
            return
        member, limit = self.member(), self.random.choice((1, 3, 10, 50))
        mode = self.random.choice(list(AcquireMode))
        acquired = partition.acquire(
            member,
            mode,
            batch_size=self.random.choice((1, 5, 500)),
            max_records=limit,
            fetch_offset=offset,
            batches=batches,
            now=self.now,
        )
        if mode is AcquireMode.RECORD_LIMIT:
            assert sum(records.last_offset - records.first_offset + 1 for records in acquired) <= limit
        self.acquired(member, acquired, {o for b in batches for o in range(b.base_offset, b.last_offset + 1)})

    def acquired(self, member: str, acquired: list[AcquiredRecords], readable: set[int]) -> None:
        last = -1
        for first_offset, last_offset, count in acquired:
            assert first_offset > last, "the acquired records are in order"
            last = last_offset
            assert 1 <= count <= self.settings.delivery_count_limit
            for offset in range(first_offset, last_offset + 1):
                assert offset not in self.finished, f"{offset} is delivered after it was finished"
                assert self.locked_until.get(offset, -1.0) <= self.now, f"{offset} is delivered to two members"
                assert count > self.delivery_counts.get(offset, 0), f"the delivery count of {offset} did not rise"
                self.delivery_counts[offset] = count
                for held in self.held.values():
                    held.discard(offset)
                self.held.setdefault(member, set()).add(offset)
                self.locked_until[offset] = self.now + self.settings.record_lock_duration_ms / 1000

    def drop_below(self, offset: int) -> None:
        for held in self.held.values():
            held -= {one for one in held if one < offset}

    def acknowledge(self) -> None:
        members = [member for member, held in self.held.items() if held]
        if not members:
            return
        member = self.random.choice(members)
        offsets = sorted(self.held[member])
        begin = self.random.randrange(len(offsets))
        end = begin
        while end + 1 < len(offsets) and offsets[end + 1] == offsets[end] + 1 and self.random.random() < 0.9:
            end += 1
        first, last = offsets[begin], offsets[end]
        kinds = [self.random.choice((0, 1, 1, 1, 2, 2, 3, 4)) for _ in range(last - first + 1)]
        if self.random.random() < 0.5:
            kinds = kinds[:1]
        by_offset = dict(
            zip(range(first, last + 1), kinds if len(kinds) > 1 else kinds * (last - first + 1), strict=True)
        )
        try:
            update = self.partition.acknowledge(member, [ShareAcknowledgementBatch(first, last, kinds)], self.now)
        except KafkaError:
            # Only records whose lock has expired, or whose acknowledgement is not answered yet, are refused.
            assert any(
                self.locked_until.get(offset, 0) <= self.now or self.is_pending(offset)
                for offset in range(first, last + 1)
            ), (first, last, self.partition)
            return
        for offset, kind in by_offset.items():
            if kind == AcknowledgementType.RENEW:
                if offset >= self.partition.start_offset:
                    self.locked_until[offset] = self.now + self.settings.record_lock_duration_ms / 1000
            else:
                self.held[member].discard(offset)
        self.submit(update)

    def is_pending(self, offset: int) -> bool:
        return any(b.first_offset <= offset <= b.last_offset for _, _, batches in self.pending for b in batches)

    def submit(self, update: StateUpdate) -> None:
        if update:
            self.pending.append((update, self.partition.start_offset, merged_batches([update])))

    def write(self) -> None:
        """Finish the oldest write: durably, or with an error before or after it is durable."""
        if not self.pending:
            return
        update, start_offset, batches = self.pending.pop(0)
        luck = self.random.random()
        if luck < 0.85:
            self.persisted.write(start_offset, batches)
            for batch in batches:
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    if RecordState(batch.delivery_state).is_terminal:
                        self.finished.add(offset)
                    if batch.delivery_state == RecordState.AVAILABLE and not update.is_immediate:
                        self.locked_until[offset] = -1.0
        elif update.is_immediate:
            for batch in batches:
                if RecordState(batch.delivery_state).is_terminal:
                    self.given_up.update(range(batch.first_offset, batch.last_offset + 1))
        self.letters += self.partition.complete(update, is_written=luck < 0.85)

    def expire(self) -> None:
        self.now += self.random.choice((0.05, 0.3, 1.5))
        deadline = self.partition.next_lock_deadline()
        update = self.partition.expire_locks(self.now)
        assert bool(update) == (deadline is not None and deadline <= self.now)
        for _, batch, _ in update.changes:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                assert self.locked_until[offset] <= self.now, f"the lock of {offset} expired too early"
        self.submit(update)

    def release(self) -> None:
        member = self.member()
        self.submit(self.partition.release_acquired_records(member))
        self.held.pop(member, None)

    def bury(self) -> None:
        if self.letters:
            letters = self.letters.pop(self.random.randrange(len(self.letters)))
            self.submit(self.partition.archive(letters))

    def retention(self) -> None:
        if self.log and self.random.random() < 0.3:
            self.log.pop(0)
            self.log_start = self.log[0].base_offset if self.log else self.log_end

    def compact(self) -> None:
        if len(self.log) > 2 and self.random.random() < 0.2:
            self.log.pop(self.random.randrange(1, len(self.log)))

    def step(self) -> None:
        actions = (
            (self.produce, 3),
            (self.fetch, 6),
            (self.acknowledge, 7),
            (self.write, 8),
            (self.expire, 2),
            (self.release, 0.5),
            (self.bury, 1),
            (self.retention, 0.5),
            (self.compact, 0.3),
            (self.crash, 0.15),
        )
        action = self.random.choices([one for one, _ in actions], [weight for _, weight in actions])[0]
        before, epoch = self.partition.start_offset, self.epoch
        action()
        self.partition.check_invariants()
        if epoch == self.epoch:
            assert self.partition.start_offset >= before, "the start offset fell"

    def finish(self) -> None:
        """Deliver and accept everything that is left: no record of the log is lost."""
        for _ in range(5000):
            while self.pending:
                update, start_offset, written = self.pending.pop(0)
                self.persisted.write(start_offset, written)
                self.letters += self.partition.complete(update, is_written=True)
                for batch in written:
                    if RecordState(batch.delivery_state).is_terminal:
                        self.finished.update(range(batch.first_offset, batch.last_offset + 1))
            while self.letters:
                self.bury()
            if self.pending:
                continue
            self.now += 2.0
            self.submit(self.partition.expire_locks(self.now))
            offset = self.partition.next_fetch_offset()
            if offset < self.log_start:
                self.partition.update_cache_and_offsets(self.log_start)
                continue
            batches = [batch for batch in self.log if batch.last_offset >= offset]
            if not batches:
                if not self.pending:
                    break
                continue
            acquired = self.partition.acquire(
                "last",
                AcquireMode.BATCH_OPTIMIZED,
                batch_size=100,
                max_records=100,
                fetch_offset=offset,
                batches=batches,
                now=self.now,
            )
            for records in acquired:
                accepted = ShareAcknowledgementBatch(records.first_offset, records.last_offset, [1])
                self.submit(self.partition.acknowledge("last", [accepted], self.now))
            self.partition.check_invariants()
        existing = {offset for b in self.log for offset in range(b.base_offset, b.last_offset + 1)}
        lost = {offset for offset in existing - self.finished - self.given_up if offset >= self.log_start}
        assert not lost, f"never delivered: {sorted(lost)[:10]}, {self.partition}"


@pytest.mark.parametrize("dlq", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_random_histories_keep_the_invariants(seed: int, dlq: bool) -> None:
    history = History(seed, dlq=dlq)
    for _ in range(STEPS):
        history.step()
    history.finish()
