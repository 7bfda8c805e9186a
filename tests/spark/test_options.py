"""Options and offsets as Spark's Kafka connector has them."""

import re
from typing import Any

import pytest
from tests.foreign_tools import CHECKOUT

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark.offsets import StreamOffsets, parse_assignment, parse_offsets, to_json
from barnabas.spark.options import _OPTIONS, Bound, OptionReader, SourceOptions, parse_source_options
from barnabas.spark.value_formats import formats_of

SERVERS = {"kafka.bootstrap.servers": "b:9092"}


def parse(streaming: bool = False, **options: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source_options(SERVERS | {"subscribe": "t"} | named, streaming=streaming)


def test_defaults_are_the_connectors() -> None:
    batch, stream = parse(), parse(streaming=True)
    assert (batch.starting.kind, batch.ending.kind) == (Bound.EARLIEST, Bound.LATEST)
    assert stream.starting.kind is Bound.LATEST
    assert batch.fail_on_data_loss and batch.strict_timestamps
    assert stream.limits.max_delay_ms == 15 * 60_000
    assert batch.poll_timeout_ms == 120_000


def test_names_know_no_case() -> None:
    parsed = parse_source_options(
        {"KAFKA.BOOTSTRAP.SERVERS": "b:1", "Subscribe": " a , b,a", "FAILONDATALOSS": "False"}, streaming=False
    )
    assert parsed.subscription.topics == ("a", "b")
    assert not parsed.fail_on_data_loss


def test_a_timestamp_wins_over_timestamps_over_offsets() -> None:
    offsets: dict[str, Any] = {"startingOffsets": '{"t":{"0":1}}'}
    by_time: dict[str, Any] = offsets | {"startingOffsetsByTimestamp": '{"t":{"0":1000}}'}
    both: dict[str, Any] = by_time | {"startingTimestamp": "2000"}
    assert parse(**offsets).starting.by_partition == {TopicPartition("t", 0): 1}
    assert parse(**by_time).starting.kind is Bound.TIMESTAMPS
    assert parse(**both).starting.timestamp == 2000


@pytest.mark.parametrize(
    ("streaming", "options", "message"),
    [
        (False, {"startingOffsets": "latest"}, "cannot be latest in a batch"),
        (False, {"startingOffsets": '{"t":{"0":-1}}'}, "cannot be latest in a batch"),
        (False, {"endingOffsets": "earliest"}, "cannot be earliest in a batch"),
        (False, {"endingOffsets": '{"t":{"0":-2}}'}, "cannot be earliest in a batch"),
        (True, {"endingOffsets": "latest"}, "not valid in a streaming"),
        (True, {"endingTimestamp": "1"}, "not valid in a streaming"),
        (False, {"assign": '{"t":[0]}'}, "exactly one of"),
        (False, {"startingOffsets": "soon"}, "not valid JSON"),
        (False, {"startingOffsets": '{"t":{"0":"x"}}'}, "expected a partition and a number"),
        (False, {"startingOfsets": "earliest"}, r"unknown option startingOfsets; do you mean startingOffsets\?"),
        (True, {"maxOffsetPerTrigger": "5"}, r"do you mean maxOffsetsPerTrigger\?"),
        (False, {"failOnDataLoss": "maybe"}, "Expected true or false"),
        (False, {"minPartitions": "0"}, "Expected a positive number"),
        (True, {"maxTriggerDelay": "soon"}, "invalid duration"),
        (True, {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "larger than"),
        (False, {"kafka__auto.offset.reset": "earliest"}, "startingOffsets"),
        (False, {"kafka__enable.auto.commit": "true"}, "checkpoint"),
        (False, {"kafka__value.deserializer": "x"}, "valueFormat"),
        (False, {"kafka__interceptor.classes": "x"}, "interceptors"),
    ],
)
def test_what_is_refused(streaming: bool, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(streaming, **options)


def test_keys_and_values_may_have_a_schema_each() -> None:
    given = {"keyFormat": "avro", "keyAvroSchema": '"int"', "valueFormat": "avro", "valueAvroSchema": '"string"'}
    assert {column: found.avro_schema for column, found in formats_of(given).items()} == {
        "key": '"int"',
        "value": '"string"',
    }


def test_a_cluster_and_a_subscription_are_needed() -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        parse_source_options(SERVERS, streaming=False)
    with pytest.raises(ValueError, match=r"kafka\.bootstrap\.servers"):
        parse_source_options({"subscribe": "t"}, streaming=False)


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 min", 120_000)])
def test_durations(text: str, ms: int) -> None:
    assert OptionReader({"wait": text}).duration_ms("wait", 1) == ms


def test_offset_json_goes_both_ways() -> None:
    offsets = parse_offsets('{"topicA":{"1":-1,"0":23},"b":{"0":-2}}', "startingOffsets")
    assert to_json(offsets) == {"b": {"0": -2}, "topicA": {"0": 23, "1": -1}}
    assert parse_assignment('{"a":[0,2],"b":[1]}') == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )


def test_a_checkpoint_of_sparks_connector_is_read() -> None:
    offsets = StreamOffsets.of_json({"t": {"0": 5}})
    assert offsets.offsets == {TopicPartition("t", 0): 5} and offsets.topic_ids == {}
    assert StreamOffsets.of_json(offsets.to_json()) == offsets


def test_every_option_that_is_read_is_known_to_be_one() -> None:
    sources = "".join(path.read_text() for path in (CHECKOUT / "spark").glob("*.py"))
    read = set(re.findall(r"\bread\.(?:text|flag|choice|positive|count|duration_ms|require)\(\s*\"([^\"]+)\"", sources))
    assert len(read) > 20
    assert read - set(_OPTIONS) <= {"kafka.bootstrap.servers"}
