"""A comparison of all replicas of all partitions, which must be in sync and identical at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.protocol.record_batch import RecordBatch, iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.partition import Partition
from barnabas.simulation.broker_world import BrokerWorld, ClusterMachine


def differences(world: BrokerWorld, in_sync: Mapping[TopicPartition, list[int]]) -> list[str]:
    """Return the replicas that differ from the expected state."""
    found: list[str] = []
    hosts: dict[TopicPartition, list[tuple[ClusterMachine, Partition]]] = {}
    for broker in world.running:
        assert broker.server is not None
        for partition in broker.server.state.replica_manager.partitions:
            hosts.setdefault(partition.topic_partition, []).append((broker, partition))
    for name, replicas in hosts.items():
        wanted = replicas[0][1].replicas
        if sorted(in_sync.get(name, [])) != sorted(wanted) or len(replicas) != len(wanted):
            found.append(f"{name} has the ISR {in_sync.get(name)} and {len(replicas)} replicas instead of {wanted}")
            continue
        # A follower receives the log start offset of its leader later, and its segments may begin at other offsets.
        start = max(one.log.log_start_offset for _, one in replicas)
        ends = {broker.broker_id: (one.log.high_watermark, one.log.log_end_offset) for broker, one in replicas}
        if len({offset for pair in ends.values() for offset in pair}) > 1:
            found.append(f"{name} has the high watermarks and log end offsets {ends}")
        elif len({_contents(broker, one, start) for broker, one in replicas}) > 1:
            found.append(f"{name} has replicas with different bytes")
        elif len({_producers(one) for _, one in replicas}) > 1:
            found.append(f"{name} has replicas with different producer states")
    return found


def _contents(broker: ClusterMachine, partition: Partition, start: int) -> bytes:
    """Return the batches whose base offset is `start` or higher."""
    folder = partition.log.path
    files = [
        broker.disk.read_bytes(f"{folder}/{name}")
        for name in sorted(broker.disk.list_dir(folder))
        if name.endswith(".log")
    ]
    if not start:
        return b"".join(files)
    kept: list[bytes] = []
    for data in files:
        position = 0
        for batch in iter_batches(memoryview(data)):
            assert isinstance(batch, RecordBatch)
            end = position + batch.header.size_in_bytes
            if batch.header.base_offset >= start:
                kept.append(data[position:end])
            position = end
    return b"".join(kept)


def _producers(partition: Partition) -> str:
    state = partition.log.producer_state.producers
    return repr(sorted((entry.producer_id, entry.producer_epoch, entry.last_sequence) for entry in state.values()))
