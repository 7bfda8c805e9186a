"""Listings and descriptions of transactions (KIP-664)."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.topic_partition import TopicPartition

NO_OFFSET = -1
NO_EPOCH = -1


class TransactionListing(NamedTuple):
    """One transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionDescription(NamedTuple):
    """The state of one transactional id at its coordinator; `start_ms` is -1 if no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]


class OpenTransaction(NamedTuple):
    """A producer's open transaction on one partition, as the leader of the partition reports it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
