"""Our own consumer as a member of a group that says what it is assigned, what it reads and when that is committed.

Arguments: bootstrap, group, topic, strategy, session timeout in ms. It leaves when its input ends.
"""

import asyncio
import sys
import threading
from collections.abc import Iterable
from typing import Any

from barnabas.clients import Consumer, RebalanceListener
from barnabas.clients.errors import CommitFailedError, RebalanceInProgressError
from barnabas.protocol.topic_partition import TopicPartition

BOOTSTRAP, GROUP, TOPIC, STRATEGY, SESSION_MS = sys.argv[1:6]
is_over = threading.Event()


def say(word: str, items: Iterable[object] = ()) -> None:
    print(word, *items, flush=True)


class Member(RebalanceListener):
    def __init__(self) -> None:
        protocol: dict[str, Any] = {"group_protocol": "consumer"}
        if STRATEGY != "consumer":
            protocol = {
                "session_timeout_ms": int(SESSION_MS),
                "heartbeat_interval_ms": 300,
                "partition_assignment_strategy": [STRATEGY],
            }
        self.consumer = Consumer(
            BOOTSTRAP,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=200,
            **protocol,
        )
        self.assigned: set[int] = set()
        self.has_uncommitted = False

    async def run(self) -> None:
        async with self.consumer as consumer:
            consumer.subscribe([TOPIC], listener=self)
            while not is_over.is_set():
                batches = await consumer.getmany(timeout_ms=100)
                if batches:
                    say("got", (f"{tp.partition}:{record.offset}" for tp, some in batches.items() for record in some))
                    self.has_uncommitted = True
                await self.commit()

    async def commit(self) -> bool:
        if self.has_uncommitted:
            try:
                await self.consumer.commit()
            except (CommitFailedError, RebalanceInProgressError) as error:
                say("#", [error])
                return False
            self.has_uncommitted = False
            say("done")
        return True

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        say("revoked", [tp.partition for tp in revoked])
        if not await self.commit():
            self.on_partitions_lost(revoked)
        self._remove(revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.has_uncommitted = False
        say("lost", [tp.partition for tp in lost])
        self._remove(lost)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.assigned |= {tp.partition for tp in assigned}
        say("assigned", sorted(self.assigned))

    def _remove(self, partitions: list[TopicPartition]) -> None:
        self.assigned -= {tp.partition for tp in partitions}
        say("assigned", sorted(self.assigned))


def _wait_for_end() -> None:
    sys.stdin.read()
    is_over.set()


threading.Thread(target=_wait_for_end, daemon=True).start()
asyncio.run(Member().run())
