"""A page of documentation as a program: its blocks of code, in order, as one shell script."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_BROKER = re.compile(r"^(?P<command>barnabas start [^>\n]*?)(?: > (?P<log>\S+) 2>&1)? &$", re.MULTILINE)
READY_SECONDS = 60


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
