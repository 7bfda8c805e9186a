"""Writes numbers to the partitions of a topic in turn, and says on its output which were acknowledged.

Arguments: client, bootstrap, topic, partitions. It ends when its input ends.
"""

import asyncio
import itertools
import sys
import threading
from functools import partial

CLIENT, BOOTSTRAP, TOPIC = sys.argv[1:4]
PARTITIONS = int(sys.argv[4])
PAUSE_S = 0.002
is_over = threading.Event()


def told(value: str, error: object) -> None:
    print(f"sent {value}" if error is None else f"failed {value} {error!r}", flush=True)


def confluent() -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "request.timeout.ms": 5000})
    for number in itertools.count():
        if is_over.is_set():
            break
        value = str(number)
        producer.produce(
            TOPIC,
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, message: told(message.value().decode(), error),
        )
        producer.poll(PAUSE_S)
    assert producer.flush(60) == 0


def kafka_python() -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True, request_timeout_ms=5000)
    for number in itertools.count():
        if is_over.wait(PAUSE_S):
            break
        value = str(number)
        future = producer.send(TOPIC, value.encode(), partition=number % PARTITIONS)
        future.add_callback(partial(lambda value, _: told(value, None), value))
        future.add_errback(partial(told, value))
    producer.flush(60)
    producer.close()


async def aiokafka() -> None:
    from aiokafka import AIOKafkaProducer

    def answered(value: str, future: asyncio.Future[object]) -> None:
        told(value, future.exception())

    settings = {"enable_idempotence": True, "acks": "all", "request_timeout_ms": 60_000}
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, **settings) as producer:
        for number in itertools.count():
            if is_over.is_set():
                break
            value = str(number)
            future = await producer.send(TOPIC, value.encode(), partition=number % PARTITIONS)
            future.add_done_callback(partial(answered, value))
            await asyncio.sleep(PAUSE_S)
        await producer.flush()


def _wait_for_end() -> None:
    sys.stdin.read()
    is_over.set()


threading.Thread(target=_wait_for_end, daemon=True).start()
if CLIENT == "aiokafka":
    asyncio.run(aiokafka())
else:
    {"confluent": confluent, "kafka-python": kafka_python}[CLIENT]()
