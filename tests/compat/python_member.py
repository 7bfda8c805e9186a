"""A member of a group that says on its output what it is assigned, what it reads and when that is committed.

Arguments: client, bootstrap, group, topic, strategy, session timeout in ms. It leaves when its input ends.
"""

import asyncio
import sys
import threading
from collections.abc import Iterable
from typing import Any

CLIENT, BOOTSTRAP, GROUP, TOPIC, STRATEGY, SESSION_MS = sys.argv[1:7]
is_over = threading.Event()


def say(word: str, items: Iterable[object] = ()) -> None:
    print(word, *items, flush=True)


def got(places: Iterable[tuple[int, int]]) -> None:
    say("got", (f"{partition}:{offset}" for partition, offset in places))


def confluent() -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    pending = False

    def commit() -> bool:
        nonlocal pending
        if pending:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say("#", [error])
                return False
            pending = False
            say("done")
        return True

    def show() -> None:
        say("assigned", sorted(assigned))

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        assigned.update(each.partition for each in partitions)
        show()

    def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
        say("revoked", sorted(each.partition for each in partitions))
        if not commit():
            lose(partitions)
        remove(partitions)

    def on_lost(_: object, partitions: list[TopicPartition]) -> None:
        lose(partitions)
        remove(partitions)

    def lose(partitions: list[TopicPartition]) -> None:
        nonlocal pending
        pending = False
        say("lost", sorted(each.partition for each in partitions))

    def remove(partitions: list[TopicPartition]) -> None:
        assigned.difference_update(each.partition for each in partitions)
        show()

    assigned: set[int] = set()
    settings: dict[str, Any] = {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 200,
    }
    if STRATEGY == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {
            "partition.assignment.strategy": STRATEGY,
            "session.timeout.ms": int(SESSION_MS),
            "heartbeat.interval.ms": 300,
        }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    while not is_over.is_set():
        messages = consumer.consume(500, 0.1)
        places = [(each.partition(), each.offset()) for each in messages if each.error() is None]
        if places:
            got(places)
            pending = True
        commit()
    consumer.close()


def kafka_python() -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import CommitFailedError, RebalanceInProgressError

    pending = False
    assigned: set[int] = set()

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[Any]) -> None:
            say("revoked", sorted(each.partition for each in revoked))
            if not commit():
                self.on_partitions_lost(revoked)
            assigned.difference_update(each.partition for each in revoked)
            say("assigned", sorted(assigned))

        def on_partitions_assigned(self, partitions: set[Any]) -> None:
            assigned.update(each.partition for each in partitions)
            say("assigned", sorted(assigned))

        def on_partitions_lost(self, partitions: set[Any]) -> None:
            nonlocal pending
            pending = False
            say("lost", sorted(each.partition for each in partitions))
            assigned.difference_update(each.partition for each in partitions)
            say("assigned", sorted(assigned))

    def commit() -> bool:
        nonlocal pending
        if pending:
            try:
                consumer.commit()
            except (CommitFailedError, RebalanceInProgressError) as error:
                say("#", [error])
                return False
            pending = False
            say("done")
        return True

    assignor = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}[STRATEGY]
    consumer = KafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(SESSION_MS),
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=200,
        partition_assignment_strategy=[assignor],
    )
    consumer.subscribe([TOPIC], listener=Listener())
    while not is_over.is_set():
        # A rebalance that ends between two calls is lost on this client. Its metadata come after a tenth of a second,
        # and begin one: a call is not to end then, too.
        batches = consumer.poll(timeout_ms=700)
        if batches:
            got((place.partition, each.offset) for place, batch in batches.items() for each in batch)
            pending = True
        commit()
    consumer.close()


async def aiokafka() -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    committing = asyncio.Lock()
    rounds = 0

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: set[Any]) -> None:
            nonlocal rounds
            async with committing:
                rounds += 1
                say("revoked", sorted(each.partition for each in revoked))
                say("assigned")

        async def on_partitions_assigned(self, assigned: set[Any]) -> None:
            say("assigned", sorted(each.partition for each in assigned))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(SESSION_MS),
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=200,
        metadata_max_age_ms=1000,
        partition_assignment_strategy=[
            {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[STRATEGY]
        ],
    )
    consumer.subscribe([TOPIC], listener=Listener())
    await consumer.start()
    while not is_over.is_set():
        batches = await consumer.getmany(timeout_ms=100)
        before = rounds
        async with committing:
            if not batches or rounds != before:
                continue  # what came before a rebalance comes again after it, from what is committed
            got((place.partition, each.offset) for place, batch in batches.items() for each in batch)
            try:
                await consumer.commit({place: batch[-1].offset + 1 for place, batch in batches.items()})
                say("done")
            except KafkaError as error:
                say("#", [error])
                say("lost", sorted(place.partition for place in batches))
    await consumer.stop()


def _wait_for_end() -> None:
    sys.stdin.read()
    is_over.set()


threading.Thread(target=_wait_for_end, daemon=True).start()
if CLIENT == "aiokafka":
    asyncio.run(aiokafka())
else:
    {"confluent": confluent, "kafka-python": kafka_python}[CLIENT]()
