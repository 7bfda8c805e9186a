"""Control groups with a memory limit, for a server of a test. Root makes them, where the machine permits it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from barnabas.server.runtime.host import CGROUPS, CGROUPS_OF_THIS_PROCESS


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Make a control group below that of this process, whose processes may use `limit` bytes; skip without one."""
    paths = dict(line.split(":", 2)[1:] for line in CGROUPS_OF_THIS_PROCESS.read_text().splitlines())
    if "memory" in paths:
        parent, file = CGROUPS / "memory" / paths["memory"].lstrip("/"), "memory.limit_in_bytes"
    else:
        parent, file = CGROUPS / paths.get("", "").lstrip("/"), "memory.max"
    group = parent / f"barnabas-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            (group / file).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"a control group cannot have a memory limit: {error}")
        yield group
    finally:
        with suppress(OSError):  # of a process that has not ended yet
            group.rmdir()
