"""Go programs for tests: built once into the cache, and run."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.foreign_tools import build_copy, require_tool


def require_go() -> None:
    """Skip the test if `go` is not installed, or fail it with `CI=true`."""
    require_tool("go", "these tests need Go")


def build_program(source_dir: Path, *shared: Path) -> Path:
    """Build the module in `source_dir` with the files of `shared`, once per version, and return the executable."""
    require_go()
    return build_copy("golang", source_dir, ["go", "build", "-o", "program", "."], *shared) / "program"


def run_go(program: Path, args: Sequence[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a program until it exits."""
    return subprocess.run([str(program), *args], capture_output=True, text=True, timeout=timeout, check=False)
