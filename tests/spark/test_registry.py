"""Values that serializers wrote, read by the source with the schemas of a registry."""

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal

import httpx
import pytest
from pyspark.sql.types import DecimalType, IntegerType, MapType, StringType, StructField, StructType, TimestampType
from tests.spark.conftest import Cluster, columns, read

from barnabas import Broker
from barnabas.spark.value_formats import formats_of

ROW = StructType([StructField("tail", StringType()), StructField("delay", IntegerType())])
AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "tail", "type": "string"}, {"name": "delay", "type": ["null", "int"]}],
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(topics=["t"], schema_registry=True) as broker:
        yield Cluster(broker)


def registered(cluster: Cluster, **schema: str) -> bytes:
    """What values of this schema begin with."""
    url = f"{cluster.broker.schema_registry_url}/subjects/t-value/versions"
    answer = httpx.post(url, json=schema, timeout=60)
    return b"\0" + int(answer.json()["id"]).to_bytes(4, "big")


def test_each_value_by_its_own_schema(cluster: Cluster) -> None:
    httpx.put(f"{cluster.broker.schema_registry_url}/config", json={"compatibility": "NONE"}, timeout=60)
    avro = registered(cluster, schema=json.dumps(AVRO)) + b"\x02A\x02\x0e"
    text = registered(cluster, schema='{"type":"object"}', schemaType="JSON") + b'{"tail":"B","delay":8}'
    proto = 'syntax = "proto3"; message F { string tail = 1; int32 delay = 2; }'
    protobuf = registered(cluster, schema=proto, schemaType="PROTOBUF") + b"\0\x0a\x01C\x10\x09"
    cluster.broker.produce("t", [avro, text, protobuf, ("deleted", None)])
    options = cluster.options("t", valueFormat="registry", schemaRegistry=cluster.broker.schema_registry_url)
    rows = [{"tail": "A", "delay": 7}, {"tail": "B", "delay": 8}, {"tail": "C", "delay": 9}, None]
    assert [row["value"] for row in read(options, columns(value=ROW))] == rows
    assert [row["value"] and json.loads(row["value"]) for row in read(options)] == rows


def test_what_no_schema_is_known_for(cluster: Cluster) -> None:
    cluster.broker.produce("t", ["plain"])
    options = cluster.options("t", valueFormat="registry", schemaRegistry=cluster.broker.schema_registry_url)
    with pytest.raises(ValueError, match="does not begin with the id of a schema"):
        read(options)
    assert [row["value"] for row in read({**options, "valueErrors": "null"})] == [None]


def test_json_by_a_registry_is_read_as_by_from_json(cluster: Cluster) -> None:
    text = registered(cluster, schema='{"type":"object"}', schemaType="JSON")
    cluster.broker.produce("t", [text + b'{"n":18446744073709551616.10,"at":1700000000}', text + b'{"n":1}'])
    options = cluster.options("t", valueFormat="registry", schemaRegistry=cluster.broker.schema_registry_url)
    kind = columns(n=DecimalType(22, 2), at=TimestampType(), m=MapType(StringType(), StringType()))
    at = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
    assert [row["value"] for row in read(options, columns(value=kind))] == [
        {"n": Decimal("18446744073709551616.10"), "at": at, "m": None},
        {"n": Decimal("1.00"), "at": None, "m": None},
    ]


def test_registered_avro_schemas_whose_values_have_no_bound_are_not_read(cluster: Cluster) -> None:
    """A value of a hundred kilobytes by a schema that contains itself would end the process."""
    chain = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
    head = registered(cluster, schema=json.dumps(chain))
    cluster.broker.produce("t", [head + b"\x02" * 200_000 + b"\0"])
    options = cluster.options("t", valueFormat="registry", schemaRegistry=cluster.broker.schema_registry_url)
    with pytest.raises(ValueError, match="'Chain' contains itself"):
        read(options)
    assert read({**options, "valueErrors": "null"}, columns(value=str)) == [{"value": None}]


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="schemaRegistry must be set"):
        formats_of({"valueFormat": "registry"})
    with pytest.raises(ValueError, match="invalid address of a schema registry"):
        formats_of({"valueFormat": "registry", "schemaRegistry": "localhost:8081"})
    with pytest.raises(ValueError, match="do you mean schemaRegistry"):
        formats_of({"valueFormat": "registry", "schemaregistri": "http://localhost:8081"})
