"""Records in Avro and Protobuf as the console shows them, and what hostile ones cost."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import httpx
import protoxy
import pytest
from google.protobuf import descriptor_pool, message_factory
from tests.tools.console.conftest import page_of

from barnabas import Broker
from barnabas.clients import worker_process
from barnabas.clients.decoding import decoder as decoding
from barnabas.clients.decoding.decoder import MAX_LOOKUPS, Decoded, Decoder
from barnabas.clients.decoding.schemas import (
    MAX_REFERENCES,
    MAX_SCHEMA_BYTES,
    SchemaFiles,
    SchemaRegistry,
    schema_source,
)
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
VALUE = {"id": 7, "note": "<b>\x1b\u202e", "sum": Decimal("12.5"), "raw": b"\x00\xff", "at": 0}
PROTO = """syntax = "proto3"; package shop; import "parts/money.proto";
message Order { int64 id = 1; Money sum = 2; message Line { string what = 1; } repeated Line lines = 3; }
message Other { string name = 1; }"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
NULLS = {"type": "array", "items": "null"}
ENDLESS = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"  # an array of 2**62 nulls


def avro(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + data


class Registry:
    """A schema registry of some answers by path, on a port of its own."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                answer = registry.answers.get(self.path.removesuffix("?deleted=true"))
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(404 if answer is None else 200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def add(self, number: int, schema: Any, **more: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.answers[f"/schemas/ids/{number}"] = {"schema": text, **more}

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no attack has its time on a busy machine, too."""
    monkeypatch.setattr(decoding, "DECODING_SECONDS", 60.0)


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    yield registry
    registry.close()


@pytest.fixture
async def decoder(registry: Registry, tmp_path: Path) -> AsyncIterator[Decoder]:
    decoder = Decoder([SchemaFiles(tmp_path), SchemaRegistry(registry.url)])
    yield decoder
    await decoder.close()


async def decode(decoder: Decoder, *data: bytes, topic: str = "t") -> list[Decoded | None]:
    return await decoder.decode(topic, "value", data, most=1000)


def in_proto(name: str, tmp_path: Path, /, **fields: Any) -> bytes:
    """A message of the schema, in its bytes."""
    folder = tmp_path / "compiled"
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "order.proto").write_text(PROTO)
    (folder / "parts/money.proto").write_text(MONEY)
    pool = descriptor_pool.DescriptorPool()
    for one in protoxy.compile([folder / "order.proto"], [folder]).file:
        pool.Add(one)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(**fields)
    data: bytes = message.SerializeToString()
    return data


async def test_a_number_in_front_names_the_schema_of_a_registry(
    decoder: Decoder, registry: Registry, tmp_path: Path
) -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "n", "type": "int"}]}
    registry.add(1, ORDER)
    registry.add(
        2, PROTO, schemaType="PROTOBUF", references=[{"name": "parts/money.proto", "subject": "m/1", "version": 3}]
    )
    registry.answers["/subjects/m%2F1/versions/3"] = {"schema": MONEY}
    outer = {"type": "record", "name": "Out", "fields": [{"name": "in", "type": "In"}]}
    registry.add(3, outer, references=[{"name": "In", "subject": "in", "version": 1}])
    registry.answers["/subjects/in/versions/1"] = {"schema": json.dumps(inner)}
    registry.add(4, '{"type": "object"}', schemaType="JSON")
    order = in_proto("shop.Order", tmp_path, id=9, sum={"cents": 5}, lines=[{"what": "x"}])
    found = await decode(
        decoder,
        framed(1, avro(ORDER, VALUE)),
        framed(2, b"\0" + order),
        framed(2, b"\2\2" + in_proto("shop.Other", tmp_path, name="o")),
        framed(2, b"\4\0\0" + in_proto("shop.Order.Line", tmp_path, what="w")),
        framed(3, b"\2"),
        framed(4, b'{"a":1}'),
        framed(5, b"nobody knows"),
        b"no frame",
        framed(2, b"\4\0"),
        framed(2, b"\2\1"),
        framed(2, b"\xff" * 12),
    )
    assert [None if one is None or one.text is None else (one.kind, json.loads(one.text)) for one in found] == [
        ("avro", {**VALUE, "sum": "12.50", "raw": "00ff", "at": "1970-01-01T00:00:00+00:00"}),
        ("protobuf", {"id": "9", "sum": {"cents": "5"}, "lines": [{"what": "x"}]}),
        ("protobuf", {"name": "o"}),
        ("protobuf", {"what": "w"}),
        ("avro", {"in": {"n": 1}}),
        ("json", {"a": 1}),
        *[None] * 5,
    ]
    unknown = found[6]
    assert unknown is not None and unknown.error is not None and "404" in unknown.error
    assert [one.error for one in found[8:] if one is not None] == ["the message index is missing"] * 3
    before = len(registry.asked)
    await decode(decoder, framed(1, avro(ORDER, VALUE)), framed(5, b""))
    assert len(registry.asked) == before, "what was found, and what was not, is kept"


async def test_files_have_the_schema_of_a_topic_or_a_number(decoder: Decoder, tmp_path: Path) -> None:
    (tmp_path / "orders.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "orders-key.avsc").write_text('"long"')
    (tmp_path / "12.avsc").write_text('"string"')
    (tmp_path / "shop-value.proto").write_text(PROTO)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/money.proto").write_text(MONEY)
    order = in_proto("shop.Order", tmp_path, id=3)
    (tmp_path / "set.desc").write_bytes(protoxy.compile_bin([tmp_path / "compiled/order.proto"]))
    found = await decode(decoder, avro(ORDER, VALUE), framed(99, avro(ORDER, VALUE)), topic="orders")
    assert [one is not None and one.text is not None and json.loads(one.text)["id"] for one in found] == [7, 7]
    assert (await decoder.decode("orders", "key", [b"\6"], most=9))[0] == Decoded("avro", "3")
    assert (await decode(decoder, framed(12, b"\2x")))[0] == Decoded("avro", '"x"', schema_id=12)
    for topic in ("shop", "set"):
        (one,) = await decode(decoder, order, topic=topic)
        assert one == Decoded("protobuf", '{"id": "3"}'), topic
    (cut, wrong, left) = await decoder.decode("orders", "key", [b"\6", b"", b"\6\6"], most=0)
    assert cut == Decoded("avro", "", None, True) and wrong is None
    assert left is not None and left.error == "1 bytes remain after the value"


@pytest.mark.verify
async def test_what_is_hostile_costs_a_moment_and_nobody_else(
    decoder: Decoder, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile_seconds, others_seconds = 3.0, decoding.DECODING_SECONDS
    monkeypatch.setattr(decoding, "FRESH_SECONDS", 3600.0)  # a busy machine takes longer for all this than 30
    deep = json.dumps("int")
    for _ in range(3000):
        deep = f'{{"type": "array", "items": {deep}}}'
    nested = "message M { " * 5000 + "}" * 5000
    hostile: dict[int, tuple[Any, dict[str, Any], bytes]] = {
        1: (LIST, {}, b"\2" * 1_000_000),
        2: (NULLS, {}, ENDLESS),
        3: (deep, {}, b"\2" * 3000),
        4: (f'syntax = "proto3"; {nested}', {"schemaType": "PROTOBUF"}, b"\0"),
        5: ('syntax = "proto3"; import "/etc/passwd"; message M {}', {"schemaType": "PROTOBUF"}, b"\0"),
        6: (
            PROTO,
            {"schemaType": "PROTOBUF", "references": [{"name": "../x.proto", "subject": "s", "version": 1}]},
            b"\0",
        ),
        7: ("x" * 10_000_000, {}, b""),
        8: ("[" * 200_000, {}, b""),
        9: ('{"__fastavro_parsed__": true}', {}, b""),
        10: (PROTO, {"schemaType": "PROTOBUF"}, b"\xff" * 20),
        11: ('syntax = "proto3"; message M { M m = 1; }', {"schemaType": "PROTOBUF"}, b"\0" + b"\x0a\x00" * 500_000),
        12: ('"int"', {"schemaType": "COBOL"}, b"\2"),
        13: (
            '"int"',
            {"references": [{"name": f"r{n}", "subject": f"r{n}", "version": 1} for n in range(1000)]},
            b"\2",
        ),
    }
    registry.add(100, '"string"')
    for n in range(1000):
        registry.answers[f"/subjects/r{n}/versions/1"] = {"schema": '"int"'}
    registry.answers["/subjects/s/versions/1"] = {"schema": MONEY}
    for number, (schema, more, data) in hostile.items():
        registry.add(number, schema, **more)
        monkeypatch.setattr(decoder._process, "_seconds", hostile_seconds)
        (one,) = await decode(decoder, framed(number, data))
        assert one is not None, number
        assert one.error is None or (one.error and "\n" not in one.error and len(one.error) < 500), number
        monkeypatch.setattr(decoder._process, "_seconds", others_seconds)
        (one,) = await decode(decoder, framed(100, b"\2x"))
        assert one is not None and one.text == '"x"', number
    assert len([path for path in registry.asked if path.startswith("/subjects/r")]) <= MAX_REFERENCES + 1
    monkeypatch.setattr(decoder._process, "_seconds", hostile_seconds)
    (before,) = await decode(decoder, framed(2, ENDLESS))
    monkeypatch.setattr(worker_process.WorkerProcess, "ask", None)  # it is left alone for a while
    assert before is not None and before.text is None and await decode(decoder, framed(2, ENDLESS)) == [before]


async def test_numbers_that_nobody_knows_are_looked_for_a_few_at_a_time(decoder: Decoder, registry: Registry) -> None:
    await decode(decoder, *(framed(number, b"x") for number in range(500)))
    assert len(registry.asked) < MAX_LOOKUPS


async def test_a_large_schema_in_a_file_is_not_read(decoder: Decoder, tmp_path: Path) -> None:
    (tmp_path / "t.avsc").write_bytes(b" " * (MAX_SCHEMA_BYTES + 1))
    (one,) = await decode(decoder, b"x")
    assert one is not None and one.error is not None and "more than" in one.error


async def test_who_goes_leaves_no_half_answer(decoder: Decoder, tmp_path: Path) -> None:
    (tmp_path / "t.avsc").write_text('"long"')
    for _ in range(3):
        going = asyncio.ensure_future(decode(decoder, b"\2"))
        for _ in range(20):
            await asyncio.sleep(0)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    assert await decode(decoder, b"\4") == [Decoded("avro", "2")]


def test_where_schemas_are_is_told_rightly(tmp_path: Path) -> None:
    assert isinstance(schema_source(str(tmp_path)), SchemaFiles)
    for wrong in (str(tmp_path / "nothing"), "http://", "http://anna:secret@registry.example:8081"):
        with pytest.raises(ValueError) as refused:
            schema_source(wrong)
        assert "secret" not in str(refused.value)


async def test_lists_records_and_searches_show_what_is_decoded(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("shop-orders", 1)
    (tmp_path / "shop-orders.avsc").write_text(json.dumps(ORDER))
    broker.produce("shop-orders", [avro(ORDER, {**VALUE, "id": n}) for n in range(50)] + [b"\xff"])
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}, [SchemaFiles(tmp_path)]))
    await cluster.start()
    try:
        async with page_of(cluster) as page:
            rows = await lines(page, "shop-orders", path="$.id = 33")
            assert [row["o"] for row in rows] == [33]
            value = rows[0]["value"]
            assert value["kind"] == "avro" and value["text"].startswith('{"id": 33, "note": "<b>')
            assert "\x1b" not in value["text"] and "\u202e" not in value["text"]
            newest = await lines(page, "shop-orders", limit=2)
            assert [row["value"]["kind"] for row in newest] == ["hex", "avro"]
            one = (await page.get("/api/topics/shop-orders/records/0/33")).json()["value"]
            assert next(iter(one["forms"])) == "avro" and '\n  "id": 33' in one["forms"]["avro"]
            wrong = (await page.get("/api/topics/shop-orders/records/0/50")).json()["value"]
            assert wrong["trouble"].startswith("avro: ") and "hex" in wrong["forms"]
    finally:
        await cluster.close()


async def test_searches_look_into_decoded_keys(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("shop-keys", 1)
    (tmp_path / "shop-keys-key.avsc").write_text('"string"')
    (tmp_path / "shop-keys-value.avsc").write_text(json.dumps(ORDER))
    broker.produce("shop-keys", [(avro("string", f"customer-{n}"), avro(ORDER, {**VALUE, "id": n})) for n in range(20)])
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}, [SchemaFiles(tmp_path)]))
    await cluster.start()
    try:
        async with page_of(cluster) as page:
            assert [row["o"] for row in await lines(page, "shop-keys", key="customer-7")] == [7]
            assert [row["o"] for row in await lines(page, "shop-keys", key='"customer-7"')] == [7]
            assert [row["o"] for row in await lines(page, "shop-keys", text="omer-13")] == [13]
            assert [row["o"] for row in await lines(page, "shop-keys", key="customer-7", path="$.id = 7")] == [7]
            assert await lines(page, "shop-keys", key="customer-7", path="$.id = 8") == []
    finally:
        await cluster.close()


async def lines(page: httpx.AsyncClient, topic: str, **asked: Any) -> list[Any]:
    answer = await page.get(f"/api/topics/{topic}/records", params=asked)
    return [row for line in answer.text.splitlines() for row in json.loads(line).get("rows", ())]
