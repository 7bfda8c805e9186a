"""A folder for many small logs that are synced all the time."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """A folder in memory where the system has one: what is shown is what files hold, not that a disk keeps them."""
    with tempfile.TemporaryDirectory(prefix="cleaning-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)
