"""Kafka's BrokerMetadataPublisher: applies changes of the metadata of a KRaft cluster to the parts of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Set
from ipaddress import ip_address
from itertools import islice
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.acl_bindings import AccessControlEntry, ResourcePattern
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode
from ...protocol.topic_partition import TopicIdPartition, TopicPartition
from ..config.dynamic_config import legal_settings
from ..config.keys.catalogue import TOPIC_KEYS
from ..config.keys.validators import ConfigError
from ..config.named_configs import NAMED_KINDS
from ..controller.controller_request_handler import error_of, stop_replicas_locally
from ..image.metadata_delta import MetadataDelta
from ..image.metadata_image import EMPTY_IMAGE
from ..image.topics_image import LocalReplicaChanges
from ..metadata.metadata_cache import RemovedTopics
from ..quotas.entities import IP
from ..runtime.loop_sharing import CountBudget
from ..runtime.scheduler import IsolatedWork
from .image_topics import (
    UNASSIGNED_DIRECTORY,
    brokers_with_other_directories,
    cached_broker,
    cached_topic,
    leader_and_isr_state,
    offline_replicas,
)

if TYPE_CHECKING:
    from uuid import UUID

    from ...protocol.acl_bindings import AclBinding
    from ..config.dynamic_config import DynamicConfig
    from ..controller.controller_request_handler import PauseCleaning
    from ..image.acls_image import AclsDelta
    from ..image.broker_registration import BrokerRegistration
    from ..image.client_quotas_image import ClientQuotasDelta
    from ..image.configurations_image import ConfigurationsDelta
    from ..image.metadata_batch_loader import Manifest
    from ..image.metadata_image import MetadataImage
    from ..image.partition_registration import PartitionRegistration
    from ..image.topics_image import TopicsDelta
    from ..metadata.config_store import ConfigStore
    from ..metadata.metadata_cache import MetadataCache, MetadataSnapshot
    from ..metadata.znodes import BrokerInfo
    from ..quotas.quota_managers import QuotaManagers
    from ..replication.replica_manager import ReplicaManager
    from ..security.acl_authorizer import AclAuthorizer
    from .image_features import ImageFeatures
    from .published_image import PublishedImage

logger = room_logger("metadata")

ROLES_PER_PREPARATION = 2000
"""Maximum number of partitions whose folders are created together. The event loop works ten milliseconds for them in a
turn. With a smaller number, the checkpoints of a log directory are written more often."""


class BrokerMetadataPublisher:
    """Kafka's BrokerMetadataPublisher. `KRaftMember` owns it; the MetadataLoader calls it on the loop, one by one.

    The metadata cache receives each image first, brokers and topics together, as in Kafka: clients must not see leaders
    of one image on brokers of another. Clients may then send requests for partitions that this broker does not lead or
    follow yet, and retry after NOT_LEADER_OR_FOLLOWER. Settings are applied before replicas, because new logs use them.
    """

    name = "BrokerMetadataPublisher"

    def __init__(
        self,
        broker_id: int,
        published: PublishedImage,
        *,
        dynamic_config: DynamicConfig,
        config_store: ConfigStore,
        features: ImageFeatures,
        quotas: QuotaManagers,
        acls: AclAuthorizer | None,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        offline: Container[TopicPartition],
        lacks_log_dirs: Callable[[], bool],
        is_directory_online: Callable[[UUID], bool],
        pause_cleaning: PauseCleaning,
    ) -> None:
        """`published` is the image that `config_store` reads, and up to which the settings were applied at the start.

        `offline` has, at any time, the partitions in failed log directories. `lacks_log_dirs` returns whether a log
        directory is offline: logs that were not found may be in it. `is_directory_online` returns whether the log
        directory of this broker with an id is online.
        """
        self.has_published = asyncio.Event()
        """Set when the whole metadata was applied once, or could not be applied; then `first_failure` is set."""
        self.first_failure: Exception | None = None
        """The exception that has ended a part of the first publication: the broker must not serve clients."""
        self.applied_offset = -1
        """The last offset of the metadata log whose changes were applied."""
        self._broker_id = broker_id
        self._published = published
        self._dynamic_config = dynamic_config
        self._config_store = config_store
        self._features = features
        self._quotas = quotas
        self._acls = acls
        self._acl_rules: dict[ResourcePattern, dict[UUID, AccessControlEntry]] = {}
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._offline = offline
        self._lacks_log_dirs = lacks_log_dirs
        self._is_directory_online = is_directory_online
        self._pause_cleaning = pause_cleaning
        self._failed: set[TopicIdPartition] = set()
        """Replicas that could not be created or changed their role."""
        self._publication_lock = asyncio.Lock()
        self._changed_hosts: dict[str, None] = {}
        """Host names whose quotas have changed and were not applied yet, oldest first."""
        self._host_quotas: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Apply no more quotas of host names."""
        if self._host_quotas is not None:
            self._host_quotas.cancel()
            await asyncio.gather(self._host_quotas, return_exceptions=True)

    async def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Apply the changes that lead to an image.

        No delta is published twice, so the failure of a part must not prevent the others: without the topics the
        broker would lead partitions that other brokers lead.
        """
        async with self._publication_lock:
            before = self._published.image
            is_first, settings = not self.has_published.is_set(), delta
            local = LocalReplicaChanges()
            if delta.topics is not None:
                local = await delta.topics.local_changes(self._broker_id)
            stopped = set(local.deletes)
            if is_first:
                # The settings and quotas were read at the start, from the image of that time.
                settings = await MetadataDelta.between(before, image)
                if settings.topics is not None:
                    # The logs were opened for the topics of that image: another topic may have the name of one now.
                    stopped |= (await settings.topics.local_changes(self._broker_id)).deletes
            removed = await self._set_image(delta, image, stopped)
            if delta.features is not None:
                await self._apply_part("features", image, self._features.changed())
            if settings.configs is not None or settings.client_quotas is not None:
                await self._apply_part("settings and quotas", image, self._apply_settings(settings, image))
            if delta.acls is not None and self._acls is not None:
                await self._apply_part("ACLs", image, self._apply_acls(self._acls, delta.acls))
            if delta.topics is not None:
                await self._apply_part("topics", image, self._apply_topics(delta.topics, local, image, removed))
            if self._has_ineligible_brokers(before, image):
                # Followers that were about to join an ISR, and now cannot, must not hold back high watermarks.
                await self._apply_part("ISRs", image, self._replica_manager.shrink_isrs())
            self.applied_offset = image.provenance.last_contained_offset
            self.has_published.set()

    async def _apply_part(self, part: str, image: MetadataImage, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            logger.exception("the changes of %s up to %s could not all be applied", part, image.provenance)
            if not self.has_published.is_set() and self.first_failure is None:
                self.first_failure = error

    async def retry_replicas(self) -> None:
        """Create the replicas that could not be created, except in failed log directories."""
        async with self._publication_lock:
            topics, retried = self._published.image.topics, {}
            for key in list(self._failed):
                partition = topics.partition(key.topic_id, key.partition)
                self._failed.discard(key)
                if partition is not None and self._broker_id in partition.replicas:
                    has_log = self._replica_manager.get_partition(key.topic, key.partition) is not None
                    may_be_offline = not has_log and not self._is_new(partition) and self._lacks_log_dirs()
                    if key.topic_partition in self._offline or may_be_offline:
                        self._failed.add(key)
                    else:
                        retried[key] = partition
            await self._change_roles(retried)

    # -- the metadata cache ----------------------------------------------------------------------------------------

    async def _set_image(
        self, delta: MetadataDelta, image: MetadataImage, stopped: Collection[TopicIdPartition]
    ) -> RemovedTopics:
        """Replace the published image, and brokers and topics in the cache, in one turn of the loop.

        Kafka's KRaftMetadataCache.setImage. The replicas in `stopped` are deleted first. Return the topics that were
        deleted. While the new snapshot is built, the loop serves other requests from the present snapshot.
        """
        snapshot, removed = self._metadata.snapshot, RemovedTopics([], [])
        # Controllers write a NoOpRecord every 500 ms, and a copy takes milliseconds with tens of thousands of topics.
        if delta.cluster is not None or delta.topics is not None:
            snapshot = snapshot.copy()
        await self._apply_part("the metadata cache", image, self._build_snapshot(snapshot, delta, image, removed))
        # Before clients see a new topic of the same name: its records must not reach the log of the former topic.
        await self._apply_part("topics", image, self._stop_replicas(stopped))
        self._published.image = image
        self._metadata.set_snapshot(snapshot)
        return removed

    async def _build_snapshot(
        self, snapshot: MetadataSnapshot, delta: MetadataDelta, image: MetadataImage, removed: RemovedTopics
    ) -> None:
        brokers, budget = image.cluster.brokers, CountBudget()
        if delta.cluster is not None:
            self._set_brokers(snapshot, image)
        if delta.topics is not None:
            deleted = snapshot.remove_topics(topic.name for topic in delta.topics.deleted.values())
            removed.names.extend(deleted.names)
            removed.ids.extend(deleted.ids)
            for changed in delta.topics.changed.values():
                former = snapshot.topics.get(changed.name)
                topic = image.topics.by_id[changed.id]
                snapshot.put_topics([await cached_topic(topic, brokers, budget, former, changed.partition_changes)])
                await budget.step()
        if delta.cluster is not None and delta.image.topics.by_id:
            moved = brokers_with_other_directories(delta.cluster.image.brokers, brokers)
            await self._update_offline_replicas(snapshot, image, moved, budget)

    @staticmethod
    def _set_brokers(snapshot: MetadataSnapshot, image: MetadataImage) -> None:
        live: dict[int, BrokerInfo] = {}
        fenced: dict[int, BrokerInfo] = {}
        for one in image.cluster.brokers.values():
            (fenced if one.fenced else live)[one.id] = cached_broker(one)
        snapshot.set_brokers(live, fenced)

    @staticmethod
    async def _update_offline_replicas(
        snapshot: MetadataSnapshot, image: MetadataImage, broker_ids: Set[int], budget: CountBudget
    ) -> None:
        """Compare the directories of all replicas on these brokers with the directories that are online now.

        The controller writes no record for a replica outside of the ISR whose directory has failed.
        """
        for topic in image.topics.by_id.values() if broker_ids else ():
            former, changed = snapshot.topics[topic.name], list[int]()
            for index, partition in topic.partitions.items():
                if not broker_ids.isdisjoint(partition.replicas):
                    offline = offline_replicas(partition, image.cluster.brokers)
                    if offline != former.partitions[index].offline_replicas:
                        changed.append(index)
                await budget.step()
            if changed:
                snapshot.put_topics([await cached_topic(topic, image.cluster.brokers, budget, former, changed)])

    @staticmethod
    def _has_ineligible_brokers(before: MetadataImage, image: MetadataImage) -> bool:
        """Return whether a broker that could join ISRs is now fenced, in controlled shutdown or not registered."""
        if before.cluster is image.cluster:
            return False
        now = image.cluster.brokers
        return any(
            _is_eligible(broker) and not ((other := now.get(broker_id)) is not None and _is_eligible(other))
            for broker_id, broker in before.cluster.brokers.items()
        )

    # -- topics ----------------------------------------------------------------------------------------------------

    async def _apply_topics(
        self, delta: TopicsDelta, local: LocalReplicaChanges, image: MetadataImage, removed: RemovedTopics
    ) -> None:
        # Before the roles: coordinators drop the state of a deleted internal topic, and load that of a new one of its
        # name when they begin to lead its partitions.
        self._metadata.notify_removed(removed)
        for topic in delta.deleted.values():
            if topic.name not in image.topics.ids:
                self._dynamic_config.topic_config_changed(topic.name, None)
        await self._change_roles(local.leaders)
        followers = {broker_id for one in local.elected_leaders.values() for broker_id in one.replicas}
        followers.discard(self._broker_id)
        if followers:
            self._replica_manager.on_leaders_elected(followers)
        await self._change_roles(local.followers)

    async def _stop_replicas(self, stopped: Collection[TopicIdPartition]) -> None:
        """Stop and delete replicas of deleted topics, and replicas that were moved to other brokers."""
        partitions = [key.topic_partition for key in stopped if self._has_replica(key)]
        results = await stop_replicas_locally(self._replica_manager, partitions, self._pause_cleaning)
        for partition, error in results.items():
            if error is not ErrorCode.NONE:
                logger.error("%s could not be deleted: %s", partition, error.name)
        self._failed.difference_update(stopped)

    def _has_replica(self, key: TopicIdPartition) -> bool:
        """Return whether the replica of that name on this broker is not one of another topic."""
        partition = self._replica_manager.get_partition(key.topic, key.partition)
        return partition is None or partition.topic_id == key.topic_id

    async def _change_roles(self, partitions: Mapping[TopicIdPartition, PartitionRegistration]) -> None:
        """Make this broker leader or follower of partitions."""
        remaining = iter(partitions.items())
        while some := dict(islice(remaining, ROLES_PER_PREPARATION)):
            await self._change_some_roles(some)

    async def _change_some_roles(self, partitions: Mapping[TopicIdPartition, PartitionRegistration]) -> None:
        manager = self._replica_manager
        online = {key: one for key, one in partitions.items() if key.topic_partition not in self._offline}
        new = [key for key in online if manager.get_partition(key.topic, key.partition) is None]
        await manager.prepare_logs({key.topic_partition: key.topic_id for key in new})
        budget = manager.new_role_budget()
        for key, partition in online.items():
            leads = partition.leader == self._broker_id
            become = manager.become_leader if leads else manager.become_follower
            try:
                error = error_of(become, leader_and_isr_state(key, partition, is_new=self._is_new(partition)))
            except Exception as unexpected:  # noqa: BLE001 - `partition_error` logs it
                # Such as a log that fails now, which is taken offline. The other partitions must change their roles.
                error = manager.partition_error(unexpected, key.topic, key.partition).code
            if error is not ErrorCode.NONE:
                logger.error("%s cannot become %s: %s", key, "leader" if leads else "follower", error.name)
                self._failed.add(key)
            await budget.step()

    def _is_new(self, partition: PartitionRegistration) -> bool:
        """Return whether the replica of this broker has no log in a directory that is offline."""
        directory = partition.directory(self._broker_id)
        if directory == UNASSIGNED_DIRECTORY:
            return True
        # The controller assigns the directory of a new replica if a single directory of the broker is online. Later,
        # the log may have been moved into another directory that was not reported yet.
        is_created_now = partition.partition_epoch == 0 or self._broker_id in partition.adding_replicas
        return is_created_now and directory is not None and self._is_directory_online(directory)

    # -- settings, quotas, ACLs ------------------------------------------------------------------------------------

    async def _apply_settings(self, delta: MetadataDelta, image: MetadataImage) -> None:
        async with self._dynamic_config.changing:
            if delta.configs is not None:
                await self._apply_configs(delta.configs, image)
            if delta.client_quotas is not None:
                await self._apply_quotas(delta.client_quotas, image)

    async def _apply_configs(self, delta: ConfigurationsDelta, image: MetadataImage) -> None:
        """Kafka's DynamicConfigPublisher."""
        budget, is_broker_changed = CountBudget(), False
        for resource in delta.changes:
            settings = image.configs.config(*resource)
            match resource.type:
                case ConfigResourceType.TOPIC:
                    self._dynamic_config.topic_config_changed(resource.name, legal_settings(settings, TOPIC_KEYS))
                case ConfigResourceType.BROKER:
                    is_broker_changed |= resource.name in ("", str(self._broker_id))
                case kind if kind in NAMED_KINDS:
                    named = ConfigResourceType(kind)
                    legal = legal_settings(settings, NAMED_KINDS[named].keys)
                    self._dynamic_config.named_config_changed(named, resource.name, legal)
            await budget.step()
        if is_broker_changed:
            try:
                await self._dynamic_config.load_broker(self._config_store, self._broker_id)
            except ConfigError as error:
                logger.error("the settings of broker %d cannot be applied: %s", self._broker_id, error)

    async def _apply_quotas(self, delta: ClientQuotasDelta, image: MetadataImage) -> None:
        """Kafka's DynamicClientQuotaPublisher."""
        budget = CountBudget()
        for entity in delta.changes:
            host = dict(entity).get(IP)
            if host is not None and not is_ip_address(host):
                # The resolution of a host name may take seconds, for which no change of leaders may wait.
                self._changed_hosts[host] = None
            else:
                await self._quotas.changed(dict(entity), dict(image.client_quotas.entities.get(entity, {})))
            await budget.step()
        if self._changed_hosts and (self._host_quotas is None or self._host_quotas.done()):
            self._host_quotas = asyncio.get_running_loop().create_task(self._apply_host_quotas())

    async def _apply_host_quotas(self) -> None:
        """Apply the present quotas of host names, one after another."""
        while self._changed_hosts:
            host = next(iter(self._changed_hosts))
            del self._changed_hosts[host]
            with IsolatedWork(f"the quota of host {host} could not be applied"):
                quotas = self._published.image.client_quotas.entities.get(((IP, host),), {})
                await self._quotas.changed({IP: host}, dict(quotas))

    async def _apply_acls(self, acls: AclAuthorizer, delta: AclsDelta) -> None:
        """Kafka's AclPublisher."""
        budget, changed = CountBudget(), dict[ResourcePattern, None]()
        for acl_id, binding in delta.changes.items():
            former: AclBinding | None = delta.image.acls.get(acl_id)
            if former is not None:
                self._acl_rules.get(former.pattern, {}).pop(acl_id, None)
                changed[former.pattern] = None
            if binding is not None:
                self._acl_rules.setdefault(binding.pattern, {})[acl_id] = binding.entry
                changed[binding.pattern] = None
            await budget.step()
        for pattern in changed:
            rules = self._acl_rules[pattern]
            acls.replace(pattern, frozenset(rules.values()))
            if not rules:
                del self._acl_rules[pattern]
            await budget.step(1 + len(rules))


def _is_eligible(broker: BrokerRegistration) -> bool:
    """Return whether the controller accepts a broker in ISRs."""
    return not broker.fenced and not broker.in_controlled_shutdown


def is_ip_address(host: str) -> bool:
    """Return whether a host is an address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class FirstImage:
    """The publisher of a start: it waits until the replica of the metadata log has caught up with the quorum."""

    name = "FirstImage"

    def __init__(self, published: PublishedImage) -> None:
        self.has_published = asyncio.Event()
        self._published = published

    async def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Keep the first image."""
        if self._published.image is EMPTY_IMAGE:
            self._published.image = image
            self.has_published.set()
