"""Servers as child processes of tests: started, awaited, stopped or killed. They end with the test process."""

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
"""The number of pytest-xdist workers that have separate ranges of ports."""
_used_ports: set[int] = set()
_random = random.SystemRandom()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now. Each call returns a different port.

    A server may bind the port much later, or bind it again after a restart. Therefore it is not an ephemeral port,
    which the operating system could assign to another socket, and not in the range of another pytest-xdist worker.
    """
    ports = _worker_ports()
    while True:
        port = _random.choice(ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _used_ports:
            _used_ports.add(port)
            return port


def _worker_ports() -> range:
    """Return the range of ports of this test process."""
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        end = 0
    if end < 2 * FIRST_PORT:
        end = 32_768  # the ephemeral ports of this system overlap the range
    count = (end - FIRST_PORT) // TEST_PROCESSES
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw") or TEST_PROCESSES - 1)
    first = FIRST_PORT + worker % TEST_PROCESSES * count
    return range(first, first + count)


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str, interval_s: float = 0.01) -> None:
    """Return as soon as the condition holds. Raises TimeoutError with the description `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {timeout_s} s")
        time.sleep(interval_s)


def is_broker_ready(host: str, port: int) -> bool:
    """Return whether a server reports at least one broker, so that clients can use it."""
    return count_brokers(host, port) > 0


def count_brokers(host: str, port: int) -> int:
    """Return the number of brokers in a response to Metadata v1 without topics, 0 if there is no response."""
    body = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            response = connection.makefile("rb")
            size = response.read(4)
            if len(size) < 4:
                return 0
            frame = response.read(struct.unpack(">i", size)[0])
            return int(struct.unpack_from(">i", frame, 4)[0]) if len(frame) >= 8 else 0
    except OSError:
        return 0


class ServerProcess:
    """A child process that ends with the test process. Its output is appended to a file."""

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
        """Raise RuntimeError with the end of the log if the process has exited."""
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"the server exited {code}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """Return the end of the output of the process."""
        return self.log_path.read_bytes()[-4000:].decode(errors="replace")

    def wait_ready(self, ready: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait until `ready()` holds. Raises RuntimeError if the process exits, and TimeoutError after `timeout_s`."""

        def is_alive_and_ready() -> bool:
            self.check_alive()
            return ready()

        try:
            wait_until(is_alive_and_ready, timeout_s=timeout_s, what=what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.log_tail()}") from None

    def wait(self, timeout_s: float) -> int:
        """Wait until the process exits, and return its exit status. Raises TimeoutExpired."""
        status = self._process.wait(timeout_s)
        self._log.close()
        return status

    def end(self, signal_number: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Send a signal and return the exit status.

        A process that does not exit within `timeout_s` is killed. Raises TimeoutExpired for it.
        """
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
    """A broker process with a folder and a port. `stop` and `kill` keep the folder, which `start` uses again.

    Its output is appended to the file `log`. Its log directory is `log_dir`.
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
        """Add settings. Call this before the first start, which writes server.properties."""
        self._properties |= properties

    def command(self) -> list[str]:
        """Return the command that starts the broker, and prepare its folder, which exists."""
        raise NotImplementedError

    def start(self, timeout_s: float = 90) -> None:
        """Start the broker, and return once it responds to clients."""
        self.launch()
        self.wait_until_ready(timeout_s)

    def launch(self) -> None:
        """Start the process. It is killed when the calling thread ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess(self.command(), self.log)

    def wait_until_ready(self, timeout_s: float = 90) -> None:
        """Return once the broker responds to clients."""
        what = f"{type(self).__name__} responds on {self.bootstrap}"
        self._running().wait_ready(self.is_ready, timeout_s=timeout_s, what=what)

    def is_ready(self) -> bool:
        """Return whether clients can use the broker."""
        return is_broker_ready("127.0.0.1", self.port)

    @property
    def is_running(self) -> bool:
        """Return whether the broker was started, and not stopped or killed since."""
        return self._process is not None

    def log_tail(self) -> str:
        """Return the end of the broker's output."""
        return self.log.read_bytes()[-20_000:].decode(errors="replace") if self.log.exists() else ""

    def wait(self, timeout_s: float) -> int:
        """Wait until the process exits, and return its exit status. Raises TimeoutExpired."""
        status = self._running().wait(timeout_s)
        self._process = None
        return status

    def stop(self, timeout_s: float = 60) -> int:
        """Shut the broker down with SIGTERM. Return the exit status, 0 if it is not running."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """Send SIGKILL: the broker flushes nothing and writes no clean-shutdown marker."""
        self._end(signal.SIGKILL, 60)

    def _running(self) -> ServerProcess:
        assert self._process is not None, "the broker is not running"
        return self._process

    def _end(self, signal_number: signal.Signals, timeout_s: float) -> int:
        process, self._process = self._process, None
        return 0 if process is None else process.end(signal_number, timeout_s)


def wait_until_all_registered(brokers: Collection[BrokerProcess], timeout_s: float = 60) -> None:
    """Return once every broker of a cluster, including the controller, lists all of these brokers.

    A replica cannot be assigned to a registered broker before the controller lists it.
    """

    def are_all_listed() -> bool:
        return all(count_brokers("127.0.0.1", broker.port) == len(brokers) for broker in brokers)

    wait_until(are_all_listed, timeout_s=timeout_s, what=f"{len(brokers)} brokers list each other")
