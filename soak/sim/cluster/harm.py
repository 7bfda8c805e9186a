"""Further faults of a cluster: failed disks, corrupt batches, reassignments and new partitions."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass

from soak.sim.cluster.operator import Operator
from soak.sim.workload import TOPIC

from barnabas.protocol.record_batch import RecordBatch, iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import PartitionsCreation
from barnabas.server.replication.partition import Partition
from barnabas.simulation.broker_world import ClusterMachine
from barnabas.simulation.cluster import ClusterWorld
from barnabas.simulation.disk import SimDisk
from barnabas.simulation.nemesis import Harm, Nemesis

LET_GO_SECONDS = 5.0
RECORDS_AT = 61
"""The position of the records in a batch. Faults do not change the header, of which the CRC covers only a part."""
MAX_GROWTH = 2
CANCELLED = 0.2
"""The share of the reassignments that are cancelled."""


@dataclass(frozen=True, slots=True)
class Rot:
    """A batch with one flipped bit."""

    path: str
    position: int
    right: bytes
    wrong: bytes

    def put_right(self, disk: SimDisk) -> None:
        """Restore the original bytes of the batch, unless the file has been changed since."""
        if (
            disk.exists(self.path)
            and disk.read_bytes(self.path)[self.position : self.position + len(self.wrong)] == self.wrong
        ):
            disk.overwrite(self.path, self.position, self.right)


class ClusterNemesis(Nemesis):
    """A nemesis with the further faults.

    `in_sync` and `partitions` return the state in ZooKeeper. `on_growth` is called when partitions may have been added.
    """

    def __init__(
        self,
        world: ClusterWorld,
        plan: Harm,
        *,
        in_sync: Callable[[], dict[TopicPartition, list[int]]],
        partitions: Callable[[], list[TopicPartition]],
        on_growth: Callable[[], None],
    ) -> None:
        super().__init__(world, plan)
        self._operator = Operator(world)
        self._in_sync = in_sync
        self._partitions = partitions
        self._on_growth = on_growth
        self._is_rotten = False
        self._growth = 0
        self._acts |= {
            "stop all": self._stop_all,
            "disk dies": self._kill_disk,
            "bits rot": self._rot,
            "reassign": self._reassign,
            "grow": self._grow,
        }

    async def _stop_all(self) -> None:
        """Stop all brokers cleanly and start them again."""
        others = [broker for broker in self.world.running if broker not in self._suffering]
        self._suffering.update(others)
        await asyncio.gather(*map(self._stop_one, others))

    async def _stop_one(self, broker: ClusterMachine) -> None:
        await asyncio.sleep(self.random.random() * self.random.choice((0.01, 1.0)))
        await self._end(broker)
        await self._return(broker)

    # -- disks -----------------------------------------------------------------------------------------------------

    async def _kill_disk(self) -> None:
        """Make a log directory of a broker fail with EIO, then restart the machine with a working disk."""
        broker = self._victim()
        if broker is None:
            return
        self._suffering.add(broker)
        folder = self.random.choice(self.world.settings["log.dirs"].split(","))
        for operation in self.random.sample(("pwrite", "pread", "fsync", "fdatasync"), 2):
            broker.disk.fail(operation, errno.EIO, f"{folder}/", times=None)
        await self._last()
        # After a failed sync the unwritten pages are lost, even if a read still returns them.
        on_disk = self.world.settings["acks.all.durability"] == "disk"
        broker.crash(self.random.choice(("A", "B")) if on_disk else "kill")
        await self._return(broker)

    async def _rot(self) -> None:
        """Flip a bit of a batch, then kill the broker.

        If the replica leaves the ISR, delete it, so that the broker fetches it again. Otherwise restore the bit.
        """
        broker = None if self._is_rotten else self._victim()
        rot = None if broker is None else self._flip(broker)
        if broker is None or rot is None:
            return
        partition, batch = rot
        self._is_rotten = True
        self._suffering.add(broker)
        await self._last()
        broker.crash("kill")
        if await self._is_let_go(broker, partition.topic_partition):
            folder = partition.log.path
            if broker.disk.exists(folder):
                for name in broker.disk.list_dir(folder):
                    broker.disk.unlink(f"{folder}/{name}")
                broker.disk.rmdir(folder)
        else:
            batch.put_right(broker.disk)
        self._is_rotten = False
        await self._return(broker)

    def _flip(self, broker: ClusterMachine) -> tuple[Partition, Rot] | None:
        assert broker.server is not None
        held = [one for one in broker.server.state.replica_manager.partitions if one.topic_partition.topic == TOPIC]
        if not held:
            return None
        partition = self.random.choice(held)
        folder = partition.log.path
        path = f"{folder}/{self.random.choice([one for one in broker.disk.list_dir(folder) if one.endswith('.log')])}"
        batches = iter_batches(memoryview(broker.disk.read_bytes(path)))
        sizes = [batch.header.size_in_bytes for batch in batches if isinstance(batch, RecordBatch)]
        if not sizes:
            return None
        chosen = self.random.randrange(len(sizes))
        position = sum(sizes[:chosen])
        right = broker.disk.read_bytes(path)[position : position + sizes[chosen]]
        wrong = bytearray(right)
        wrong[self.random.randrange(RECORDS_AT, len(wrong))] ^= 1 << self.random.randrange(8)
        broker.disk.overwrite(path, position, bytes(wrong))
        return partition, Rot(path, position, right, bytes(wrong))

    async def _is_let_go(self, broker: ClusterMachine, partition: TopicPartition) -> bool:
        """Return whether the replica of a stopped broker leaves the ISR within `LET_GO_SECONDS`."""
        deadline = self.world.loop.time() + LET_GO_SECONDS
        while broker.broker_id in self._in_sync().get(partition, []):
            if self.world.loop.time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    # -- topics ----------------------------------------------------------------------------------------------------

    async def _reassign(self) -> None:
        """Reassign a partition to other brokers or in another order, and sometimes cancel the reassignment."""
        brokers = list(self.world.brokers)
        partition = self.random.choice(self._partitions())
        target = tuple(self.random.sample(brokers, 3))
        await self._operator.ask(lambda controller: controller.alter_partition_reassignments({partition: target}))
        await self._last()
        if self.random.random() < CANCELLED:
            await self._operator.ask(lambda controller: controller.alter_partition_reassignments({partition: None}))

    async def _grow(self) -> None:
        if self._growth < MAX_GROWTH:
            self._growth += 1
            wish = PartitionsCreation(TOPIC, len(self._partitions()) + 1)
            await self._operator.ask(lambda controller: controller.create_partitions([wish]))
            await self._last()
            self._on_growth()
