"""A history in a log manager on a simulated disk, cleaned step by step, that can be cut off at any file-system call."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from soak.cleaning.contents import batches_of
from soak.cleaning.history import History, Producer, Restart, Settings
from soak.cleaning.passes import BYTES_PER_KEY
from soak.cleaning.promises import Pass, Promises, require
from tests.storage.lanes import checkpoint, delete_due, load, shut_down
from tests.storage.logs import Clock

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.cleaning.clean_job import GroupCleaned, PassFinished
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.log_to_clean import CleanerSettings, LogToClean
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

ROOT = "/data"
TP = TopicPartition("t", 0)
FETCH_BYTES = 4000
TOPIC_ID = UUID("12345678-1234-4234-8234-123456789abc")


class ManagedHistory(History):
    """A history whose log belongs to a log manager, with all the files that a log directory has."""

    def __init__(self, disk: SimDisk, settings: Settings, clock: Clock) -> None:
        self.manager: LogManager | None = None
        self.promises = Promises(self, fetch_bytes=FETCH_BYTES)
        self.acknowledged_end = 0
        """Everything below is on disk."""
        self.survived_end = 0
        """Where a log ended when it was opened after a crash; what was before that may be lost where nobody waited."""
        super().__init__(disk, f"{ROOT}/t-0", settings, clock)

    @property
    def end_offset(self) -> int:
        return max(super().end_offset, self.survived_end)

    def _open(self, *, clean: bool, recovery_point: int) -> Log:
        """Open by what the files say; what the caller thinks of the last stop does not count here."""
        self.manager = LogManager(
            (ROOT,),
            fs=self.fs,
            config_for=lambda topic: self.settings.log_config(self.magic),
            now_ms=self.clock,
            rng=random.Random(7),
        )
        self.manager.open_dirs()
        self.manager.write_identity(1, "cluster")
        load(self.manager)
        require(TP not in self.manager.held.offline, f"the log is offline: {self.manager.held.offline.get(TP)}")
        log = self.manager.logs.get(TP) or self.manager.creation.get_or_create_log(TP, topic_id=TOPIC_ID, is_new=True)
        log.update_high_watermark(log.log_end_offset)
        return log

    @property
    def owner(self) -> LogManager:
        assert self.manager is not None
        return self.manager

    def restart(self, how: Restart) -> None:
        if how == "clean":
            self.stop()
        else:
            self.flush()
            self.owner.close()
        self.reopen()

    def stop(self) -> None:
        """A clean stop: it flushes everything."""
        end = self.log.log_end_offset
        shut_down(self.owner)
        self.acknowledged_end = end

    def reopen(self) -> None:
        self.log = self._open(clean=True, recovery_point=0)

    def flush(self) -> None:
        """Flush, and acknowledge everything appended so far."""
        self.log.flush()
        self.acknowledged_end = self.log.recovery_point

    def checkpoint(self) -> None:
        """All periodic checkpoints."""
        checkpoint(self.owner)

    def pass_over(self, slots: int, between: Callable[[], None] = lambda: None) -> Pass | None:
        """A pass with everything around it; `between` is called where the log's own thread may do something else."""
        manager = self.owner.cleaner_manager
        self.flush()
        grabbed = manager.grab(TP)
        if grabbed is None:
            return None
        self._expect(grabbed)
        job = grabbed.job(CleanerSettings(dedupe_buffer_bytes=slots * BYTES_PER_KEY), self.clock.now_ms)
        next_dirty_offset = None
        for event in clean(job, self.fs, lambda size: None):
            if isinstance(event, GroupCleaned):
                self._put_into_place(event, between)
            elif isinstance(event, PassFinished):
                next_dirty_offset = event.next_dirty_offset
        manager.done_cleaning(grabbed, next_dirty_offset)
        self.owner.cleaner_checkpoint_task(ROOT)()
        delete_due(self.owner)
        assert next_dirty_offset is not None
        return Pass(job.first_dirty_offset, job.first_uncleanable_offset, next_dirty_offset)

    def _put_into_place(self, group: GroupCleaned, between: Callable[[], None]) -> None:
        swap = self.log.begin_swap([group.base_offset])
        between()
        swap.prepare()
        between()
        swap.install(group.replaced)
        between()
        swap.finish()
        between()
        self.owner.retention.delete_later(self.log, swap.complete())

    def _expect(self, grabbed: LogToClean) -> None:
        """From here on a crash may find anything below the bound cleaned."""
        promises, bound = self.promises, grabbed.first_uncleanable_offset
        promises.clean_until = max(promises.clean_until, bound)
        promises.cleanable_until = max(promises.cleanable_until, bound)

    def survivor(self, disk: SimDisk) -> ManagedHistory:
        """The history as it goes on after a crash that left this disk: what is there is opened and remembered.

        Raises BrokenPromiseError if acknowledged records are gone.
        """
        after = copy.copy(self)
        transactions = {id(one): replace(one, offsets=list(one.offsets)) for one in self.transactions}
        after.transactions = list(transactions.values())
        after.written = [
            entry if entry.transaction is None else replace(entry, transaction=transactions[id(entry.transaction)])
            for entry in self.written
        ]
        after.fs = disk
        after.promises = Promises(
            after,
            fetch_bytes=FETCH_BYTES,
            clean_until=self.promises.clean_until,
            cleanable_until=self.promises.cleanable_until,
            tombstone_seen_ms=dict(self.promises.tombstone_seen_ms),
            marker_seen_ms=dict(self.promises.marker_seen_ms),
        )
        after.reopen()
        end = after.log.log_end_offset
        require(end >= self.acknowledged_end, f"{self.acknowledged_end} was acknowledged, the log ends at {end}")
        # Unsynced segments reach the disk in any order, and in a compacted log a gap tells nothing: so what was not
        # acknowledged may be gone anywhere, not only at the end.
        survived = {
            offset for row in batches_of(after.folder, disk) for offset in range(row.base_offset, row.last_offset + 1)
        }
        after.survived_end, acknowledged = end, self.acknowledged_end
        after.forget(lambda offset: offset >= end or (offset >= acknowledged and offset not in survived))
        return after

    def forget(self, is_lost: Callable[[int], bool]) -> None:
        """What was written at some offsets has not survived; of a batch, none or all."""
        self.written = [entry for entry in self.written if not is_lost(entry.row.offset)]
        self.batches = {span: batch for span, batch in self.batches.items() if not is_lost(span[1])}
        for transaction in self.transactions:
            transaction.offsets = [offset for offset in transaction.offsets if not is_lost(offset)]
            if transaction.marker >= 0 and is_lost(transaction.marker):
                transaction.state, transaction.marker = "open", -1
        self.transactions = [entry for entry in self.transactions if entry.offsets or entry.marker >= 0]
        self.producers = {}
        for (_, last_offset), (_, (producer_id, epoch, sequence)) in sorted(self.batches.items()):
            if producer_id >= 0:
                self._learn(producer_id, epoch, sequence, last_offset)
        for transaction in self.transactions:
            if transaction.state == "open":
                self.producers[transaction.producer_id].transaction = transaction

    def _learn(self, producer_id: int, epoch: int, sequence: int, last_offset: int) -> None:
        producer = self.producers.setdefault(producer_id, Producer(producer_id))
        if epoch > producer.epoch:
            producer.epoch, producer.next_sequence = epoch, 0
        if sequence >= 0:
            base = next(first for first, last in self.batches if last == last_offset)
            producer.next_sequence = sequence + last_offset - base + 1
            producer.last_offset = last_offset


def new_world(settings: Settings) -> ManagedHistory:
    """An empty partition on an empty disk."""
    clock = Clock()
    disk = SimDisk(now_ms=clock, keep_log=False)
    disk.mkdir(ROOT)
    disk.make_everything_durable()
    return ManagedHistory(disk, settings, clock)
