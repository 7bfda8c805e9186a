"""The log against its model: whatever is written, rolled, restarted and cleaned, readers end with the same map."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from soak.cleaning.history import FORMATS, History, Restart, Settings
from soak.cleaning.passes import our_pass
from soak.cleaning.promises import Promises
from soak.cleaning.walk import IDEMPOTENT, TRANSACTIONAL
from soak.cleaning.walks import walk
from tests.storage.logs import Clock

from barnabas.simulation.disk import SimDisk

PAIRS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 4).map(lambda number: number == 0)), min_size=1, max_size=5
)
WALKS = 150


class CleanedLog(RuleBasedStateMachine):
    """Each rule is a thing that happens to a compacted partition; passes and restarts are followed by checks."""

    use_native = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.disk = SimDisk(now_ms=self.clock, keep_log=False)

    @initialize(
        magic=st.sampled_from(sorted(FORMATS, reverse=True)),
        segment_bytes=st.sampled_from([400, 900, 2500]),
        segment_index_bytes=st.sampled_from([64, 400, 4000]),
        index_interval_bytes=st.sampled_from([1, 150, 4096]),
        delete_retention_ms=st.sampled_from([1, 50, 1000]),
        min_compaction_lag_ms=st.sampled_from([0, 30]),
    )
    def begin(self, **chosen: int) -> None:
        self.history = History(self.disk, "/t-0", Settings(**chosen), self.clock)
        self.promises = Promises(self.history)

    @rule(pairs=PAIRS, codec=st.integers(0, 3), headers=st.booleans())
    def put(self, pairs: list[tuple[int, bool]], codec: int, headers: bool) -> None:
        self.history.append(pairs, codec=codec, headers=headers)

    @precondition(lambda self: self.history.magic == 2)
    @rule(pairs=PAIRS, codec=st.integers(0, 4), producer=st.sampled_from(IDEMPOTENT))
    def put_idempotently(self, pairs: list[tuple[int, bool]], codec: int, producer: int) -> None:
        self.history.append(pairs, codec=codec, producer_id=producer)

    @precondition(lambda self: self.history.magic == 2)
    @rule(pairs=PAIRS, codec=st.integers(0, 4), producer=st.sampled_from(TRANSACTIONAL))
    def put_in_transaction(self, pairs: list[tuple[int, bool]], codec: int, producer: int) -> None:
        self.history.append(pairs, codec=codec, producer_id=producer, transactional=True)

    @precondition(lambda self: self.history.magic == 2)
    @rule(producer=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self.history.end(producer, commit=commit)

    @precondition(lambda self: self.history.magic == 2)
    @rule(producer=st.sampled_from(IDEMPOTENT + TRANSACTIONAL))
    def new_epoch(self, producer: int) -> None:
        self.history.new_epoch(producer)

    @rule()
    def roll(self) -> None:
        self.history.roll()

    @rule()
    def upgrade(self) -> None:
        self.history.upgrade()

    @rule(milliseconds=st.sampled_from([1, 10, 60, 1100]))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(how=st.sampled_from(["clean", "killed", "without snapshots"]))
    def restart(self, how: Restart) -> None:
        self.history.restart(how)
        self.promises.check()

    @rule(slots=st.sampled_from([8, 20, 100]), hash_name=st.sampled_from(["MD5", "SHA-256", "exact"]))
    def clean(self, slots: int, hash_name: str) -> None:
        done = our_pass(use_native=self.use_native, hash_name=hash_name)(self.history, slots)
        if done is not None:
            self.promises.check_pass(done)

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.promises.check()
            self.history.log.close_handles()
            assert self.disk.open_files == 0


class CleanedLogInPython(CleanedLog):
    """The same without the compiled part."""

    use_native = False


CleanedLog.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
CleanedLogInPython.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestCleanedLog = CleanedLog.TestCase
TestCleanedLogInPython = CleanedLogInPython.TestCase


@pytest.mark.parametrize("use_native", [True, False], ids=["native", "python"])
def test_random_walks(use_native: bool) -> None:
    """The walks of `python -m soak.cleaning`, as many as take seconds."""
    passes = sum(walk(seed, use_native=use_native) for seed in range(WALKS))
    assert passes > WALKS
