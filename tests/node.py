"""Node.js for tests: packages of a `package-lock.json`, installed once, and scripts that use them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.foreign_tools import build_copy, require_tool


def require_node() -> None:
    """Skip the test if `node` or `npm` is not installed, or fail it with `CI=true`."""
    for tool in ("node", "npm"):
        require_tool(tool, "these tests need Node.js with npm")


def install_packages(source_dir: Path) -> Path:
    """Copy `source_dir`, run `npm ci` in the copy, and return its folder. An unchanged copy is reused."""
    require_node()
    return build_copy("node", source_dir, ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"])


def run_node(folder: Path, script: str, args: Sequence[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a script of a folder returned by `install_packages` until it exits."""
    command = ["node", str(folder / script), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
