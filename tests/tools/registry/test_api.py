"""The registry's REST API: Confluent's answers and codes, what it keeps, and what it does not let itself in for."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.testing import Broker, Cluster
from barnabas.tools.connection_settings import ConnectionSettings
from barnabas.tools.registry import schema_log
from barnabas.tools.registry.app import MAX_BODY_BYTES
from barnabas.tools.registry.json_schemas import JsonSchema
from barnabas.tools.registry.registry import Registry

STRING, INT = '"string"', '"int"'


def record(*fields: str, **more: Any) -> str:
    """An Avro record of these fields, those with = with a default."""
    made: list[dict[str, Any]] = [
        {"name": name.rstrip("="), "type": "string", **({"default": ""} if name.endswith("=") else {})}
        for name in fields
    ]
    return json.dumps({"type": "record", "name": "Row", "fields": made, **more})


class Api:
    """A registry as anybody asks it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, timeout=60)

    def __call__(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        answer = self._client.request(method, path, json=body, params=query or None)
        said = answer.json()
        if answer.status_code == 200:
            return said
        assert answer.status_code == (said["error_code"] if said["error_code"] < 1000 else said["error_code"] // 100)
        return said["error_code"]

    def register(self, subject: str, text: str, kind: str = "AVRO", **more: Any) -> Any:
        """Its id, or the code that refuses it."""
        said = self("POST", f"/subjects/{subject}/versions", {"schema": text, "schemaType": kind, **more})
        return said["id"] if isinstance(said, dict) else said

    def raw(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._client.request(method, path, **more)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(schema_registry=True) as broker:
        yield broker


@pytest.fixture
def api(broker: Broker) -> Api:
    return Api(broker.schema_registry_url)


def test_one_schema_has_one_id(api: Api) -> None:
    first = api.register("a-value", STRING)
    assert api.register("a-value", ' { "type" : "string" } ') == first
    assert api.register("b-value", STRING) == first
    assert api("GET", f"/schemas/ids/{first}") == {"schema": STRING}
    assert api.raw("GET", f"/schemas/ids/{first}/schema").text == STRING
    assert api("GET", f"/schemas/ids/{first}/versions")[:2] == [
        {"subject": "a-value", "version": 1},
        {"subject": "b-value", "version": 1},
    ]
    assert api("GET", f"/schemas/ids/{first}/subjects")[:2] == ["a-value", "b-value"]
    assert api("POST", "/subjects/a-value", {"schema": STRING})["version"] == 1
    assert api("POST", "/subjects/a-value", {"schema": INT}) == 40403
    assert api("POST", "/subjects/nobody", {"schema": STRING}) == 40401
    assert api("GET", "/schemas/ids/99999") == 40403


@pytest.mark.parametrize(
    "words",
    [
        {"name": "nyc.Flight", "namespace": "ignored"},
        {"name": "Flight", "namespace": "nyc", "aliases": []},
        {
            "name": "nyc.Flight",
            "fields": [
                {"order": "ascending", "type": {"type": "string"}, "name": "tail", "aliases": []},
                {"name": "to", "type": {"type": "enum", "name": "To", "namespace": "nyc", "symbols": ["A"]}},
                {"name": "from", "type": "nyc.To"},
            ],
        },
    ],
)
def test_a_schema_in_other_words_is_found_and_has_the_same_id(api: Api, words: dict[str, Any]) -> None:
    fields = [
        {"name": "tail", "type": "string"},
        {"name": "to", "type": {"type": "enum", "name": "To", "symbols": ["A"]}},
        {"name": "from", "type": "To"},
    ]
    first = {"type": "record", "name": "Flight", "namespace": "nyc", "fields": fields}
    known = api.register("worded", json.dumps(first))
    other = json.dumps({"fields": fields, "type": "record", **words})
    assert api.register("worded", other) == known
    assert api.register("worded-elsewhere", other) == known
    assert api("POST", "/subjects/worded", {"schema": other})["version"] == 1
    assert api("GET", "/subjects/worded/versions") == [1]


def test_a_schema_that_an_earlier_version_has_kept_in_its_words_is_found(tmp_path: Any) -> None:
    key = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    kept = '{"type":"record","name":"n.R","fields":[{"name":"a","type":"int","order":"ascending"}]}'
    value = json.dumps({"subject": "s", "version": 1, "id": 7, "schema": kept, "deleted": False}).encode()
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
        broker.produce("_schemas", [(key, value)])
    with Broker(data_dir=tmp_path, schema_registry=True) as broker:
        api = Api(broker.schema_registry_url)
        other = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}'
        assert api("POST", "/subjects/s", {"schema": other})["id"] == 7
        assert api.register("s", other) == 7


def test_a_subject_may_have_a_slash(api: Api) -> None:
    api.register("orders%2Fnew%20ones", STRING)
    assert "orders/new ones" in api("GET", "/subjects")
    assert api("GET", "/subjects/orders%2Fnew%20ones/versions/latest")["subject"] == "orders/new ones"


def test_versions_and_how_they_go(api: Api) -> None:
    for text in (record("a"), record("a", "b=")):
        api.register("gone", text)
    assert api("GET", "/subjects/gone/versions") == [1, 2]
    assert api("GET", "/subjects/gone/versions/-1")["version"] == 2
    assert api("GET", "/subjects/gone/versions/7") == 40402
    for wrong in ("0", "x", "99999999999", "²"):
        assert api("GET", f"/subjects/gone/versions/{wrong}") == 42202
    assert api("DELETE", "/subjects/gone/versions/1", permanent="true") == 40407
    assert api("DELETE", "/subjects/gone/versions/1") == 1
    assert api("DELETE", "/subjects/gone/versions/1") == 40406
    assert api("GET", "/subjects/gone/versions") == [2]
    assert api("GET", "/subjects/gone/versions", deleted="true") == [1, 2]
    assert api("GET", "/subjects/gone/versions/1") == 40402
    assert api("GET", "/subjects/gone/versions/1", deleted="true")["version"] == 1
    assert api("DELETE", "/subjects/gone", permanent="true") == 40405
    assert api("DELETE", "/subjects/gone") == [2]
    assert api("DELETE", "/subjects/gone") == 40404
    assert "gone" not in api("GET", "/subjects") and "gone" in api("GET", "/subjects", deleted="true")
    assert api("DELETE", "/subjects/gone", permanent="true") == [1, 2]
    assert api("DELETE", "/subjects/gone", permanent="true") == 40401


def test_what_is_written_with_a_schema_that_was_deleted_is_still_read(api: Api) -> None:
    known = api.register("old", record("once"))
    api("DELETE", "/subjects/old")
    assert "once" in api("GET", f"/schemas/ids/{known}")["schema"]
    assert api.register("old", record("again=")) != known
    assert api("GET", "/subjects/old/versions") == [2]


@pytest.mark.parametrize(
    ("level", "added", "added_with_default", "removed"),
    [
        ("NONE", True, True, True),
        ("BACKWARD", False, True, True),
        ("FORWARD", True, True, False),
        ("FULL", False, True, False),
    ],
)
def test_levels(api: Api, level: str, added: bool, added_with_default: bool, removed: bool) -> None:
    subject = f"level-{level}"
    assert api("PUT", f"/config/{subject}", {"compatibility": level.lower()}) == {"compatibility": level}
    api.register(subject, record("a", "b"))
    for fields, allowed in (("a", "b", "c"), added), (("a", "b", "c="), added_with_default), (("a",), removed):
        body = {"schema": record(*fields)}
        found = api("POST", f"/compatibility/subjects/{subject}/versions/latest", body, verbose="true")
        assert (found["is_compatible"], bool(found["messages"])) == (allowed, not allowed), fields


def test_transitive_levels_look_at_all_versions(api: Api) -> None:
    texts = record("a"), record("a", "b="), record("a", "b")
    for level, outcome in ("BACKWARD", True), ("BACKWARD_TRANSITIVE", False):
        api("PUT", f"/config/{level}", {"compatibility": level})
        for text in texts[:2]:
            api.register(level, text)
        assert (api.register(level, texts[2]) != 409) is outcome


def test_settings(api: Api) -> None:
    assert api("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert api("GET", "/config/none") == 40408
    assert api("GET", "/config/none", defaultToGlobal="true") == {"compatibilityLevel": "BACKWARD"}
    assert api("PUT", "/config", {"compatibility": "SOMETIMES"}) == 42203
    assert api("PUT", "/config/mine", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert api("DELETE", "/config/mine") == {"compatibilityLevel": "FULL"}
    assert api("GET", "/config/mine") == 40408
    assert api("GET", "/mode") == {"mode": "READWRITE"}
    assert api("PUT", "/mode", {"mode": "OFTEN"}) == 42204
    assert api("PUT", "/mode/frozen", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert api.register("frozen", STRING) == 42205
    assert api("DELETE", "/mode/frozen") == {"mode": "READONLY"}
    assert api.register("frozen", STRING) > 0
    assert api("GET", "/mode/frozen") == 40409


def test_schemas_are_imported_with_their_ids(api: Api) -> None:
    assert api.register("imported", STRING, id=500, version=3) == 42205
    api("PUT", "/mode/imported", {"mode": "IMPORT"})
    assert api.register("imported", '"double"', id=500, version=3) == 500
    assert api("GET", "/subjects/imported/versions") == [3]
    assert api.register("imported", '"float"', id=500) == 42205
    assert api.register("imported", '"bytes"') == 42205
    assert api("PUT", "/mode/a-value", {"mode": "IMPORT"}) in (42205, {"mode": "IMPORT"})
    assert api.register("next", record("after")) > 500


def test_a_version_that_is_there_is_not_written_over(api: Api) -> None:
    first, second = api.register("fixed", record("a")), api.register("fixed", record("a", "b="))
    assert api.register("fixed", record("a", "c="), version=1) == 42201
    assert api.register("fixed", record("a", "c="), version=7) == 42201
    assert [api("GET", f"/subjects/fixed/versions/{number}")["id"] for number in (1, 2)] == [first, second]
    third = api.register("fixed", record("a", "c="), version=3)
    assert api("GET", "/subjects/fixed/versions") == [1, 2, 3]
    assert api("GET", "/subjects/fixed/versions/3")["id"] == third


def test_a_mode_for_all_may_override_those_of_subjects(api: Api) -> None:
    known = api.register("overridden", STRING)
    api("PUT", "/mode/overridden", {"mode": "READWRITE"})
    api("PUT", "/config/overridden", {"compatibility": "NONE"})
    try:
        api("PUT", "/mode", {"mode": "READONLY"})
        other = api.register("overridden", INT)
        assert isinstance(other, int) and other < 10_000  # its own mode counts
        api("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
        assert api.register("overridden", '"long"') == 42205
        assert api("DELETE", "/subjects/overridden") == 42205
        assert api("PUT", "/config/overridden", {"compatibility": "FULL"}) == 42205
        assert api("DELETE", "/config/overridden") == 42205
        assert api.register("overridden", STRING) == known
    finally:
        api("PUT", "/mode", {"mode": "READWRITE"})


def test_references(api: Api) -> None:
    api.register("inner", record("a", namespace="n"))
    refers = [{"name": "n.Row", "subject": "inner", "version": -1}]
    api.register("outer", '{"type":"array","items":"n.Row"}', references=refers)
    version = api("GET", "/subjects/outer/versions/1")
    assert version["references"] == [{"name": "n.Row", "subject": "inner", "version": 1}]
    assert api("GET", "/subjects/inner/versions/1/referencedby") == [version["id"]]
    assert api("DELETE", "/subjects/inner") == 42206
    assert api.register("lost", '{"type":"array","items":"n.Row"}') == 42201
    missing = [{"name": "n.Row", "subject": "nowhere", "version": 1}]
    assert api.register("lost", '{"type":"array","items":"n.Row"}', references=missing) == 42201


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"schema": ""},
        {"schema": 7},
        {"schema": "{"},
        {"schema": '{"type":"record"}'},
        {"schema": '{"type":"record","name":"R","fields":[7]}'},
        {"schema": '{"type":"array","items":' * 2000},
        {"schema": "[" * 5000 + "]" * 5000},
        {"schema": record("a-b")},
        {"schema": record("a", name="R-S")},
        {"schema": record("a", namespace="a..b")},
        {"schema": '{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":"1"}]}'},
        {"schema": '{"type":"record","name":"R","fields":[{"name":"f","type":["null","int"],"default":"x"}]}'},
        {"schema": '{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":NaN}]}'},
        {"schema": '{"maximum": NaN}', "schemaType": "JSON"},
        {"schema": STRING, "schemaType": "XML"},
        {"schema": STRING, "references": [7]},
        {"schema": STRING, "references": 7},
        {"schema": "7", "schemaType": "JSON"},
        {"schema": '{"type": 7}', "schemaType": "JSON"},
        {"schema": "message {", "schemaType": "PROTOBUF"},
        {"schema": 'syntax = "proto3"; import "nowhere.proto";', "schemaType": "PROTOBUF"},
    ],
    ids=lambda body: str(body)[:40],
)
def test_what_is_no_schema_is_refused(api: Api, body: dict[str, Any]) -> None:
    assert api("POST", "/subjects/wrong/versions", body) == 42201


def test_a_version_without_end_is_none(api: Api) -> None:
    body = '{"schema":"\\"int\\"","references":[{"name":"R","subject":"s","version":1e999}]}'
    assert api.raw("POST", "/subjects/wrong/versions", content=body).json()["error_code"] == 42201


def test_json_schemas(api: Api) -> None:
    def schema(**more: Any) -> str:
        return json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, **more})

    closed = {"additionalProperties": False}
    with_b = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    for number, (old, new, allowed) in enumerate(
        [
            (schema(), schema(), True),
            (schema(), schema(properties={"a": {"type": "number"}}), True),
            (schema(), schema(properties={"a": {"type": "string"}}), False),
            (schema(), schema(required=["a"]), False),
            (schema(required=["a"]), schema(), True),
            (schema(), schema(**with_b), False),
            (schema(**closed), schema(**closed, **with_b), True),
            (schema(**closed, **with_b), schema(**closed), False),
            (schema(), schema(**closed), False),
            (schema(properties={"a": {"maximum": 5}}), schema(properties={"a": {"maximum": 4}}), False),
            ('{"enum":[1,2]}', '{"enum":[1,2,3]}', True),
            ('{"enum":[1,2]}', '{"enum":[1]}', False),
            ('{"type":"string"}', '{"oneOf":[{"type":"string"},{"type":"integer"}]}', True),
            ('{"oneOf":[{"type":"string"},{"type":"integer"}]}', '{"type":"string"}', False),
            ('{"type":"array","items":{"type":"integer"}}', '{"type":"array","items":{"type":"string"}}', False),
            ("false", '{"type":"string"}', True),
            ('{"type":"string"}', "false", False),
        ]
    ):
        subject = f"json-{number}"
        api.register(subject, old, "JSON")
        assert (api.register(subject, new, "JSON") != 409) is allowed, (old, new)


def test_json_schemas_keep_their_numbers(api: Api) -> None:
    text = '{"title":"\\u00e9\\n","maximum":1e400,"minimum":0.10,"default":12345678901234567.89}'
    known = api.register("json-numbers", text.replace(":", " : "), "JSON")
    assert api("GET", f"/schemas/ids/{known}")["schema"] == text.replace("\\u00e9", "é")
    assert api.register("json-numbers", text.replace("0.10", "0.1"), "JSON") == known
    more = '{"schema":"\\"int\\"","metadata":{"properties":{"a":1e400}}}'
    assert api.raw("POST", "/subjects/json-contract/versions", content=more).json()["error_code"] == 42201


def test_a_small_schema_that_is_a_large_one_is_refused_in_time(api: Api) -> None:
    layers = {f"l{n}": {"allOf": [{"$ref": f"#/definitions/l{n + 1}"}] * 2} for n in range(60)}
    bomb = json.dumps({"$ref": "#/definitions/l0", "definitions": {**layers, "l60": {"type": "string"}}})
    assert api.register("bomb", bomb, "JSON") > 0
    assert api.register("bomb", '{"type":"string"}', "JSON") == 409
    api.register("round", '{"$ref":"#"}', "JSON")
    assert api.register("round", '{"allOf":[{"$ref":"#"}]}', "JSON") == 409


@pytest.mark.parametrize(
    ("bound", "kind", "other"),
    [
        ({"maxLength": 5}, "string", "integer"),
        ({"pattern": "a+"}, "string", "null"),
        ({"minimum": 5}, "number", "string"),
        ({"multipleOf": 2}, "integer", "string"),
        ({"minItems": 1}, "array", "object"),
        ({"minProperties": 1}, "object", "array"),
    ],
)
def test_a_bound_is_of_values_of_its_kind(bound: dict[str, Any], kind: str, other: str) -> None:
    """A number has no length, so that none is too long."""
    reader = JsonSchema(json.dumps({"type": [kind, other], **bound}), {})
    assert reader.cannot_read(JsonSchema(json.dumps({"type": other}), {})) == []
    (why,) = reader.cannot_read(JsonSchema(json.dumps({"type": kind}), {}))
    assert next(iter(bound)).upper() in why


def test_comparing_costs_no_more_than_a_moment() -> None:
    """Each of these has the whole, or all names of another, looked at once for each of its parts."""
    many = {"type": "object", "properties": {f"p{n}": {"$ref": "#/x"} for n in range(5_000)}}
    joined = {"allOf": [{"$ref": "#/names"}] * 5_000}
    names = {"required": [f"name{n}" for n in range(5_000)]}
    for said in (many, joined):
        text = {"$ref": "#/x", "names": names}
        schema, other = (JsonSchema(json.dumps({**text, "x": {**said, "maxProperties": n}}), {}) for n in (5, 4))
        assert other.cannot_read(schema) == ["the schemas are too large to be compared"]


def test_what_is_no_schema_where_a_reference_leads_is_told(api: Api) -> None:
    for number, other in enumerate(({"required": 7}, {"type": 7}, {"maximum": "x"}, {"properties": 7}, {"allOf": 7})):
        text = json.dumps({"allOf": [{"required": ["a"], "maximum": 3, "type": "number"}, {"$ref": "#/x"}], "x": other})
        api.register(f"astray-{number}", '{"type":"number","maximum":5}', "JSON")
        assert api.register(f"astray-{number}", text, "JSON") in (409, 42201), other


PROTO = 'syntax = "proto3"; package p; import "google/protobuf/timestamp.proto"; message A { %s }'


def test_protobuf_as_text(api: Api) -> None:
    old = PROTO % "int32 a = 1; string b = 2; google.protobuf.Timestamp at = 3;"
    first = api.register("proto", old, "PROTOBUF")
    assert api("GET", f"/schemas/ids/{first}") == {"schemaType": "PROTOBUF", "schema": old}
    serialized = api("GET", f"/schemas/ids/{first}", format="serialized")["schema"]
    assert api.register("proto", serialized, "PROTOBUF") == first
    for fields, allowed in (
        ("int64 a = 1; string b = 2; google.protobuf.Timestamp at = 3; bytes new = 4;", True),
        ("int32 a = 1;", True),
        ("string a = 1; string b = 2;", False),
        ("repeated int32 a = 1; string b = 2;", False),
        ("oneof one { int32 a = 1; string b = 2; }", False),
    ):
        body = {"schema": PROTO % fields, "schemaType": "PROTOBUF"}
        found = api("POST", "/compatibility/subjects/proto/versions/latest", body)
        assert found == {"is_compatible": allowed}, fields
    other = {"schema": STRING}
    assert api("POST", "/compatibility/subjects/proto/versions", other) == {"is_compatible": False}


def test_protobuf_types_of_fields_are_known_by_their_full_names_and_their_fields(api: Api) -> None:
    syntax = 'syntax = "proto3"; package p; '
    nested = "message X { message K { int32 a = 1; } } message Y { message K { string b = 1; } } "
    api.register("named", f"{syntax}{nested}message M {{ X.K k = 1; }}", "PROTOBUF")
    assert api.register("named", f"{syntax}{nested}message M {{ Y.K k = 1; }}", "PROTOBUF") == 409
    assert api.register("named", f"{syntax}{nested}message M {{ X.K k = 1; int32 n = 2; }}", "PROTOBUF") != 409
    maps = "message M {{ map<string, {0}> m = 1; }}"
    api.register("mapped", syntax + nested + maps.format("X.K"), "PROTOBUF")
    assert api.register("mapped", syntax + nested + maps.format("Y.K"), "PROTOBUF") == 409
    assert api.register("mapped", f"{syntax}{nested} message M {{ int32 m = 1; }}", "PROTOBUF") == 409
    api.register("packaged", 'syntax = "proto3"; package p; message M {}', "PROTOBUF")
    assert api.register("packaged", 'syntax = "proto3"; package q; message M {}', "PROTOBUF") == 409


def test_protobuf_types_that_are_imported_are_compared_by_their_fields(api: Api) -> None:
    api("PUT", "/config/imported-parts", {"compatibility": "NONE"})
    for number, kind in enumerate(("int32", "int64", "string"), 1):
        text = f'syntax = "proto3"; package parts; message Part {{ {kind} a = 1; Part next = 2; }}'
        api.register("imported-parts", text, "PROTOBUF")
        assert api("GET", "/subjects/imported-parts/versions/latest")["version"] == number
    whole = 'syntax = "proto3"; import "part.proto"; message Whole { parts.Part part = 1; }'
    for version, allowed in (1, True), (2, True), (3, False):
        refers = [{"name": "part.proto", "subject": "imported-parts", "version": version}]
        outcome = api.register("importing", whole, "PROTOBUF", references=refers)
        assert (outcome != 409) is allowed, version


def test_protobuf_oneofs(api: Api) -> None:
    old = "oneof x { int32 a = 1; int32 b = 2; } int32 c = 3; int32 d = 4;"
    api.register("oneofs", PROTO % old, "PROTOBUF")
    for fields, allowed in (
        ("oneof y { int32 a = 1; int32 b = 2; } int32 c = 3; int32 d = 4;", True),
        ("oneof x { int32 a = 1; } int32 b = 2; int32 c = 3; int32 d = 4;", True),
        ("int32 c = 3; int32 d = 4;", True),
        ("oneof x { int32 a = 1; } int32 c = 3; int32 d = 4;", False),
        ("oneof x { int32 a = 1; int32 b = 2; int32 c = 3; } int32 d = 4;", False),
        ("oneof x { int32 a = 1; int32 b = 2; } oneof z { int32 c = 3; int32 d = 4; }", False),
        ("oneof x { int32 a = 1; int32 b = 2; } oneof z { int32 c = 3; } int32 d = 4;", True),
        ("oneof y { string a = 1; int32 b = 2; } int32 c = 3; int32 d = 4;", False),
    ):
        body = {"schema": PROTO % fields, "schemaType": "PROTOBUF"}
        found = api("POST", "/compatibility/subjects/oneofs/versions/latest", body)
        assert found == {"is_compatible": allowed}, fields


def test_records_are_confluents(broker: Broker, api: Api) -> None:
    known = api.register("layout-value", STRING)
    api("PUT", "/config/layout-value", {"compatibility": "NONE"})
    api("DELETE", "/subjects/layout-value")
    found = [
        (record.key, record.value) for record in broker.records("_schemas") if b"layout-value" in (record.key or b"")
    ]
    key = b'{"keytype":"SCHEMA","subject":"layout-value","version":1,"magic":1}'
    assert found[0][0] == key
    value = {"subject": "layout-value", "version": 1, "id": known, "schema": STRING, "deleted": False}
    assert json.loads(found[0][1] or b"") == value
    assert found[1][0] == b'{"keytype":"CONFIG","subject":"layout-value","magic":0}'
    assert found[2] == (
        b'{"keytype":"DELETE_SUBJECT","subject":"layout-value","magic":0}',
        b'{"subject":"layout-value","version":1}',
    )


def test_what_another_wrote_counts_and_what_makes_no_sense_is_passed_over(tmp_path: Any) -> None:
    """Schemas are there again after a restart, Confluent's records among them."""
    confluent = b'{"keytype":"SCHEMA","subject":"s","version":4,"magic":1}'
    value = b'{"subject":"s","version":4,"id":70,"md5":"x","schema":"\\"string\\"","deleted":false}'
    noise = [
        (b"{", b"{"),
        (b"7", b"7"),
        (b"[" * 100_000, b"7"),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1e999}', b"{}"),
        (confluent, b'{"subject":"s","version":4,"id":1e999,"schema":"\\"int\\""}'),
        (b'{"keytype":"NOOP","magic":0}', None),
    ]
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
        broker.produce("_schemas", [(confluent, value), *noise])
    with Broker(data_dir=tmp_path, schema_registry=True) as broker:
        api = Api(broker.schema_registry_url)
        assert api("GET", "/subjects/s/versions/latest") == {"subject": "s", "version": 4, "id": 70, "schema": STRING}
        assert api.register("t", INT) == 71
        broker.restart()
        assert api.register("u", INT) == 71


def test_a_topic_that_would_lose_schemas_is_refused() -> None:
    with Broker() as broker:
        broker.create_topic("_schemas", 1, {"cleanup.policy": "delete"})

        async def run() -> None:
            registry = Registry(ConnectionSettings(broker.bootstrap))
            try:
                await registry.start()
            finally:
                await registry.close()

        with pytest.raises(ValueError, match="would lose schemas"):
            asyncio.run(run())


def test_a_cluster_keeps_schemas_while_a_broker_dies() -> None:
    with Cluster(brokers=3, sasl={"alice": "secret"}, schema_registry=True) as cluster:
        api = Api(cluster.schema_registry_url)
        first = api.register("a", STRING)
        cluster.kill(cluster.leader("_schemas"))
        assert api.register("b", INT) == first + 1
        assert api("GET", "/subjects") == ["a", "b"]


def test_an_id_is_given_once_though_the_log_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody knows of whether it was written is found out before the next id is given."""
    with Cluster(1, schema_registry=True) as cluster:
        api = Api(cluster.schema_registry_url)
        assert api.register("before", STRING) == 1
        monkeypatch.setattr(schema_log, "_WRITE_SECONDS", 1.0)  # who answers has the usual time
        cluster.pause(1)
        assert api.register("a", INT) == 50002
        assert api.register("b", '"long"') == 50002
        cluster.resume(1)
        answers: list[Any] = []
        for subject, text in (("a", INT), ("b", '"long"')) * 10:
            answers.append(api.register(subject, text))
            if len({one for one in answers if one < 50_000}) > 1:
                break
        found = {(one["id"], one["schema"]) for one in api("GET", "/schemas")}
        assert len({number for number, _ in found}) == len(found) == 3, found


def test_a_log_that_cannot_be_read_for_a_while_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a rule was taken away and is given back."""
    monkeypatch.setattr(schema_log, "_AGAIN_SECONDS", 0.01)

    async def run(bootstrap: str) -> None:
        registry = Registry(ConnectionSettings(bootstrap))
        try:
            await registry.start()
            consumer, refused = registry._log._consumer, [True]
            getmany = consumer.getmany

            async def getmany_or_not(**how: Any) -> Any:
                if refused and refused.pop():
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "_schemas")
                return await getmany(**how)

            monkeypatch.setattr(consumer, "getmany", getmany_or_not)
            for text in (STRING, INT, '"long"'):
                await registry.register(f"read-{text}", {"schema": text})
            assert not refused
        finally:
            await registry.close()

    with Broker() as broker:
        asyncio.run(run(broker.bootstrap))


def test_doors(api: Api) -> None:
    assert api.raw("GET", "/subjects", headers={"host": "evil.example"}).status_code == 421
    assert api.raw("GET", "/subjects", headers={"origin": "http://evil.example"}).status_code == 403
    assert api.raw("POST", "/subjects/x/versions", content=b"7").status_code == 400
    assert api.raw("POST", "/subjects/x/versions", content=b"{").status_code == 400
    assert api.raw("POST", "/subjects/x/versions", content=b"[" * 100_000).status_code == 400
    large = {"schema": STRING, "doc": "x" * MAX_BODY_BYTES}
    assert api.raw("POST", "/subjects/x/versions", json=large).status_code == 413
    assert api.raw("GET", "/nowhere").json()["error_code"] == 404
    assert api.raw("PATCH", "/subjects").status_code == 405
    assert api.raw("GET", "/subjects?limit=x").status_code == 400
    assert api("GET", "/contexts") == ["."]
    where = urlsplit(api.url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=60) as raw:
        raw.sendall(b"GET /subjects/%ff%fe/versions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"40401" in b"".join(iter(lambda: raw.recv(4096), b""))


def test_without_it_there_is_no_url() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="schema_registry=True"):
        _ = broker.schema_registry_url
