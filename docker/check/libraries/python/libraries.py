"""Starts the image with testcontainers' KafkaContainer, and sends records to the address that it returns."""

import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from testcontainers.community.kafka import KafkaContainer
from testcontainers.core.network import Network

CONFLUENT_7 = "confluentinc/cp-kafka:7.99.0"
CONFLUENT_8 = "confluentinc/cp-kafka:8.99.0"
CLUSTER_ID = "abcdefghijklmnopqrstuv"
RECORDS = [str(number).encode() for number in range(100)]
TIMEOUT_S = 60


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in RECORDS:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def consume(bootstrap: str, topic: str, records: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(read) < records and time.monotonic() < deadline:
        read += [message.value() for message in consumer.consume(records, timeout=1) if not message.error()]
    consumer.close()
    return read


def check(name: str, kafka: KafkaContainer, cluster_id: str | None = None) -> None:
    began = time.monotonic()
    with kafka:
        seconds = time.monotonic() - began
        bootstrap = kafka.get_bootstrap_server()
        produce(bootstrap, "records")
        assert consume(bootstrap, "records", len(RECORDS)) == RECORDS
        found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).cluster_id
        assert cluster_id in (None, found), found
    print(f"{name} {kafka.image}: ready after {seconds:.2f} s, {len(RECORDS)} records", flush=True)


def check_settings_and_network() -> None:
    """Variables of the test override those of the image, and other containers connect to the alias of the network."""
    with Network() as network:
        kafka = KafkaContainer(CONFLUENT_8).with_kraft().with_network(network).with_network_aliases("kafka")
        with kafka.with_env("KAFKA_NUM_PARTITIONS", "3"):
            command = "printf 'one\\ntwo\\n' | kafka-console-producer --bootstrap-server kafka:9092 --topic records"
            ended = kafka.exec(["sh", "-c", command])
            assert ended.exit_code == 0, ended.output
            bootstrap = kafka.get_bootstrap_server()
            assert sorted(consume(bootstrap, "records", 2)) == [b"one", b"two"]
            topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics
            assert len(topics["records"].partitions) == 3
    print("KafkaContainer with a network and variables: 2 records", flush=True)


for image in (CONFLUENT_7, CONFLUENT_8):
    check("KafkaContainer, ZooKeeper", KafkaContainer(image))
    check("KafkaContainer, KRaft", KafkaContainer(image).with_kraft().with_cluster_id(CLUSTER_ID), CLUSTER_ID)
check("KafkaContainer, ZooKeeper", KafkaContainer("barnabas-broker"))
check_settings_and_network()
