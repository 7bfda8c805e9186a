"""The memory limit of the process is that of its control group, in either version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.server.apis.large_requests import LargeRequests
from barnabas.server.runtime import host
from barnabas.server.runtime.host import memory_limit
from barnabas.server.runtime.memory_budget import memory_budget

MB = 1 << 20


@pytest.mark.parametrize(
    ("entries", "files", "expected"),
    [
        ("0::/a/b\n", {"a/memory.max": str(300 * MB), "a/b/memory.max": "max"}, 300 * MB),
        ("0::/a/b\n", {"a/memory.max": str(300 * MB), "a/b/memory.max": str(200 * MB)}, 200 * MB),
        ("0::/a\n", {"a/memory.max": "max"}, None),
        ("0::/\n", {"memory.max": str(300 * MB)}, 300 * MB),
        # A container without a namespace of its own sees its path on the host, and its limit at the root.
        ("0::/docker/1234\n", {"memory.max": str(300 * MB)}, 300 * MB),
        ("9:cpu,memory:/a\n8:pids:/x\n", {"memory/a/memory.limit_in_bytes": str(300 * MB)}, 300 * MB),
        ("9:memory:/a\n", {"memory/a/memory.limit_in_bytes": str(2**63 - 4096)}, None),
        ("9:memory:/a\n", {"memory/a/memory.limit_in_bytes": "damaged"}, None),
        ("", {}, None),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str, files: dict[str, str], expected: int | None
) -> None:
    groups, of_process = tmp_path / "groups", tmp_path / "cgroup"
    of_process.write_text(entries)
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    monkeypatch.setattr(host, "CGROUPS", groups)
    monkeypatch.setattr(host, "CGROUPS_OF_THIS_PROCESS", of_process)
    assert memory_limit() == expected


def test_mapped_memory_that_there_is_not_is_an_error_that_names_its_size() -> None:
    with pytest.raises(MemoryError, match="request of 4611686018427387904 bytes"):
        host.map_memory(1 << 62)


@pytest.mark.parametrize(("limit", "budget"), [(None, 256 * MB), (300 * MB, 75 * MB), (64 << 30, 256 * MB)])
def test_byte_limits_follow_the_memory_limit(limit: int | None, budget: int) -> None:
    requests = LargeRequests(None, None, limit)  # type: ignore[arg-type] # neither is used
    assert requests._budget == budget
    assert memory_budget(256 * MB, limit) == budget


async def test_offset_maps_of_the_cleaner_follow_the_memory_limit_unless_their_size_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        cleaner = broker.server.state.cleaner
        assert cleaner._ports.memory_limit == memory_limit()
        monkeypatch.setattr(cleaner, "_ports", replace(cleaner._ports, memory_limit=300 * MB))
        assert cleaner._settings().dedupe_buffer_bytes == 75 * MB
        monkeypatch.setattr(cleaner, "_ports", replace(cleaner._ports, memory_limit=64 << 30))
        assert cleaner._settings().dedupe_buffer_bytes == 128 * MB
    async with Broker(data_dir=tmp_path, config={"log.cleaner.dedupe.buffer.size": str(100 * MB)}) as broker:
        cleaner = broker.server.state.cleaner
        monkeypatch.setattr(cleaner, "_ports", replace(cleaner._ports, memory_limit=300 * MB))
        assert cleaner._settings().dedupe_buffer_bytes == 100 * MB
