"""Node for tests: the packages of a folder with a `package-lock.json`, installed once, and scripts run with them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.foreign_tools import built_copy, require_tool


def require_node() -> None:
    """Skip the test unless `node` and `npm` are here; under `CI=true` fail it."""
    for tool in ("node", "npm"):
        require_tool(tool, "these tests need Node.js with npm")


def installed(source_dir: Path) -> Path:
    """A folder with everything of `source_dir` and its `node_modules`, made by `npm ci`; an unchanged one is reused."""
    require_node()
    return built_copy("node", source_dir, ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"])


def run_node(folder: Path, script: str, args: Sequence[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run `script` of an installed folder to its end."""
    command = ["node", str(folder / script), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
