"""The way of a produce request through the code, traced in a running broker: what the architecture page says it is."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.bench.wire import Answers, connect, produce_request, received, small_batch

import barnabas
from barnabas.protocol.native import native
from barnabas.testing.broker import Broker

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(barnabas.__file__).parent)
MOST_FILES, MOST_FILES_ON_DISK = 14, 18
MOST_CALLS, MOST_CALLS_ON_DISK = 40, 100
TOPIC = "t"

pytestmark = pytest.mark.skipif(native is None, reason="without compiled code its twins are on the way, too")


class Trace:
    """Counts calls of the project's functions on all threads that begin while it is installed, by file."""

    def __init__(self) -> None:
        self.files: Counter[str] | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        files, path = self.files, frame.f_code.co_filename
        if files is not None and event == "call" and path.startswith(PACKAGE):
            files[path[len(PACKAGE) + 1 :]] += 1

    def of_one(self, stream: socket.socket, request: bytes) -> Counter[str]:
        """Calls from a request until its answer: the least of some, as others come upon an index entry or a timer."""
        answers = Answers(TOPIC)
        ways = []
        for number in range(60):
            if number >= 30:
                self.files = Counter()
            stream.sendall(request)
            while not answers.take(received(stream)):
                continue
            if self.files is not None:
                ways.append(self.files)
                self.files = None
        return min(ways, key=lambda files: (len(files), files.total()))


def way(acks: int, durability: str) -> Counter[str]:
    trace = Trace()
    threading.setprofile(trace)
    try:
        with (
            Broker([TOPIC], config={"acks.all.durability": durability}) as broker,
            connect(broker.bootstrap) as stream,
        ):
            return trace.of_one(stream, produce_request(TOPIC, [(0, small_batch())], acks))
    finally:
        threading.setprofile(None)


def files_told() -> tuple[list[str], list[str]]:
    """The files named in the tables of the architecture page's chapter: on every request's way, and beyond that."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    chapter = page.partition("## The path of a produce request\n")[2].partition("\n## ")[0]
    always, _, on_disk = chapter.partition("With acks −1")
    first, more = ("".join(re.findall(r"^\| \d+ .*", part, re.M)) for part in (always, on_disk))
    return re.findall(r"`([a-z_/]+\.py)`", first), re.findall(r"`([a-z_/]+\.py)`", more)


def test_a_produce_request_comes_through_the_files_that_the_page_names() -> None:
    files = way(1, "page-cache")
    assert sorted(files) == sorted(files_told()[0]), files
    assert len(files) <= MOST_FILES
    assert files.total() <= MOST_CALLS, files


def test_one_that_waits_for_the_disk_comes_through_a_few_more() -> None:
    files = way(-1, "disk")
    always, on_disk = files_told()
    assert sorted(files) == sorted(always + on_disk), files
    assert len(files) <= MOST_FILES_ON_DISK, files
    assert files.total() <= MOST_CALLS_ON_DISK, files


def test_the_readme_counts_them() -> None:
    always, on_disk = files_told()
    numbers = {13: "thirteen", 18: "eighteen"}
    told = (
        f"the path of a produce request is {numbers[len(always)]} files long, and {numbers[len(always + on_disk)]} if"
    )
    assert told in (ROOT / "README.md").read_text()
