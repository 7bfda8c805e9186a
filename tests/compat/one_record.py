"""One record through clients of several makes, each by its own settings: "written", or what the client says instead."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from barnabas.clients import Producer as OurProducer
from barnabas.clients import Security
from barnabas.protocol.errors import KafkaError

PATIENCE = 60
WRITTEN = "written"


def by_confluent(settings: dict[str, Any], topic: str = "t") -> str:
    errors: list[str] = []
    outcome: list[str] = []
    producer = Producer(settings | {"error_cb": lambda error: errors.append(error.name()), "log_level": 0})
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcome.append(error.name() if error else WRITTEN))
    for _ in range(PATIENCE * 20):
        producer.poll(0.05)
        if outcome or "_AUTHENTICATION" in errors:
            return outcome[0] if outcome else "_AUTHENTICATION"
    return "nothing"


def by_kafka_python(settings: dict[str, Any], topic: str = "t") -> str:
    try:
        producer = KafkaProducer(**settings)
        try:
            producer.send(topic, b"v").get(PATIENCE)
        finally:
            producer.close(1)
    except KafkaPythonError as error:
        return type(error).__name__
    return WRITTEN


def by_aiokafka(settings: dict[str, Any], topic: str = "t", seconds: float = PATIENCE) -> str:
    async def write() -> str:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"v")
        except AiokafkaError as error:
            return type(error).__name__
        finally:
            await producer.stop()
        return WRITTEN

    try:
        return asyncio.run(asyncio.wait_for(write(), seconds))
    except TimeoutError as error:
        # After ILLEGAL_SASL_STATE the client waits for brokers in its metadata, without a limit of its own.
        return type(error).__name__


def by_ours(bootstrap: str, security: Security, topic: str = "t", **settings: Any) -> str:
    async def write() -> str:
        try:
            async with OurProducer(bootstrap, security=security, **settings) as producer:
                await producer.send_and_wait(topic, b"v")
        except KafkaError as error:
            return error.code.name
        except OSError as error:
            return type(error).__name__
        return WRITTEN

    return asyncio.run(asyncio.wait_for(write(), PATIENCE))
