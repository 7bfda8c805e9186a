"""Producers (deserters) that begin a transaction and die. The transaction timeout must abort the transaction."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from soak.sim.transactions.copier import OUTPUT, Setting, transactional_producer
from soak.sim.transactions.late_requests import DESERTER
from soak.sim.transactions.ledger import Copy

from barnabas.protocol.errors import KafkaError

FROM_NOWHERE = (-1, 0)
MAX_RECORDS = 3
CARELESS = 0.5
"""The share of the deserters that abort before their batches are acknowledged: a batch may arrive after the abort."""
CARELESS_SECONDS = 0.002
"""The time after which a batch has been sent."""


class Deserters:
    """The deserters of one run, each with a separate transactional id."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.count = 0

    async def desert(self) -> None:
        """Run another deserter until it is dead."""
        setting, world = self.setting, self.setting.world
        name = f"{DESERTER}.{self.count}"
        self.count += 1
        rng = random.Random(f"{setting.plan.seed}/{name}")
        node = world.machine(name)
        is_careless = rng.random() < CARELESS

        async def open_one() -> None:
            with suppress(KafkaError, OSError):
                producer = await transactional_producer(setting, name, rng).start()
                world.loop.keep(producer)
                transaction = setting.ledger.begin(f"{name}.1")
                await producer.transaction().__aenter__()
                for number in range(rng.randint(1, MAX_RECORDS)):
                    target = rng.randrange(setting.plan.partitions)
                    copy = Copy(transaction.name, FROM_NOWHERE, number, target)
                    transaction.copies.append(copy)
                    sending = await producer.send(OUTPUT, copy.value, partition=target)
                    if is_careless:
                        await asyncio.sleep(CARELESS_SECONDS)
                    else:
                        await sending
                if is_careless:
                    assert producer._transactions is not None
                    await producer._transactions.end(is_commit=False)

        await world.spawn(node, open_one())
        node.kill()
