"""Transactions of a cluster: whoever dies, committed ones are whole, others are not to be seen, and all of them end."""

from __future__ import annotations

import asyncio

from tests.crash.test_kill_transactions import GROUPS, TOPIC, Copier, check

from barnabas.clients import Producer
from barnabas.testing import Cluster

SETTINGS = {"min.insync.replicas": 2, "transaction.state.log.min.isr": 2, "transaction.state.log.num.partitions": 3}


async def test_committed_ones_are_whole_whichever_broker_is_killed() -> None:
    async with Cluster(brokers=3, topics={TOPIC: 2}, config=SETTINGS) as cluster:
        copiers = [Copier(cluster.bootstrap, name) for name in GROUPS]
        running = [asyncio.ensure_future(copier.run()) for copier in copiers]
        for victim in cluster.brokers:
            count = sum(len(copier.committed) for copier in copiers)
            async with asyncio.timeout(30):
                while sum(len(copier.committed) for copier in copiers) < count + 10:
                    await asyncio.sleep(0.01)
            await cluster.akill(victim)
            await asyncio.sleep(0.1)
            await cluster.astart(victim)
        for copier in copiers:
            copier.is_over = True
        await asyncio.wait_for(asyncio.gather(*running), 60)
        for copier in copiers:  # what they may have left open is over
            async with Producer(cluster.bootstrap, transactional_id=copier.name):
                pass
        print([len(c.committed) for c in copiers])
        await check(cluster.bootstrap, copiers)
