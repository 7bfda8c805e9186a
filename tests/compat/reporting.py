"""Client programs of tests that print what happens to them, line by line, and end when their input ends."""

import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

PATIENCE_S = 60


class ReportingProcess(ABC):
    """A running program, which ends with its `with` block at the latest.

    `heard` is told of each line in a thread of its own; what it complains of goes to a file.
    """

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @abstractmethod
    def heard(self, word: str, rest: Sequence[str]) -> None:
        """A line came: its first word, and the others."""

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            word, *rest = line.split()
            self.heard(word, rest)

    def check(self) -> None:
        """Raise with what it complained about if it has ended by itself."""
        status = self._process.poll()
        assert status is None, f"it exited {status}: {self._complaints()}"

    def end(self) -> None:
        """Have it end, and wait for its last words."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0, self._complaints()
        self._thread.join(PATIENCE_S)

    def kill(self) -> None:
        """End it, whatever it does, and hear what it has said."""
        self._process.kill()
        self._process.wait()
        self._thread.join(PATIENCE_S)

    def _complaints(self) -> str:
        return self._errors.read_text()[-3000:]
