"""What is told of a partition that could not be served."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.metadata.metadata_cache import MetadataCache
from barnabas.server.replication.hosted_partitions import HostedPartitions
from barnabas.server.runtime.log_limit import LINES


def test_a_mistake_in_thousands_of_partitions_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    hosted = HostedPartitions(cast(Any, None), MetadataCache("c"), lambda: 0.0)
    refused = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    assert hosted.answer_to(refused, "t", 0) is refused
    assert (hosted.failures, caplog.records) == (0, [])
    for index in range(5000):
        assert hosted.answer_to(ValueError("a mistake"), "t", index).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert hosted.failures == 5000
    assert len(caplog.records) == LINES
    assert caplog.records[0].exc_info is not None
