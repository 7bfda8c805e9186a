"""A restored backup read by Kafka's dump-log and by a consumer of librdkafka."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer, cli_command
from tests.compat.test_kafka_files import COMPLAINTS, create, files, fill, read
from tests.java import require_java
from tests.kafka import KafkaTools

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]


def test_kafka_tools_and_clients_read_a_restored_directory(tmp_path: Path) -> None:
    require_java()
    target, restored = tmp_path / "backups", BarnabasServer(tmp_path / "restored")
    with BarnabasServer(tmp_path / "broker") as server:
        create(server.bootstrap, "segments", config={"segment.bytes": "20000"})
        rows = fill(server.bootstrap, "segments", "zstd", count=2000)
        for words in (
            ("backup", str(target), "-b", server.bootstrap),
            ("restore", str(target), "--to", str(restored.log_dir)),
        ):
            subprocess.run(cli_command(*words), check=True)
        fill(server.bootstrap, "segments", "none", count=10)
    tools = KafkaTools()
    text = tools.output("kafka-dump-log", "--print-data-log", "--files", files(restored.log_dir, ".log"))
    complaints = [line for line in text.splitlines() if COMPLAINTS.search(line)]
    assert not complaints, complaints[:5]
    assert len(re.findall(r"payload: zstd value \d+ x", text)) == sum(value is not None for _, value, _ in rows)
    with restored:
        assert read(restored.bootstrap, "segments", 2000) == rows
        restored.stop()
    indexes = ",".join([files(restored.log_dir, ".index"), files(restored.log_dir, ".timeindex")])
    text = tools.output("kafka-dump-log", "--index-sanity-check", "--files", indexes)
    assert not COMPLAINTS.search(text), text[:2000]
