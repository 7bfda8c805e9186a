"""What the README tells a newcomer to type is typed here."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.server_process import ServerProcess, free_port

from barnabas import Broker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TIMEOUT_SECONDS = 200


def blocks(language: str) -> list[str]:
    """The README's code in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(420)
def test_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, tour = (block for block in blocks("sh") if "barnabas" in block)
    install, command = start.splitlines()
    assert install.split("  ")[0] == "python3 -m venv .venv && . .venv/bin/activate && pip install ."
    port = free_port()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", f"127.0.0.1:{port}")
    broker = ServerProcess([*command.removesuffix(" &").split(), "--port", str(port)], tmp_path / "broker.log")
    try:
        broker.wait_ready(lambda: "\nready" in broker.log_tail(), timeout_s=TIMEOUT_SECONDS, what="ready")
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", tour],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    finally:
        broker.end()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("EWR to IAH") >= 3, "consumed three times: as text, as JSON, as a member of a group"
    assert "departures" in done.stdout


def test_the_examples_in_python() -> None:
    embedded, from_asyncio, _ = blocks("python")
    exec(compile(embedded, "README.md", "exec"), {})
    with Broker() as broker:
        body = from_asyncio.replace("localhost:9092", broker.bootstrap)
        assert body != from_asyncio
        scope: dict[str, Any] = {}
        exec(compile("async def example():\n" + textwrap.indent(body, "    "), "README.md", "exec"), scope)
        asyncio.run(scope["example"]())  # type: ignore[operator]
