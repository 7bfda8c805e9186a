"""Control groups with a memory limit for the servers of tests. They require root, and a machine that permits them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from barnabas.server.runtime.host import CGROUPS, CGROUPS_OF_THIS_PROCESS


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Create a control group with a limit in bytes, below the group of this process. Skip the test if that fails."""
    paths = dict(line.split(":", 2)[1:] for line in CGROUPS_OF_THIS_PROCESS.read_text().splitlines())
    if "memory" in paths:
        parent, file = CGROUPS / "memory" / paths["memory"].lstrip("/"), "memory.limit_in_bytes"
    else:
        parent, file = CGROUPS / paths.get("", "").lstrip("/"), "memory.max"
    group = parent / f"barnabas-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cannot create a control group: {error}")
    try:
        try:
            (group / file).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"cannot set the memory limit of a control group: {error}")
        yield group
    finally:
        with suppress(OSError):  # a process of the group has not ended yet
            group.rmdir()
