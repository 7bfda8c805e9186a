"""Producers that begin a transaction and are never heard of again: their time has to end it."""

from __future__ import annotations

import random
from contextlib import suppress

from tests.sim.transactions.copier import OUTPUT, Setting, transactional_producer
from tests.sim.transactions.ledger import Copy

from barnabas.protocol.errors import KafkaError

FROM_NOWHERE = (-1, 0)
MOST_RECORDS = 3


class Deserters:
    """All of one run; each has a transactional id of its own."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.count = 0

    async def desert(self) -> None:
        """One more; returns when it is dead."""
        setting, world = self.setting, self.setting.world
        name = f"deserter.{self.count}"
        self.count += 1
        rng = random.Random(f"{setting.plan.seed}/{name}")
        node = world.machine(name)

        async def open_one() -> None:
            with suppress(KafkaError, OSError):
                producer = await transactional_producer(setting, name, rng).start()
                world.loop.keep(producer)
                transaction = setting.ledger.begin(f"{name}.1")
                await producer.transaction().__aenter__()
                for number in range(rng.randint(1, MOST_RECORDS)):
                    target = rng.randrange(setting.plan.partitions)
                    copy = Copy(transaction.name, FROM_NOWHERE, number, target)
                    transaction.copies.append(copy)
                    await (await producer.send(OUTPUT, copy.value, partition=target))

        await world.spawn(node, open_one())
        node.kill()
