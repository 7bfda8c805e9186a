"""kafka-go against the broker."""

from collections.abc import Callable

import pytest
from tests.compat.go_clients import go_client, pinned_version
from tests.compat.report import COLUMNS, ClientReport
from tests.golang import run_go

# It has no idempotent producer, and no request that deletes records.
FEATURES = [name for name in COLUMNS if name not in ("idempotent", "delete-records")]


@pytest.mark.golang
@pytest.mark.timeout(300)
def test_kafka_go(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    program = go_client("kafkago")
    with compat("kafka-go", pinned_version("kafkago", "github.com/segmentio/kafka-go")) as client:
        result = run_go(program, [broker], timeout=200)
        client.take_lines(result.stdout + result.stderr, FEATURES)
