"""A page of documentation as a program: its blocks of code, in order, as one shell script, or its single commands."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self
from uuid import uuid4

from tests.server_process import ServerProcess

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_BROKER = re.compile(r"^(?P<command>barnabas start [^>\n]*?)(?: > (?P<log>\S+) 2>&1)? &$", re.MULTILINE)
READY_SECONDS = 60
COMMAND_SECONDS = 120


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is the content of if it has a title, and its text."""

    language: str
    file: str
    code: str


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [Block(match["language"], match["file"] or "", match["code"]) for match in _BLOCK.finditer(text)]


def script_of(page: str, ports: dict[str, int]) -> str:
    """Return a shell script that does what a reader of the page does, with these ports instead of the usual ones.

    A block with a title is written to the file of that name, a block of Python without a title is run, and so is a
    block of shell commands. `pip install` is omitted, because the environment of the test has the packages. The script
    waits for the `ready` of a broker that it starts in the background.
    """
    parts = ["set -euo pipefail -m"]
    for number, block in enumerate(blocks_of(page)):
        code = block.code
        for usual, port in ports.items():
            code = code.replace(usual, str(port))
        if block.file:
            name = shlex.quote(block.file)
            parts.append(f"mkdir -p \"$(dirname {name})\"\ncat > {name} <<'END_OF_FILE'\n{code}END_OF_FILE")
        elif block.language == "python":
            parts.append(f"python3 - <<'END_OF_PROGRAM'\n{code}END_OF_PROGRAM")
        elif block.language == "sh":
            code = re.sub(r"^pip install .*$", "", code, flags=re.MULTILINE)
            replace = partial(_start_and_wait, log=f"broker-{number}.log", port=ports["9092"])
            parts.append(_BROKER.sub(replace, code))
    return "\n".join(parts) + "\n"


def _start_and_wait(found: re.Match[str], log: str, port: int) -> str:
    log = found["log"] or log
    command = found["command"]
    if "--port" not in command and ".properties" not in command:
        command += f" --port {port}"
    return (
        f"{command} > {log} 2>&1 &\n"
        f"timeout {READY_SECONDS} bash -c 'until grep -q ^ready {log}; do sleep 0.1; done' || {{ cat {log}; exit 1; }}"
    )


def commands_of(page: str) -> list[str]:
    """Return the shell commands of a page in order, one per line, continued lines joined, without comments."""
    code = "".join(block.code for block in blocks_of(page) if block.language == "sh")
    lines = (re.sub(r"(?:^|\s+)# .*| #$", "", line).strip() for line in code.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


class Reader:
    """A reader who types the commands of a page one after the other, in an empty folder.

    Each test of a page takes all its commands, in order, so that a new command of the page is not forgotten.
    """

    def __init__(self, page: str, folder: Path, bootstrap: str, replaced: Mapping[str, str] | None = None) -> None:
        """`replaced` are texts of the page and those that stand for them on this machine."""
        self._page = page
        self._folder = folder
        self._commands = deque(commands_of(page))
        self._replaced = {"localhost:9092": bootstrap, "broker:9092": bootstrap, **(replaced or {})}
        self._own = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "BARNABAS_BOOTSTRAP_SERVER": bootstrap,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert kind is not None or not self._commands, f"{self._page}: no test of {list(self._commands)}"

    def take(self, begin: str) -> str:
        """Return the next command, which has this beginning."""
        assert self._commands, f"{self._page} has no command {begin!r}"
        command = self._commands.popleft()
        assert command.startswith(begin), f"{self._page}: {command!r} is not {begin!r}"
        for usual, here in self._replaced.items():
            command = command.replace(usual, here)
        return command

    def run(self, begin: str, more: str = "") -> str:
        """Run the next command to its end, and return its output; it has to succeed. `more` is put after it."""
        return self.end(self.take(begin) + more)

    def end(self, command: str) -> str:
        """Run a command that was taken to its end."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env={**os.environ, **self._own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def running(self, begin: str, until: str, more: str = "") -> Iterator[Path]:
        """Run the next command, which does not end by itself, until its output has a text; yield the output's file.

        At the end it gets what Ctrl-C sends.
        """
        with self.foreground(self.take(begin) + more, until) as output:
            yield output

    @contextmanager
    def foreground(self, command: str, until: str) -> Iterator[Path]:
        """Do so with a command that was taken."""
        variables = [f"{name}={value}" for name, value in self._own.items()]
        log = self._folder / f"{uuid4().hex}.log"
        words = ["env", "-C", str(self._folder), *variables, "bash", "-c", f"exec {command}"]
        process = ServerProcess(words, log)
        try:
            process.wait_ready(lambda: until in log.read_text(), timeout_s=COMMAND_SECONDS, what=f"{command}: {until}")
            yield log
            process.check_alive()
        finally:
            process.end(signal.SIGINT)
