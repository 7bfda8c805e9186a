"""What one request may cost: time, memory, and the turns of others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas import Broker
from barnabas.tools.connection_settings import ConnectionSettings
from barnabas.tools.http_server import AllowedHosts
from barnabas.tools.registry import schema_reader
from barnabas.tools.registry.app import registry_app
from barnabas.tools.registry.errors import RegistryCode, RegistryError
from barnabas.tools.registry.json_schemas import JsonSchema
from barnabas.tools.registry.protobuf_schemas import ProtobufSchema
from barnabas.tools.registry.registry import Registry
from barnabas.tools.registry.schemas import JSON
from barnabas.tools.registry.subjects import Subjects

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
SMALL = {"schema": '"string"'}


def enum_of_objects(count: int, **more: Any) -> str:
    """Draft 4 asks for unique values, which the library compares each with each."""
    return json.dumps({"$schema": DRAFT_4, "enum": [{"a": number} for number in range(count)], **more})


def slow_to_read() -> dict[str, Any]:
    """Some seconds of work."""
    pattern = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(15_000)}}
    return {"schema": json.dumps(pattern), "schemaType": JSON}


@pytest.fixture
async def registry(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Registry]:
    monkeypatch.setattr(schema_reader, "ANSWER_SECONDS", 60.0)  # what is no attack has its time on a busy machine
    with Broker() as broker:
        registry = Registry(ConnectionSettings(broker.bootstrap))
        try:
            await registry.start()
            yield registry
        finally:
            await registry.close()


def test_values_of_an_enum_are_compared_in_time_that_grows_with_their_number() -> None:
    """Two thousand objects took forty seconds; sixty thousand half an hour."""
    began = time.process_time()
    schema = JsonSchema(enum_of_objects(20_000), {})
    assert JsonSchema(enum_of_objects(20_001), {}).cannot_read(schema) == []
    assert schema.cannot_read(JsonSchema(enum_of_objects(20_001), {})) == ["ENUM_ARRAY_NARROWED at #/enum"]
    assert time.process_time() - began < 20
    for values in ([{"a": 1}, {"a": 1.0}], [[1, {"b": None}], [1, {"b": None}]], ["x", "x"]):
        with pytest.raises(ValueError, match="the items are not unique"):
            JsonSchema(json.dumps({"$schema": DRAFT_4, "enum": values}), {})
    JsonSchema(json.dumps({"$schema": DRAFT_4, "enum": [1, True, "1", [1], {"a": 1}, {"a": True}]}), {})


def test_messages_that_refer_to_one_another_in_a_long_chain_are_compared() -> None:
    def chain(kind: str) -> ProtobufSchema:
        messages = "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }} " for n in range(1500))
        return ProtobufSchema(f'syntax = "proto3"; {messages} message M1500 {{ {kind} a = 1; }}', {})

    schema = chain("int32")
    assert schema.cannot_read(chain("int64")) == []
    assert schema.cannot_read(chain("string")) == ["FIELD_SCALAR_KIND_CHANGED at #/M1500/1"]


def test_a_schema_without_a_draft_is_of_draft_7() -> None:
    JsonSchema('{"items": [{"type": "string"}]}', {})
    with pytest.raises(ValueError, match="is not of type"):
        JsonSchema('{"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{"type": "string"}]}', {})


def test_an_id_is_found_among_many_without_a_look_at_all() -> None:
    """Each took 20 ms of the loop with these."""
    subjects = Subjects()
    for number in range(1, 10_001):
        version = {"id": number, "schema": json.dumps({"type": "int", "n": number})}
        refers = [{"name": "x", "subject": "s1", "version": 1}] if number % 1000 == 0 else []
        key = {"keytype": "SCHEMA", "subject": f"s{number}", "version": 1, "magic": 1}
        subjects.apply(json.dumps(key).encode(), json.dumps({**version, "references": refers}).encode())
    began = time.process_time()
    for number in range(1, 2001):
        assert [one.subject for one in subjects.of_id(number)] == [f"s{number}"]
        assert len(subjects.referrers(f"s{number}", 1)) == (10 if number == 1 else 0)
    assert time.process_time() - began < 2
    for number in (1000, 2000):
        subjects.apply(b'{"keytype":"SCHEMA","subject":"s%d","version":1,"magic":1}' % number, None)
        assert subjects.of_id(number) == []
    assert len(subjects.referrers("s1", 1)) == 8


async def test_a_schema_that_takes_too_long_is_refused_and_others_are_served(registry: Registry) -> None:
    await registry.register("s", SMALL)
    registry._reader._large._seconds = 0.02
    heavy = asyncio.create_task(registry.register("s", slow_to_read()))
    while registry._reader._large._process is None:
        await asyncio.sleep(0.001)
    assert (await registry.register("others", SMALL)).number == 1
    assert (await registry.look_up("s", SMALL)).number == 1
    with pytest.raises(RegistryError, match=r"not read within 0\.02 seconds") as refused:
        await heavy
    assert refused.value.code is RegistryCode.INVALID_SCHEMA
    registry._reader._large._seconds = 60.0
    assert (await registry.register("large", {"schema": enum_of_objects(1000), "schemaType": JSON})).number == 1


async def test_work_ends_when_the_client_leaves(registry: Registry) -> None:
    app = registry_app(registry, AllowedHosts.of((), any_address=False))
    await registry.register("large", {"schema": enum_of_objects(1000), "schemaType": JSON})
    process, sent = registry._reader._large._process, list[Any]()
    assert process is not None
    leaves = asyncio.Event()
    messages = [{"type": "http.request", "body": json.dumps(slow_to_read()).encode(), "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/subjects/left/versions"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    request = asyncio.ensure_future(app({**scope, "headers": [(b"host", b"localhost")]}, receive, send))
    while not registry._reader._large._lock.locked():
        await asyncio.sleep(0.001)
    leaves.set()
    await request
    assert process.returncode is not None and process.returncode < 0
    assert not registry.subjects.has("left") and sent[0]["status"] == 499
    assert (await registry.register("left", SMALL)).number == 1


async def test_a_schema_is_compared_again_where_its_subject_changed_meanwhile(registry: Registry) -> None:
    """No turn is held while schemas are compared, and two that are not compatible do not both become versions."""
    texts = [
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})
        for kind in ("int", "string", "boolean", "bytes", "double")
    ]
    outcomes = await asyncio.gather(
        *(registry.register("contended", {"schema": text}) for text in texts), return_exceptions=True
    )
    assert len([one for one in outcomes if not isinstance(one, BaseException)]) in (1, 2)  # bytes read a string
    assert all(isinstance(one, RegistryError) and one.code == 409 for one in outcomes if isinstance(one, BaseException))
    again = await asyncio.gather(*(registry.register("same", SMALL) for _ in range(10)))
    assert {(one.number, one.schema_id) for one in again} == {(1, again[0].schema_id)}


async def test_what_a_schema_refers_to_is_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    refers: list[dict[str, Any]] = []
    for number in range(20):
        text = json.dumps({"type": "record", "name": f"R{number}", "doc": "x" * 100, "fields": []})
        await registry.register(f"part-{number}", {"schema": text, "references": refers})
        refers = [*refers, {"name": f"R{number}", "subject": f"part-{number}", "version": 1}]
    assert (await registry.register("whole", {"schema": '["R3","R19"]', "references": refers})).number == 1
    monkeypatch.setattr(schema_reader, "MAX_CHARS", 2000)
    with pytest.raises(RegistryError, match="has references to more than"):
        await registry.register("whole", {"schema": '["R3","R18"]', "references": refers})


async def test_all_versions_of_a_transitive_level_share_the_time_of_a_request(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.set_level("old", "FULL_TRANSITIVE")
    for number in range(5):
        await registry.register("old", {"schema": json.dumps({"type": "string", "number": number})})
    monkeypatch.setattr(schema_reader, "REQUEST_SECONDS", 0.0)
    with pytest.raises(RegistryError, match="took longer than 0 seconds") as refused:
        await registry.register("old", {"schema": '"string"'})
    assert refused.value.status == 500
