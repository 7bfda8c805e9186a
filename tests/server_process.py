"""Servers as child processes of tests: ready when they answer, stopped or killed, never outliving the tests."""

import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

FIRST_PORT = 10_000
TEST_PROCESSES = 8
"""So many of them have ports of their own."""
_given_out: set[int] = set()
_chance = random.SystemRandom()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment, and another one each time.

    Whoever got it may bind it much later, or bind it again after a restart. So it is none that the system gives out by
    itself, and none that another worker of pytest-xdist is given.
    """
    ports = _own_ports()
    while True:
        port = _chance.choice(ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given_out:
            _given_out.add(port)
            return port


def _own_ports() -> range:
    """Those of this test process."""
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        end = 0
    if end < 2 * FIRST_PORT:
        end = 32_768  # the system gives some of them out, on this one
    count = (end - FIRST_PORT) // TEST_PROCESSES
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw") or TEST_PROCESSES - 1)
    first = FIRST_PORT + worker % TEST_PROCESSES * count
    return range(first, first + count)


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str, interval_s: float = 0.01) -> None:
    """Return as soon as `condition()` holds; after `timeout_s` raise a TimeoutError that names `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {timeout_s} s")
        time.sleep(interval_s)


def broker_answers(host: str, port: int) -> bool:
    """Whether one tells of at least one broker: clients can be let in then."""
    return brokers_known_at(host, port) > 0


def brokers_known_at(host: str, port: int) -> int:
    """How many brokers the answer to a Metadata v1 request for no topic names, 0 without one."""
    body = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb")
            size = answer.read(4)
            if len(size) < 4:
                return 0
            frame = answer.read(struct.unpack(">i", size)[0])
            return int(struct.unpack_from(">i", frame, 4)[0]) if len(frame) >= 8 else 0
    except OSError:
        return 0


class ServerProcess:
    """A child process whose output goes to a file, that ends with the test process, and whose death is reported."""

    def __init__(self, command: Sequence[str], log_path: Path) -> None:
        self.log_path = log_path
        self._log = log_path.open("ab")
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check_alive(self) -> None:
        """Raise with the end of its log if the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"the server exited {code}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last part of what the process printed."""
        return self.log_path.read_bytes()[-4000:].decode(errors="replace")

    def wait_ready(self, ready: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait for `ready()` while the process lives."""

        def alive_and_ready() -> bool:
            self.check_alive()
            return ready()

        try:
            wait_until(alive_and_ready, timeout_s=timeout_s, what=what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.log_tail()}") from None

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends by itself; returns the exit status. Raises TimeoutExpired."""
        status = self._process.wait(timeout_s)
        self._log.close()
        return status

    def end(self, signal_number: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Send `signal_number`; returns the exit status. A process that does not end in time is killed and reported."""
        if self._process.poll() is None:
            self._process.send_signal(signal_number)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._log.close()


class BrokerProcess:
    """A broker with its own folder and port; `stop` and `kill` leave the folder, `start` opens it again.

    What it prints goes to `log`; its log directory is `log_dir`.
    """

    def __init__(self, folder: Path, *, port: int | None = None, properties: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.log_dir = folder / "data"
        self.log = folder / "server.log"
        self.port = port or free_port()
        self._properties = dict(properties or {})
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def add_properties(self, properties: Mapping[str, str]) -> None:
        """More settings for the next start, before the first one."""
        self._properties |= properties

    def command(self) -> list[str]:
        """What starts it; the folder exists and is prepared afterwards."""
        raise NotImplementedError

    def start(self, timeout_s: float = 90) -> None:
        """Start the broker and return once it answers clients."""
        self.launch()
        self.wait_until_it_answers(timeout_s)

    def launch(self) -> None:
        """Start the process. It dies with the thread that called this."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess(self.command(), self.log)

    def wait_until_it_answers(self, timeout_s: float = 90) -> None:
        """Return once it answers clients."""
        what = f"{type(self).__name__} answers on {self.bootstrap}"
        self._running().wait_ready(self.answers, timeout_s=timeout_s, what=what)

    def answers(self) -> bool:
        """Whether clients can be let in."""
        return broker_answers("127.0.0.1", self.port)

    @property
    def is_running(self) -> bool:
        """Whether it was started and neither stopped nor killed."""
        return self._process is not None

    def log_tail(self) -> str:
        """The last part of what the broker printed."""
        return self.log.read_bytes()[-20_000:].decode(errors="replace") if self.log.exists() else ""

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends by itself; returns the exit status. Raises TimeoutExpired."""
        status = self._running().wait(timeout_s)
        self._process = None
        return status

    def stop(self, timeout_s: float = 60) -> int:
        """Clean shutdown (SIGTERM); returns the exit status, 0 if it is not running."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """kill -9: nothing is flushed, no clean-shutdown marker is left."""
        self._end(signal.SIGKILL, 60)

    def _running(self) -> ServerProcess:
        assert self._process is not None, "the broker is not running"
        return self._process

    def _end(self, signal_number: signal.Signals, timeout_s: float) -> int:
        process, self._process = self._process, None
        return 0 if process is None else process.end(signal_number, timeout_s)


def wait_until_all_know(brokers: Collection[BrokerProcess], timeout_s: float = 60) -> None:
    """Return once each of these brokers, which are one cluster, knows of as many, the controller among them.

    Who has just registered is no place for a replica until the controller has heard of it.
    """

    def do_they() -> bool:
        return all(brokers_known_at("127.0.0.1", broker.port) == len(brokers) for broker in brokers)

    wait_until(do_they, timeout_s=timeout_s, what=f"{len(brokers)} brokers know each other")
