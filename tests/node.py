"""Node for tests: the packages of a folder with a `package-lock.json`, installed once, and scripts run with them."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.tools import cache_dir, cache_entry, digest, require_tool, run_checked


def require_node() -> None:
    """Skip the test unless `node` and `npm` are here; under `CI=true` fail it."""
    for tool in ("node", "npm"):
        require_tool(tool, "these tests need Node.js with npm")


def installed(source_dir: Path) -> Path:
    """A folder with everything of `source_dir` and its `node_modules`, made by `npm ci`; an unchanged one is reused."""
    require_node()
    sources = sorted(path for path in source_dir.iterdir() if path.is_file())
    parts = [part for path in sources for part in (path.name, path.read_bytes())]
    with cache_entry(cache_dir("node"), f"{source_dir.name}-{digest(*parts)}") as (entry, scratch):
        if scratch is not None:
            for path in sources:
                shutil.copy(path, scratch)
            run_checked(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=scratch)
    return entry


def run_node(folder: Path, script: str, args: Sequence[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run `script` of an installed folder to its end."""
    command = ["node", str(folder / script), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
