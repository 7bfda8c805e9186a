"""kcat (Debian package `kcat`) against the broker."""

import json
import re
import subprocess
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.report import ClientReport
from tests.compat.stored import stored_codecs
from tests.foreign_tools import require_tool


class Kcat:
    """The command with a broker address."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.path = require_tool("kcat", "apt-get install kcat")

    def __call__(self, *args: str, stdin: bytes = b"") -> bytes:
        command = [self.path, "-b", self.bootstrap, *args]
        result = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
        assert result.returncode == 0, f"{' '.join(command)}: {result.stderr.decode()}"
        return result.stdout

    def version(self) -> str:
        found = re.search(
            r"Version (\d+\.\d+\.\d+)", subprocess.run([self.path, "-V"], capture_output=True, text=True).stdout
        )
        assert found
        return found[1]


@pytest.mark.timeout(120)
def test_kcat(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    kcat = Kcat(broker)
    admin = AdminClient({"bootstrap.servers": broker})

    def create(partitions: int = 1) -> str:
        topic = f"kcat-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        return topic

    lines = [b"line %d" % n for n in range(500)]
    text = b"\n".join(lines) + b"\n"
    with compat("kcat", kcat.version()) as client:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with client.feature(codec):
                topic = create()
                kcat("-P", "-t", topic, "-z", codec, stdin=text)
                assert codec in stored_codecs(broker, topic)
                assert kcat("-C", "-t", topic, "-e", "-q") == text
        with client.feature("acks"):
            for acks in ("0", "1", "-1"):
                topic = create()
                kcat("-P", "-t", topic, "-X", f"acks={acks}", stdin=text)
                assert kcat("-C", "-t", topic, "-c", "500", "-q") == text
        with client.feature("idempotent"):
            topic = create()
            kcat("-P", "-t", topic, "-X", "enable.idempotence=true", stdin=text)
            assert kcat("-C", "-t", topic, "-e", "-q") == text
        with client.feature("headers"):
            topic = create()
            kcat("-P", "-t", topic, "-K:", "-H", "a=1", "-H", "b=2", stdin=b"key:value\n")
            assert kcat("-C", "-t", topic, "-e", "-q", "-f", "%k|%s|%h\n") == b"key|value|a=1,b=2\n"
        with client.feature("nulls"):
            topic = create()
            kcat("-P", "-t", topic, "-K:", "-Z", stdin=b":value\nkey:\n")
            got = [json.loads(line) for line in kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines()]
            assert [(each["key"], each["payload"]) for each in got] == [(None, "value"), ("key", None)]
        with client.feature("large"):
            topic = create()
            kcat("-P", "-t", topic, stdin=b"x" * 900_000)
            assert len(kcat("-C", "-t", topic, "-e", "-q")) == 900_001
        with client.feature("partitions"):
            topic = create(30)
            kcat("-P", "-t", topic, "-p", "17", stdin=text)
            assert kcat("-C", "-t", topic, "-p", "17", "-e", "-q") == text
            assert f'topic "{topic}" with 30 partitions'.encode() in kcat("-L", "-t", topic)
        with client.feature("offsets"):
            topic = create()
            kcat("-P", "-t", topic, stdin=text)
            assert kcat("-C", "-t", topic, "-o", "-10", "-e", "-q").splitlines() == lines[-10:]
            assert kcat("-C", "-t", topic, "-o", "100", "-c", "5", "-q").splitlines() == lines[100:105]
            assert kcat("-Q", "-t", f"{topic}:0:-1").strip().endswith(b"offset 500")
        with client.feature("timestamps"):
            topic = create()
            kcat("-P", "-t", topic, stdin=text)
            assert kcat("-Q", "-t", f"{topic}:0:1000").strip().endswith(b"offset 0")
            assert kcat("-C", "-t", topic, "-o", "s@1000", "-e", "-q") == text
