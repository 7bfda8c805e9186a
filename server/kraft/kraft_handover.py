"""Handing the log directories of a standalone broker to a new KRaft cluster, whose controllers are Apache Kafka's.

The controllers begin with the metadata of the broker: its topics with their ids, settings, ACLs, users, quotas, groups'
settings and delegation tokens. The records, offsets of groups and transactions are in the logs, which nothing changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from ...protocol.metadata_records import RegisterBrokerRecord, TopicRecord
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import StorageError
from ...storage.filesystem import FileSystem, OsFileSystem
from ...storage.log_dir import CLEAN_SHUTDOWN_FILE, broker_epoch_in
from ...storage.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    common_identity,
    parse_directory_id,
    read_meta_properties,
)
from ...storage.partition_dir import parse_partition_dir
from ..metadata.embedded_store import EmbeddedStore
from ..metadata.metadata_store import StoreError
from ..runtime.host import ThreadWork
from .bootstrap_checkpoint import BootstrapCheckpoint, BootstrapCheckpointError
from .standalone_metadata import StandaloneMetadata, UnreadableMetadataError

METADATA_STORE = "metadata.sqlite"


class HandoverError(Exception):
    """The directories cannot be handed over. The message contains the reason and the remedy."""


class Handover(NamedTuple):
    """A handover that was made."""

    broker_id: int
    cluster_id: str
    topics: int
    records: int
    checkpoints: list[str]
    """The changed files of the controllers."""
    changed_settings: list[str]
    """The settings of topics that Kafka does not accept, each with its change."""


async def hand_over(
    log_dirs: Sequence[str], controller_dirs: Sequence[str], token_bytes: Callable[[int], bytes]
) -> Handover:
    """Add the metadata of a standalone broker to the bootstrap files of controllers that were never started.

    `log_dirs` are all log directories of the broker, the one with its metadata store first; they are only read.
    `controller_dirs` are the metadata log directories of the controllers, formatted with the cluster id of the broker.
    `token_bytes` returns random bytes for ids. Raises HandoverError, OSError.
    """
    fs = OsFileSystem()
    try:
        return await _hand_over(fs, log_dirs, controller_dirs, token_bytes)
    except (StorageError, StoreError, UnreadableMetadataError, BootstrapCheckpointError, ValueError) as error:
        raise HandoverError(str(error)) from error


async def _hand_over(
    fs: FileSystem, log_dirs: Sequence[str], controller_dirs: Sequence[str], token_bytes: Callable[[int], bytes]
) -> Handover:
    identities = {path: _identity(fs, path) for path in log_dirs}
    broker_id, cluster_id = common_identity(identities.items())
    if broker_id is None or cluster_id is None:
        raise HandoverError(f"{log_dirs[0]}: no broker has used this directory")
    directory_ids = {path: _directory_id(path, one) for path, one in identities.items()}
    checkpoints = [_checkpoint(fs, path, broker_id, cluster_id) for path in controller_dirs]
    store_path = f"{log_dirs[0]}/{METADATA_STORE}"
    if not fs.exists(store_path):
        raise HandoverError(f"{store_path}: not found. Name the log directory with the metadata store first")
    epochs = {_stored_epoch(fs, path) for path in log_dirs}
    loop = asyncio.get_running_loop()
    work = ThreadWork(loop)
    # It has an exclusive lock as long as the broker runs.
    store = EmbeddedStore.open(store_path, now_ms=lambda: 0, work=work)
    try:
        metadata = StandaloneMetadata(
            store,
            broker_id=broker_id,
            broker_epoch=epochs.pop() if len(epochs) == 1 else -1,
            token_bytes=token_bytes,
        )
        records = [one async for one in metadata.records(_partitions(fs, directory_ids), list(directory_ids.values()))]
    finally:
        await store.close()
        work.close()
    for checkpoint in checkpoints:
        await checkpoint.add(records)
    topics = sum(isinstance(one, TopicRecord) for one in records)
    paths = [one.path for one in checkpoints]
    return Handover(broker_id, cluster_id, topics, len(records), paths, metadata.changed_settings)


def _identity(fs: FileSystem, log_dir: str) -> MetaProperties:
    found = read_meta_properties(fs, log_dir)
    if found is None:
        raise HandoverError(f"{log_dir}: no meta.properties")
    return found


def _directory_id(log_dir: str, identity: MetaProperties) -> UUID:
    if identity.version != 1 or identity.directory_id is None:
        raise HandoverError(f"{log_dir}: no directory id. Start the standalone broker once, and stop it")
    return parse_directory_id(identity.directory_id, f"{log_dir}/{META_PROPERTIES}")


def _checkpoint(fs: FileSystem, log_dir: str, broker_id: int, cluster_id: str) -> BootstrapCheckpoint:
    identity = _identity(fs, log_dir)
    if identity.cluster_id != cluster_id:
        raise HandoverError(
            f"{log_dir}: its cluster id is {identity.cluster_id}. Format it with --cluster-id {cluster_id}"
        )
    if identity.node_id == broker_id:
        raise HandoverError(f"{log_dir}: node.id {broker_id} is the id of the broker. Choose another one")
    checkpoint = BootstrapCheckpoint(fs, log_dir)
    if any(isinstance(one, RegisterBrokerRecord) for one in checkpoint.records):
        raise HandoverError(f"{log_dir}: it has the metadata of a broker already. Format a new directory")
    return checkpoint


def _stored_epoch(fs: FileSystem, log_dir: str) -> int:
    try:
        return broker_epoch_in(fs.read_bytes(f"{log_dir}/{CLEAN_SHUTDOWN_FILE}"))
    except FileNotFoundError:
        return -1


def _partitions(fs: FileSystem, directory_ids: dict[str, UUID]) -> dict[TopicPartition, UUID]:
    """Return the log directory of each partition."""
    found: dict[TopicPartition, UUID] = {}
    for log_dir, directory_id in directory_ids.items():
        for name in fs.list_dir(log_dir):
            partition_dir = parse_partition_dir(name)
            if partition_dir is not None and not partition_dir.suffix:
                found[partition_dir.topic_partition] = directory_id
    return found
