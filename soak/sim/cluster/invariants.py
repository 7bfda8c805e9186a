"""Invariants that hold at every moment of a run, checked with the state of all brokers and of ZooKeeper."""

from __future__ import annotations

import json
import re
from typing import Any

from soak.sim.replica_invariants import ReplicaInvariants

from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.schema import ZERO_UUID
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata.data_tree import Transaction
from barnabas.server.replication.partition import Partition
from barnabas.simulation.cluster import ClusterWorld

STATE_PATH = re.compile(r"/kafka/brokers/topics/([^/]+)/partitions/(\d+)/state")
TOPIC_PATH = re.compile(r"/kafka/brokers/topics/([^/]+)")
NO_LEADER = -1


class Invariants(ReplicaInvariants):
    """A checker of all replicas that runs every `LOOK_SECONDS`, and of the metadata at each write to ZooKeeper."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__(world)
        self._topics: dict[str, dict[str, Any] | None] = {}
        self._states: dict[TopicPartition, dict[str, Any]] = {}
        world.ensemble.on_write.append(self._written)

    def in_sync(self) -> dict[TopicPartition, list[int]]:
        """Return the ISR of each partition in ZooKeeper."""
        return {partition: state["isr"] for partition, state in self._states.items()}

    def topic(self, name: str) -> dict[str, Any] | None:
        """Return the data of a topic in ZooKeeper, None if it does not exist."""
        return self._topics.get(name)

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""
        topic = self.topic(name)
        return 0 if topic is None else len(topic["partitions"])

    def state(self, partition: TopicPartition) -> dict[str, Any]:
        """Return the state of a partition in ZooKeeper."""
        return self._states[partition]

    # -- ZooKeeper -------------------------------------------------------------------------------------------------

    def _written(self, transaction: Transaction) -> None:
        for path, node in transaction.changes.items():
            if found := TOPIC_PATH.fullmatch(path):
                self._topics[found[1]] = None if node is None else json.loads(node.data)
            elif found := STATE_PATH.fullmatch(path):
                partition = TopicPartition(found[1], int(found[2]))
                former = self._states.pop(partition, None)
                if node is not None:
                    state = self._states[partition] = json.loads(node.data)
                    self._check_state(partition, former or state, state)
        for partition in self._states:
            self._check_replicas(partition)

    def _check_state(self, partition: TopicPartition, former: dict[str, Any], state: dict[str, Any]) -> None:
        if state["leader_epoch"] < former["leader_epoch"] or state["controller_epoch"] < former["controller_epoch"]:
            self._say(f"epoch: {partition} changed from {former} to {state}")
        if state["leader"] not in (NO_LEADER, *former["isr"]):
            self._say(f"unclean: {partition} changed from {former} to {state}")
        if state["leader"] not in (NO_LEADER, *state["isr"]) or not state["isr"]:
            self._say(f"isr: {partition} has {state}")

    def _check_replicas(self, partition: TopicPartition) -> None:
        """Check that the ISR is a subset of the replicas."""
        topic, isr = self._topics[partition.topic], self._states[partition]["isr"]
        replicas = None if topic is None else topic["partitions"].get(str(partition.partition))
        if replicas is None or not set(isr) <= set(replicas):
            self._say(f"isr: {partition} has the ISR {isr} and the replicas {replicas}")

    # -- the brokers -----------------------------------------------------------------------------------------------

    def _in_sync(self, partition: Partition) -> list[int]:
        """Return the ISR from ZooKeeper, if the topic still has the topic id of this replica."""
        topic, state = self._topics.get(partition.topic_partition.topic), self._states.get(partition.topic_partition)
        is_same = topic is not None and topic["topic_id"] == self._topic_id(partition)
        return state["isr"] if is_same and state is not None else []

    def _topic_id(self, partition: Partition) -> str:
        """Return the topic id of the replica, or the id in ZooKeeper if brokers do not receive topic ids."""
        topic = self._topics.get(partition.topic_partition.topic)
        if partition.topic_id != ZERO_UUID or topic is None:
            return uuid_text(partition.topic_id)
        found: str = topic["topic_id"]
        return found
