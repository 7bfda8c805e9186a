"""What is told of a partition that could not be served."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.server.replication.replicas import bare_replica_manager

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.runtime.log_limit import LINES


def test_a_mistake_in_thousands_of_partitions_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    manager = bare_replica_manager(SimpleNamespace(time=lambda: 0.0))
    refused = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    assert manager.partition_error(refused, "t", 0) is refused
    assert (manager.failures, caplog.records) == (0, [])
    for index in range(5000):
        assert manager.partition_error(ValueError("a mistake"), "t", index).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert manager.failures == 5000
    assert len(caplog.records) == LINES
    assert caplog.records[0].exc_info is not None
