"""What user interfaces ask through AdminClient 3.9.1 and 4.4.0, method by method."""

import json
from pathlib import Path

import pytest
from tests.compat.test_java import program
from tests.java import run_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

SCREENS = 18
NEWER_SCREENS = 3


@pytest.mark.parametrize(("version", "expected"), [("3.9.1", SCREENS), ("4.4.0", SCREENS + NEWER_SCREENS)])
def test_screens(version: str, expected: int, broker: str, tmp_path: Path) -> None:
    newer = f"screens_{version[0]}_{version[2]}"
    classpath = program(("screens", newer, "futures", "report"), f"org.apache.kafka:kafka-clients:{version}", tmp_path)
    result = run_java("Screens", classpath, [broker], timeout=120)
    answers = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"feature"')]
    failed = {answer["feature"]: answer["detail"] for answer in answers if not answer["ok"]}
    assert not failed, failed
    assert len(answers) == expected, result.stdout + result.stderr
