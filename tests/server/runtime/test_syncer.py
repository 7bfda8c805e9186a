"""Files brought onto the disk off the loop: by a thread without the interpreter, by a lane where that cannot be."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas.protocol.native import native
from barnabas.server.runtime import host
from barnabas.server.runtime.host import ThreadWork
from barnabas.storage.filesystem import OsFile, OsFileSystem

PATIENCE = 60.0
needs_compiled = pytest.mark.skipif(native is None, reason="no compiled code")


class NotingFile(OsFile):
    """Knows by itself how it is synced."""

    __slots__ = ("times",)

    def fdatasync(self) -> None:
        self.times = getattr(self, "times", 0) + 1


class Told:
    """What `done` was told, in order."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[tuple[float | None, BaseException | None]] = []
        self._missing = count
        self._all = asyncio.get_running_loop().create_future()

    def __call__(self, seconds: float | None, error: BaseException | None) -> None:
        self.outcomes.append((seconds, error))
        if len(self.outcomes) == self._missing:
            self._all.set_result(None)

    async def all(self) -> list[tuple[float | None, BaseException | None]]:
        await asyncio.wait_for(self._all, PATIENCE)
        return self.outcomes


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    loop = request.param()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(params=["python", pytest.param("compiled", marks=needs_compiled)])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(host, "native", None)
    return str(request.param)


def files(folder: Path, count: int) -> list[OsFile]:
    opened = [OsFileSystem().open(str(folder / str(number)), create=True) for number in range(count)]
    for file in opened:
        file.pwrite(b"data", 0)
    return opened


def unsyncable() -> OsFile:
    """A pipe, of which the kernel says EINVAL."""
    end, other = os.pipe()
    os.close(other)
    return OsFile(end, set())


def test_files_are_synced_and_the_loop_is_told_how_long_it_took(
    run: Callable[[Any], Any], twin: str, tmp_path: Path
) -> None:
    async def main() -> None:
        work, opened = ThreadWork(asyncio.get_running_loop()), files(tmp_path, 3)
        for _ in range(200):
            told = Told(1)
            work.sync("lane", opened, told)
            assert not told.outcomes, "told before the caller has gone on"
            ((seconds, error),) = await told.all()
            assert error is None
            assert seconds is not None
            assert 0 <= seconds < PATIENCE
        assert ("lane" in work._lanes) is (twin == "python")
        work.close()

    run(main())


def test_the_first_error_ends_a_round(run: Callable[[Any], Any], twin: str, tmp_path: Path) -> None:
    async def main() -> None:
        work, (good,) = ThreadWork(asyncio.get_running_loop()), files(tmp_path, 1)
        for wrong in ([unsyncable()], [good, unsyncable()], [unsyncable(), good]):
            told = Told(1)
            work.sync("lane", wrong, told)
            ((seconds, error),) = await told.all()
            assert seconds is None
            assert isinstance(error, OSError)
            assert error.errno == errno.EINVAL
        told = Told(1)
        work.sync("lane", [good], told)
        assert (await told.all())[0][1] is None, "an error is that of its own round"
        work.close()

    run(main())


def test_a_closed_file_is_an_error_that_is_told(run: Callable[[Any], Any], twin: str, tmp_path: Path) -> None:
    async def main() -> None:
        work, (file,) = ThreadWork(asyncio.get_running_loop()), files(tmp_path, 1)
        file.close()
        told = Told(1)
        work.sync("lane", [file], told)
        ((_, error),) = await told.all()
        assert isinstance(error, OSError)
        assert error.errno == errno.EBADF
        work.close()

    run(main())


def test_a_file_that_knows_by_itself_how_it_is_synced_does_so(
    run: Callable[[Any], Any], twin: str, tmp_path: Path
) -> None:
    async def main() -> None:
        work = ThreadWork(asyncio.get_running_loop())
        noting = NotingFile(os.open(tmp_path / "noting", os.O_RDWR | os.O_CREAT), set())
        told = Told(1)
        work.sync("lane", [*files(tmp_path, 1), noting], told)
        assert (await told.all())[0][1] is None
        assert noting.times == 1
        work.close()

    run(main())


def test_rounds_that_meet_are_all_told(run: Callable[[Any], Any], twin: str, tmp_path: Path) -> None:
    async def main() -> None:
        work, opened = ThreadWork(asyncio.get_running_loop()), files(tmp_path, 2)
        told = Told(90)
        for number in range(90):
            work.sync(f"lane {number % 3}", opened, told)
        assert all(error is None for _, error in await told.all())
        work.close()

    run(main())


def test_closing_waits_and_what_was_under_way_is_told(run: Callable[[Any], Any], twin: str, tmp_path: Path) -> None:
    async def main() -> None:
        work, told = ThreadWork(asyncio.get_running_loop()), Told(2)
        work.sync("a", files(tmp_path, 1), told)
        work.sync("b", [unsyncable()], told)
        work.close()
        assert sorted(error is None for _, error in await told.all()) == [False, True]
        with pytest.raises(RuntimeError, match="closed"):
            work.sync("a", [NotingFile(os.open(tmp_path / "0", os.O_RDWR), set())], told)

    run(main())


def test_without_handles_a_lane_does_it(
    run: Callable[[Any], Any], twin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main() -> None:
        work, opened, told = ThreadWork(asyncio.get_running_loop()), files(tmp_path, 1), Told(1)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pipe", no_pipe)
            work.sync("lane", opened, told)
        assert (await told.all())[0][1] is None
        assert "lane" in work._lanes
        told = Told(1)
        work.sync("lane", opened, told)
        assert (await told.all())[0][1] is None
        work.close()

    run(main())


def test_nothing_is_left_open(run: Callable[[Any], Any], twin: str, tmp_path: Path) -> None:
    async def main() -> None:
        opened = files(tmp_path, 1)
        before = os.listdir("/proc/self/fd")
        for _ in range(20):
            work, told = ThreadWork(asyncio.get_running_loop()), Told(1)
            work.sync("lane", opened, told)
            await told.all()
            work.close()
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 2, "the loop's own at most"

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the system does not say what is open")
    run(main())


def test_closing_twice_leaves_alone_what_others_have_opened_since(
    run: Callable[[Any], Any], twin: str, tmp_path: Path
) -> None:
    async def main() -> None:
        work, opened, told = ThreadWork(asyncio.get_running_loop()), files(tmp_path, 1), Told(1)
        work.sync("lane", opened, told)
        await told.all()
        work.close()
        others = [end for _ in range(4) for end in os.pipe()]
        work.close()
        for descriptor in others:
            os.close(descriptor)

    run(main())


@needs_compiled
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no watches"), NotImplementedError()], ids=["full", "unable"])
def test_where_the_loop_cannot_be_told_a_lane_does_it_and_nothing_is_left_open(
    run: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "add_reader", refuse)
        if isinstance(error, NotImplementedError):
            monkeypatch.setattr(loop, "remove_reader", refuse)
        work, opened = ThreadWork(loop), files(tmp_path, 1)
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(5):
            told = Told(1)
            work.sync("lane", opened, told)
            assert (await told.all())[0][1] is None
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 2, "the loop's own at most"
        work.close()

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the system does not say what is open")
    run(main())


@needs_compiled
def test_a_round_that_could_not_begin_is_not_one_under_way(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def main() -> None:
        work, opened, told = ThreadWork(asyncio.get_running_loop()), files(tmp_path, 1), Told(1)
        syncer = work._syncer("lane")
        assert syncer is not None
        begin = syncer._begin

        def no_memory(_: list[int]) -> None:
            raise MemoryError

        syncer._begin = no_memory
        with pytest.raises(MemoryError):
            work.sync("lane", opened, told)
        syncer._begin = begin
        work.sync("lane", opened, told)
        assert (await told.all())[0][1] is None
        assert "lane" not in work._lanes
        work.close()

    run(main())


@needs_compiled
def test_the_compiled_thread_takes_one_round_at_a_time_and_no_nonsense(tmp_path: Path) -> None:
    assert native is not None
    woken, wake = os.pipe()
    begin, end, close = native.open_syncer(wake)
    with pytest.raises(TypeError):
        begin((1, 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        begin(["1"])  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        begin([2**80])
    begin([])
    assert os.read(woken, 10) == b"\0"
    assert end()[1] == 0
    (file,) = files(tmp_path, 1)
    refused: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while len(refused) < 2:
        assert time.monotonic() < deadline, "a round is always over before it can be asked for"
        begin([file.fileno()] * 5000)
        for too_early in (end, lambda: begin([])):
            try:
                too_early()
            except RuntimeError as error:
                refused.add(str(error))
        select.select([woken], [], [], PATIENCE)
        os.read(woken, 10)
    assert refused == {"the round is not over", "a round of syncs is under way, or there are no more"}
    begin([file.fileno()] * 100)
    close()
    assert end()[1] == 0
    with pytest.raises(RuntimeError, match="no more"):
        begin([])
    close()
    os.close(woken)
    os.close(wake)


@needs_compiled
def test_the_interpreter_is_free_while_a_dropped_syncer_waits_for_its_round(tmp_path: Path) -> None:
    assert native is not None
    woken, wake = os.pipe()
    (file,) = files(tmp_path, 1)
    seen: list[int] = []
    is_over = threading.Event()

    def count() -> None:
        while not is_over.is_set():
            seen.append(1)
            time.sleep(0)

    for _ in range(20):
        methods: Any = native.open_syncer(wake)
        methods[0]([file.fileno()] * 20_000)
        counter = threading.Thread(target=count)
        counter.start()
        before = len(seen)
        del methods
        counted = len(seen) - before
        is_over.set()
        counter.join()
        is_over.clear()
        if counted > 200:  # a thread that only got the interpreter once the round was over counts a few
            break
    else:
        pytest.fail("no other thread ran while the round was waited for")
    os.close(woken)
    os.close(wake)


IN_A_FORK = """
import os
from barnabas.protocol.native import native
woken, wake = os.pipe()
methods = native.open_syncer(wake)
child = os.fork()
if child == 0:
    methods[2]()
    del methods
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
methods[0]([])
assert os.read(woken, 1)
del methods
print("done")
"""


@needs_compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_fork_has_no_such_thread_and_does_not_wait_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_FORK], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "done\n", done.stderr
