"""Runs inside an environment with kafka-python 1.4: record formats v0 and v1, old request versions.

    python legacy_kafka_python.py BOOTSTRAP

Prints one JSON line for each feature of the compatibility table.
"""

import json
import sys
import time
import uuid

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

BOOTSTRAP = sys.argv[1]
ADMIN = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


def feature(name, check):
    problem = None
    try:
        check()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    print(json.dumps({"feature": name, "ok": problem is None, "detail": problem}), flush=True)


def wait_for(condition):
    """A broker tells of a new topic a moment after it was made."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the new topics were not listed in time"


def create(partitions=1, configs=None):
    topic = f"kpy14-{uuid.uuid4().hex[:8]}"
    ADMIN.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs or {})])
    return topic


def send(topic, messages, **config):
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=5, retries=10, **config)
    futures = [producer.send(topic, **message) for message in messages]
    producer.flush(30)
    answers = [future.get(30) for future in futures]
    producer.close()
    return [answer.offset for answer in answers]


def consumer_of(partitions, **config):
    consumer = KafkaConsumer(
        bootstrap_servers=BOOTSTRAP, auto_offset_reset="none", enable_auto_commit=False, group_id=None, **config
    )
    consumer.assign(partitions)
    return consumer


def poll(consumer, count):
    got: list = []
    deadline = time.monotonic() + 60
    while len(got) < count and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            got.extend(records)
    assert len(got) >= count, f"{len(got)} of {count} records came"
    return got[:count]


def read(topic, offset, count, **config):
    partition = TopicPartition(topic, 0)
    consumer = consumer_of([partition], **config)
    try:
        consumer.seek(partition, offset)
        return poll(consumer, count)
    finally:
        consumer.close()


def check_codec(codec):
    values = [b"%06d " % n + b"some text to compress " * 5 for n in range(1000)]
    # An assumed release fixes the record format: v0 for 0.8 and 0.9, v1 for 0.10, v2 as the broker says.
    for release in ((0, 9), (0, 10), None):
        topic = create()
        config = {} if release is None else {"api_version": release}
        send(topic, [{"key": b"k", "value": value} for value in values], compression_type=codec, **config)
        assert [each.value for each in read(topic, 0, 1000)] == values, f"written as {release}, read as the newest"
        assert [each.value for each in read(topic, 0, 1000, **config)] == values, f"written and read as {release}"


def check_acks():
    for acks in (0, 1, "all"):
        topic = create()
        send(topic, [{"value": b"%d" % n} for n in range(20)], acks=acks)
        assert [each.value for each in read(topic, 0, 20)] == [b"%d" % n for n in range(20)]


def check_headers():
    topic = create()
    send(topic, [{"value": b"v", "headers": [("a", b"1"), ("a", b"2")]}])
    assert list(read(topic, 0, 1)[0].headers) == [("a", b"1"), ("a", b"2")]


def check_nulls():
    topic = create()
    send(topic, [{"key": None, "value": b"v"}, {"key": b"k", "value": None}])
    assert [(each.key, each.value) for each in read(topic, 0, 2)] == [(None, b"v"), (b"k", None)]


def check_large():
    topic = create()
    value = bytes(range(256)) * 3600
    send(topic, [{"value": value}])
    assert read(topic, 0, 1)[0].value == value
    try:
        send(topic, [{"value": b"x" * 2_000_000}], max_request_size=5_000_000)
    except MessageSizeTooLargeError:
        return
    raise AssertionError("a record above max.message.bytes was taken")


def check_partitions():
    topic = create(30)
    send(topic, [{"value": b"%d-%d" % (index, n), "partition": index} for index in range(30) for n in range(10)])
    partitions = [TopicPartition(topic, index) for index in range(30)]
    consumer = consumer_of(partitions)
    consumer.seek_to_beginning(*partitions)
    assert len({each.value for each in poll(consumer, 300)}) == 300
    consumer.close()


def check_offsets():
    topic = create()
    send(topic, [{"value": b"%d" % n} for n in range(100)])
    partition = TopicPartition(topic, 0)
    consumer = consumer_of([partition])
    consumer.seek_to_beginning(partition)
    assert consumer.position(partition) == 0
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 100
    consumer.seek(partition, 42)
    assert poll(consumer, 1)[0].offset == 42
    consumer.seek(partition, 1000)
    try:
        poll(consumer, 1)
    except OffsetOutOfRangeError:
        consumer.close()
        return
    raise AssertionError("an offset out of range was answered")


def check_timestamps():
    topic = create()
    start = int(time.time() * 1000) - 100_000
    send(topic, [{"value": b"%d" % n, "timestamp_ms": start + n * 1000} for n in range(50)])
    partition = TopicPartition(topic, 0)
    consumer = consumer_of([partition])
    found = consumer.offsets_for_times({partition: start + 20_500})[partition]
    consumer.close()
    assert found.offset == 21, found


def check_configs():
    topic = create(configs={"retention.ms": "1000000"})
    described = ADMIN.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "1000000" in str(described)


def check_topics():
    names = {create() for _ in range(100)}
    consumer = consumer_of([])
    wait_for(lambda: names <= consumer.topics())
    consumer.close()
    ADMIN.delete_topics(list(names))


def check_create():
    topic = create(3)
    consumer = consumer_of([])
    wait_for(lambda: consumer.topics() and consumer.partitions_for_topic(topic) == {0, 1, 2})
    consumer.close()
    ADMIN.delete_topics([topic])


feature("create", check_create)
feature("none", lambda: check_codec(None))
for name in ("gzip", "snappy", "lz4"):
    feature(name, lambda name=name: check_codec(name))
feature("acks", check_acks)
feature("headers", check_headers)
feature("nulls", check_nulls)
feature("large", check_large)
feature("partitions", check_partitions)
feature("offsets", check_offsets)
feature("timestamps", check_timestamps)
feature("configs", check_configs)
feature("topics", check_topics)
