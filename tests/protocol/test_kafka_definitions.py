"""Our messages against Apache Kafka: its definitions, and its own serialisers as judges of our bytes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.java import compile_java, run_java
from tests.protocol.kafka_definitions import (
    RELEASES,
    assert_same_values,
    client_classpath,
    covered_versions,
    definition_for,
    definitions,
    is_current,
    kafka_tree,
    our_tree,
    snake_case,
)
from tests.protocol.random_messages import random_message

from barnabas.protocol import codec
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import request_header_version, response_header_version

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

# An API that had another name before 4.1.
RENAMED = {"LIST_CLIENT_METRICS_RESOURCES": "LIST_CONFIG_RESOURCES"}


def every_side() -> list[tuple[ApiKey, str, type]]:
    return [
        (key, side, cls)
        for key, spec in API_MESSAGES.items()
        for side, cls in (("request", spec.request), ("response", spec.response))
    ]


def test_fields_are_those_of_kafka() -> None:
    for key, side, cls in every_side():
        spec = API_MESSAGES[key]
        for version in spec.versions.numbers():
            definition = definition_for(key, side, version)
            ours, theirs = our_tree(cls, version), kafka_tree(definition, version)
            if not is_current(definition):
                # Later versions made some fields of versions that they dropped ignorable.
                ours, theirs = without_ignorable(ours), without_ignorable(theirs)
            assert ours == theirs, (cls.__name__, version)


def without_ignorable(tree: Any) -> Any:
    if isinstance(tree, tuple):
        return tuple(without_ignorable(part) for part in tree[:-1])
    return [without_ignorable(part) for part in tree] if isinstance(tree, list) else tree


def test_every_version_of_kafka_is_here() -> None:
    for release in RELEASES:
        for key, side, cls in every_side():
            theirs = covered_versions(release, key, side)
            ours = API_MESSAGES[key].versions
            assert theirs.last < theirs.first or (theirs.first >= ours.first and theirs.last <= ours.last), cls.__name__


def test_keys_are_those_of_kafka() -> None:
    names = {key.value: key.name for key in ApiKey}
    for release in RELEASES:
        for (key, side), definition in definitions(release).items():
            name = snake_case(definition["name"].removesuffix(side.capitalize())).upper()
            assert names[key] == RENAMED.get(name, name)


def ask(release: str, questions: list[str]) -> list[str]:
    classpath = client_classpath(release)
    classes = compile_java(Path(__file__).parent / "java", classpath)
    result = run_java("MessageOracle", [classes, *classpath], stdin="\n".join(questions) + "\n", timeout=500)
    assert result.returncode == 0, result.stderr[-2000:]
    answers = result.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_reads_and_writes_the_same_bytes(release: str) -> None:
    judge(release, range(3))


@pytest.mark.verify
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("start", (0, 40))
def test_kafka_reads_and_writes_the_same_bytes_at_length(release: str, start: int) -> None:
    judge(release, range(start + 3, start + 43))


def judge(release: str, seeds: range) -> None:
    """Kafka decodes random messages of ours, must find in them what we put in, and must encode the same bytes."""
    asked = []
    for key, side, cls in every_side():
        if definitions(release).get((key, side), {}).get("name") != cls.__name__:
            continue
        covered = covered_versions(release, key, side)
        for version in covered.numbers():
            for seed in seeds:
                message = random_message(cls, version, random.Random(f"{cls.__name__} {version} {seed}"))
                asked.append((key, side, version, seed, message, b"".join(codec.encode_response(message, version))))
    questions = [f"{side} {key.value} {version} {data.hex()}" for key, side, version, _, _, data in asked]
    for (key, side, version, seed, message, data), answer in zip(asked, ask(release, questions), strict=True):
        where = f"{key.name} {side} v{version} seed {seed}"
        assert not answer.startswith("error"), f"{where}: {answer}"
        left, again, text = answer.split(" ", 2)
        assert left == "0", where
        assert again == data.hex(), where
        assert_same_values(type(message), message, json.loads(text), version, where)


def test_header_versions_are_those_of_kafka() -> None:
    for release in RELEASES:
        asked = []
        for key in API_MESSAGES:
            covered = covered_versions(release, key, "request")
            asked += [(key, version) for version in covered.numbers()]
        answers = ask(release, [f"header {key.value} {version}" for key, version in asked])
        for (key, version), answer in zip(asked, answers, strict=True):
            ours = f"{request_header_version(key, version)} {response_header_version(key, version)}"
            assert answer == ours, (release, key.name, version)


def test_error_codes_are_those_of_kafka() -> None:
    theirs: dict[int, tuple[str, bool]] = {}
    for release in reversed(RELEASES):
        for item in ask(release, ["errors"])[0].split(" "):
            code, name, retriable = item.split(":")
            theirs[int(code)] = (name, retriable == "true")
    ours = {code.value: (code.name, code.retriable) for code in ErrorCode}
    assert {code: entry for code, entry in ours.items() if code in theirs} == theirs
