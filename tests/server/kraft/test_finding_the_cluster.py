"""The search for the id of the cluster whose controllers are configured."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import DescribeClusterResponse
from barnabas.server.kraft.kraft_member import KRaftMember
from barnabas.server.raft.observer_state import QuorumConfig
from barnabas.simulation.loop import SimLoop, run


def test_a_broker_among_the_bootstrap_servers_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    requests: list[tuple[str, int]] = []
    is_found = False

    async def send_request(endpoint: tuple[str, int], request: Any, *, lowest: int) -> Any:
        requests.append(endpoint)
        if is_found:
            return DescribeClusterResponse(cluster_id="cluster")
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE)

    async def main(loop: SimLoop) -> None:
        nonlocal is_found
        member: Any = KRaftMember.__new__(KRaftMember)
        member._quorum_config = QuorumConfig((("broker1", 9092), ("broker2", 9092)))
        member._for_raft = SimpleNamespace(send_request=send_request)
        finding = loop.create_task(member._find_cluster_id())
        await asyncio.sleep(60)
        assert 60 < len(requests) < 80
        is_found = True
        assert await finding == "cluster"

    run(main, 1)
    lines = [one.getMessage() for one in caplog.records if "MISMATCHED_ENDPOINT_TYPE" in one.getMessage()]
    assert len(lines) == 2, "one for each server"
