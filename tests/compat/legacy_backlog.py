"""Runs inside an environment with kafka-python 1.4: reads one record of each partition, and prints their sum of bytes.

python legacy_backlog.py BOOTSTRAP TOPIC PARTITIONS
"""

import sys
import time

from kafka import KafkaConsumer, TopicPartition

bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
consumer.assign([TopicPartition(topic, partition) for partition in range(count)])
sizes: list[int] = []
deadline = time.monotonic() + 150
while len(sizes) < count and time.monotonic() < deadline:
    for records in consumer.poll(500).values():
        sizes += [len(record.value) for record in records]
print(len(sizes), sum(sizes))
