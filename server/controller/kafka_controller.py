"""Kafka's KafkaController: decides which topics exist and which replica leads each partition, and informs the brokers.

A single broker is a cluster of one: it claims `/controller`, raises the controller epoch, and takes its own partitions
from OfflinePartition to OnlinePartition by the same elections as in a cluster. In a cluster the `ControllerElector`
starts and ends the terms of this broker as controller, and calls `process_…` methods for changes in the store.

Changes are made one after another: a method holds `_change_lock` from its first look at the context to its last request
to a broker, over many iterations of the event loop. Each change is written to the store first, then sent to the
replicas, then published in the metadata caches, so that clients see only partitions that are served.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Container,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..config.broker_config import BrokerConfig
from ..config.dynamic_config import DynamicConfig
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import (
    STORE_FAILED,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StoreError,
    StoreUnavailableError,
)
from ..metadata.metadata_stores import MetadataStores
from ..metadata.topic_store import PARTITION_STATES_PER_READ
from ..metadata.znodes import NO_LEADER, BrokerInfo, LeaderIsrAndControllerEpoch, TopicRegistration
from ..quotas.request_quota_usage import ControllerMutationQuota, unbounded_controller_mutation_quota
from ..replication.inter_broker_versions import highest_version
from ..replication.leader_and_isr import IsrChange
from ..runtime.loop_sharing import CountBudget, next_turn
from ..runtime.scheduler import BackgroundWork
from .admin_manager import (
    PARTITIONS_PER_CHANGE,
    PARTITIONS_PER_WRITE,
    AdminManager,
    CreatedTopic,
    PartitionsCreation,
    TopicCreation,
)
from .adoption import FoundReplica, adopt_partitions, no_kraft_topics
from .auto_topic_creation_manager import AutoTopicCreationManager
from .automatic_topics import internal_topic_config
from .control_requests import TOPIC_IDS_VERSION
from .controller_channel_manager import ControllerChannel
from .controller_client import ControllerClient
from .controller_context import ControllerContext, ReplicaAssignment
from .controller_elector import ControllerElector
from .controller_request_handler import ControllerRequestHandler
from .partition_state_machine import PartitionStateMachine
from .remote_controller import RemoteController
from .topic_deletion_manager import DelayedDeleteTopics, TopicDeletionManager
from .update_metadata_sender import UpdateMetadataSender

if TYPE_CHECKING:
    from .kraft_adoption import KraftTopic

logger = room_logger("controller")

T = TypeVar("T")

ANY_BROKER_EPOCH = -1
"""The broker epoch in an AlterPartition request if the leader does not state the epoch of an in-sync replica."""
RECOVERED, RECOVERING = 0, 1
"""Kafka's LeaderRecoveryState."""
CHANGES_PER_TURN = 50
"""Requested changes of topics and partitions that are validated."""
DELETION_MS = 10_000
"""Timeout of a topic deletion whose request has none."""
PROPAGATION_MS = 1_000
"""How long a creation waits for the other brokers to have the new topics in their metadata, so that the client may send
its next request to any broker."""
DELETION_CONTINUES = "Not every replica could be deleted yet; the deletion continues."
TIMED_OUT = "The request timed out before the change was complete."
STORE_CHANGED = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""The store differs from this controller's context."""


class KafkaController(ControllerClient):
    """Kafka's KafkaController. It runs on the loop thread; `BrokerServer` owns it."""

    def __init__(
        self,
        *,
        broker_id: int,
        stores: MetadataStores,
        metadata: MetadataCache,
        channel: ControllerChannel,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        chance: random.Random,
        remote_controller: RemoteController | None = None,
        request_handler: ControllerRequestHandler | None = None,
    ) -> None:
        """Create the controller of a single broker, or of a cluster's broker with the last two parameters.

        `remote_controller` sends to the active controller on another broker, and `request_handler` carries out this
        broker's own part of the controller's requests.
        """
        self._broker_id = broker_id
        self._remote_controller = remote_controller
        self._request_handler = request_handler
        self._cluster = stores.cluster
        self._store = stores.topics
        self._metadata = metadata
        self._channel = channel
        self._config = config
        self._dynamic_config = dynamic_config
        is_alone, protocol = remote_controller is None, config.inter_broker_protocol_version
        sends_topic_ids = is_alone or highest_version(ApiKey.LEADER_AND_ISR, protocol) >= TOPIC_IDS_VERSION
        self._context = context = ControllerContext(sends_topic_ids=sends_topic_ids)
        publisher = self._update_metadata_sender = UpdateMetadataSender(context, metadata, channel)
        self._partitions = PartitionStateMachine(
            context,
            stores.topics,
            channel,
            publisher,
            may_elect_uncleanly=self._may_elect_uncleanly,
            partitions_at_once=None if is_alone else PARTITIONS_PER_WRITE,
        )
        self._admin = AdminManager(
            context,
            stores.topics,
            self._partitions,
            metadata=metadata,
            config=config,
            dynamic_config=dynamic_config,
            chance=chance,
            partitions_per_change=PARTITIONS_PER_CHANGE if is_alone else PARTITIONS_PER_WRITE,
        )
        self._topic_deletion = TopicDeletionManager(context, stores.topics, channel, publisher, dynamic_config)
        self._delayed_delete_topics = DelayedDeleteTopics(context, stores.topics, self._topic_deletion)
        self._elector = None if is_alone else ControllerElector(broker_id, self, stores, metadata)
        self._term: ControllerTerm | None = None
        self._last_epoch = 0
        self._change_lock = asyncio.Lock()
        """Held for the whole of a change, so that no other change sees or writes a part of it."""
        self._events: set[asyncio.Task[None]] = set()
        self._offline_reports = Counter[int]()
        """The reports of offline replicas that wait for their turn, by broker."""
        self._background = BackgroundWork()
        self.auto_topic_creation_manager = AutoTopicCreationManager(self.create_topics_automatically)
        if request_handler is not None:
            request_handler.on_controller_epoch_change(self.on_newer_controller_epoch)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None

    @property
    def controller_epoch(self) -> int:
        """Epoch of this broker's term as controller. Raises KafkaError NOT_CONTROLLER."""
        return self._active_term().epoch

    # -- terms -----------------------------------------------------------------------------------------------------

    async def startup(self) -> None:
        """Take part in the elections of a cluster. When this returns a controller is elected.

        The broker must be registered.
        """
        assert self._elector is not None, "a single broker has no elections"
        await self._elector.start()

    async def start_alone(
        self,
        found: Mapping[TopicPartition, FoundReplica] | None = None,
        kraft_topics: Callable[[Collection[UUID]], Awaitable[Mapping[UUID, KraftTopic]]] = no_kraft_topics,
    ) -> None:
        """Become the controller of a cluster of one and bring every partition online.

        `found` are the partitions in the log directories: partitions that are missing in the store are adopted.
        `kraft_topics` returns topics of a KRaft quorum whose log is there, too. The broker must be registered. Raises
        KafkaError NOT_CONTROLLER if another broker is the controller.
        """
        async with self._change_lock:
            term = await self._cluster.claim_controller(self._broker_id)
            if term is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker is the controller of this metadata store.")
            self._begin_term(term)
            brokers = await self._cluster.brokers()
            self._metadata.set_brokers(brokers)
            self._metadata.controller_id = self._broker_id
            self._context.put_brokers(brokers)
            await self._load_topics(term)
            adopted = await adopt_partitions(
                found or {},
                self._context,
                self._store,
                term,
                self._broker_id,
                partial(internal_topic_config, self._config),
                kraft_topics,
            )
            for name, config in adopted.items():
                self._dynamic_config.topic_config_changed(name, config)
            await self._topic_deletion.process_delete_topic_nodes(term)
            await self._partitions.elect_leader_for_partitions(self._context.partitions(), term)

    async def on_controller_failover(self, term: ControllerTerm) -> None:
        """Begin a term: continue the work of the previous controller from the store alone.

        The order is Kafka's: brokers receive the live brokers first, then topics, then replicas receive LeaderAndIsr,
        then unfinished reassignments and deletions continue. Raises StoreError, KafkaError NOT_CONTROLLER.
        """
        # Not `_change`, which requires an active term and resigns after an error: the elector, which has called this,
        # ends a term that could not begin and elects again.
        async with self._change_lock:
            logger.info("broker %d is controller in epoch %d", self._broker_id, term.epoch)
            self._begin_term(term)
            self._context.clear()
            self._channel.startup(term.epoch, self)
            self._metadata.controller_id = self._broker_id
            brokers = await self._cluster.brokers()
            self._context.put_brokers(brokers)
            self._channel.update_brokers(brokers)
            # Before the topics: a client that receives a leader needs its endpoint.
            self._update_metadata_sender.publish_brokers()
            await self._load_topics(term)
            await self._load_topic_configs(
                [topic.name for topic in self._context.topics if topic.name not in self._metadata]
            )
            topics_to_be_deleted = await self._store.topics_to_delete()
            self._context.topics_to_be_deleted.update(
                name for name in topics_to_be_deleted if self._context.topic(name) is not None
            )
            self._context.restore_online_partitions()
            # Before LeaderAndIsr: in its former epoch a restarted leader could append other records at offsets that
            # its followers have, and leader epochs would not show that the logs differ.
            await self._partitions.elect_after_leader_restart(self._context.partitions_with_restarted_leader(), term)
            await self._update_metadata_sender.publish_all_locally()
            await self._update_metadata_sender.publish_all(self._channel.others)
            every = list(self._context.partitions())
            # The former controller may have failed between the write of a state and its request.
            await self._partitions.send_leader_and_isr(every, term, is_new=False)
            # As in Kafka, where the replica state machine starts before the partition state machine.
            await self._partitions.trigger_online_partition_state_change(every, term)
            assigned = {broker for partition in every for broker in self._context.replicas(partition)}
            dead = assigned - self._context.brokers.keys()
            # After the elections: only an ISR with a live leader is reduced.
            await self._partitions.remove_replicas_from_isr(self._context.partitions_on(dead), dead, term)
            await self._resume_reassignments(self._context.partitions_being_reassigned(), term)
            await self._topic_deletion.enqueue_topics_for_deletion(list(self._context.topics_to_be_deleted), term)

    def _begin_term(self, term: ControllerTerm) -> None:
        assert term.epoch > self._last_epoch, f"controller epoch {term.epoch} follows {self._last_epoch}"
        self._term, self._last_epoch = term, term.epoch

    def on_controller_resignation(self) -> None:
        """End the term: send no more requests. The store refuses writes that are in progress. No-op without a term."""
        if self._term is not None:
            logger.info("broker %d is no longer the controller", self._broker_id)
            self._term = None
            self._channel.shutdown()
            self._delayed_delete_topics.check()

    def resign(self) -> None:
        """End the term and elect again: there is a newer controller, or the store differs from the context."""
        if self._elector is not None and self._term is not None:
            self._elector.resign()

    def on_newer_controller_epoch(self, epoch: int) -> None:
        """Resign if a controller with this epoch has sent a request and it is newer than this broker's term."""
        if self._term is not None and self._term.epoch < epoch:
            self.resign()

    def _active_term(self) -> ControllerTerm:
        if self._term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
        return self._term

    async def shutdown(self) -> None:
        """End the term and leave the elections. The node `/controller` is deleted with the session."""
        if self._elector is not None:
            await self._elector.close()

    async def close(self) -> None:
        """Stop the changes whose requests have been answered with a timeout."""
        await self._background.close()
        await self.auto_topic_creation_manager.close()

    # -- one change at a time --------------------------------------------------------------------------------------

    async def _run_with_timeout(
        self, name: str, timeout_ms: float | None, change: Callable[[float | None], Coroutine[Any, Any, T]]
    ) -> T:
        """Return the result of a change. It receives the deadline, on the loop's clock, by which it has to begin.

        After `timeout_ms` this raises KafkaError REQUEST_TIMED_OUT and the change continues. A change that has not
        begun by then, because another change is in progress, is dropped, as in Kafka's QuorumController. None: no
        timeout. Raises KafkaError NOT_CONTROLLER immediately if this broker is not the controller.
        """
        self._active_term()
        if timeout_ms is None:
            return await change(None)
        deadline = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
        try:
            return await self._background.wait_for(name, change(deadline), timeout_ms)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT) from None

    @asynccontextmanager
    async def _change(self, deadline: float | None = None) -> AsyncIterator[ControllerTerm]:
        """Exclude other changes until the end of the context.

        Raises KafkaError: NOT_CONTROLLER, also where the store differs from the context, since clients retry after it;
        KAFKA_STORAGE_ERROR if the store could not be written; REQUEST_TIMED_OUT if the deadline passes before the
        change can begin.
        """
        try:
            # An unlocked lock is taken without a pause, so a deadline that has passed stops only a change that waits.
            async with asyncio.timeout_at(deadline):
                await self._change_lock.acquire()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT) from None
        try:
            term = self._active_term()
            try:
                yield term
            except SessionExpiredError as error:
                self.resign()
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "The session of this controller has expired.") from error
            except StoreUnavailableError as error:
                self.resign()
                raise error.as_answer() from error
            except STORE_CHANGED as error:
                if self._elector is None:
                    raise  # a single broker has no other controller to resign to
                logger.warning("a change failed: the metadata store differs from the controller's state: %r", error)
                self.resign()
                text = "The metadata that this controller was about to change has been changed in the store."
                raise KafkaError(ErrorCode.NOT_CONTROLLER, text) from error
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    self.resign()
                raise
        finally:
            self._change_lock.release()

    def _run_in_background(self, event: Coroutine[Any, Any, None]) -> None:
        """Run an event without a waiting caller. An unexpected error ends the term."""

        async def run() -> None:
            try:
                await event
            except (KafkaError, StoreError) as error:
                logger.warning("an event of the controller was not processed: %s", error)
            except Exception:
                logger.exception("an event of the controller failed")
                self.resign()

        task = asyncio.get_running_loop().create_task(run())
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    def _resign_if_store_failed(self, results: Mapping[str, object]) -> None:
        """Resign after a write whose outcome is unknown."""
        if any(isinstance(one, KafkaError) and one.message == STORE_FAILED for one in results.values()):
            self.resign()

    # -- context ---------------------------------------------------------------------------------------------------

    async def _load_topics(self, term: ControllerTerm, topic_names: Sequence[str] | None = None) -> None:
        """Load all topics of the store, or these, and write missing topic ids and partition states.

        Unreadable nodes are not overwritten: an unreadable topic only reserves its name, and a partition without a
        readable state has no leader, as in Kafka. Kafka's initializeControllerContext.
        """
        topics, unreadable = await self._store.find_topics(topic_names)
        self._context.unreadable.difference_update(topic_names or ())
        self._context.unreadable |= unreadable
        names = (TopicPartition(topic.name, index) for topic in topics for index in topic.assignment)
        written: dict[TopicPartition, LeaderIsrAndControllerEpoch | None] = {}
        while some := list(islice(names, PARTITION_STATES_PER_READ)):
            found = await self._store.find_states(some)
            written.update(found.states)
            written.update(dict.fromkeys(found.unreadable))
            await next_turn()
        budget = CountBudget()
        for topic in topics:
            await self._load_topic(topic, written, term)
            await budget.step(len(topic.assignment))

    async def _load_topic(
        self,
        topic: TopicRegistration,
        written: Mapping[TopicPartition, LeaderIsrAndControllerEpoch | None],
        term: ControllerTerm,
    ) -> None:
        if not topic.topic_id.int:
            # Written by Kafka before 2.8, which had no topic ids.
            topic = replace(topic, topic_id=self._store.new_topic_id())
            await self._store.set_topic(topic, term)
        names = {index: TopicPartition(topic.name, index) for index in topic.assignment}
        unwritten = {
            index: LeaderIsrAndControllerEpoch(NO_LEADER, -1, replicas, term.epoch)
            for index, replicas in topic.assignment.items()
            if names[index] not in written
        }
        if unwritten:
            await self._store.add_partitions(topic, unwritten, term)
        self._context.put_topic(topic)
        for index, name in names.items():
            state = written[name] if name in written else unwritten[index]
            if state is not None:
                self._context.restore_leadership_info(name, state)

    async def _load_topic_configs(self, topics: Sequence[str]) -> None:
        """Load the settings of topics that are new on this broker; a single broker has them all."""
        if self._request_handler is not None:
            await self._request_handler.load_topic_configs(topics)

    # -- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self,
        creations: Sequence[TopicCreation],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create the topics that are valid and within the quota, each with its leaders elected when this returns.

        With `timeout_ms` this waits, for a part of it, until other brokers have the topics in their metadata. An error
        of one topic is its result. Raises KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT (the creation continues), or
        POLICY_VIOLATION if the topics have too many partitions together.
        """
        self._admin.check_total_partitions(creations)
        began = asyncio.get_running_loop().time()
        creation = partial(self._create_topics, creations, validate_only=validate_only, mutation_quota=mutation_quota)
        results = await self._run_with_timeout("the creation of topics", timeout_ms, creation)
        if timeout_ms is not None and any(isinstance(one, CreatedTopic) for one in results.values()):
            left_ms = timeout_ms - (asyncio.get_running_loop().time() - began) * 1000
            if left_ms > 0 and not validate_only:
                await self._channel.wait_for_responses(min(left_ms, PROPAGATION_MS) / 1000)
        return results

    async def _create_topics(
        self,
        creations: Sequence[TopicCreation],
        deadline: float | None,
        *,
        validate_only: bool,
        mutation_quota: ControllerMutationQuota,
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics in several changes, so that the failure of a broker is handled between two of them."""
        results: dict[str, CreatedTopic | KafkaError] = {}
        for some in self._admin.portions(creations):
            try:
                async with self._change(deadline) as term:
                    results |= await self._admin.create_topics(
                        some, term, validate_only=validate_only, mutation_quota=mutation_quota, created=results
                    )
                    self._resign_if_store_failed(results)
            except KafkaError as error:
                if not results:
                    raise
                results |= dict.fromkeys((creation.name for creation in some), error.as_result())
            deadline = None  # a creation that has begun is completed
        return results

    async def create_topics_automatically(
        self,
        creations: Sequence[TopicCreation],
        *,
        timeout_ms: float | None = None,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> dict[str, KafkaError | None]:
        """Create topics that the broker itself requires, here or on the controller's broker; None for each success.

        Raises KafkaError, REQUEST_TIMED_OUT among others (the creation continues).
        """
        if self._remote_controller is not None and not self.is_active:
            # The controller's broker does not know the client.
            charged, results = self._charge(creations, mutation_quota)
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    return results | (await self._remote_controller.create_topics(charged) if charged else {})
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT) from None
        creation = partial(self._create_topics, creations, validate_only=False, mutation_quota=mutation_quota)
        created = await self._run_with_timeout("the automatic creation of topics", timeout_ms, creation)
        return {name: result if isinstance(result, KafkaError) else None for name, result in created.items()}

    def _charge(
        self, creations: Iterable[TopicCreation], mutation_quota: ControllerMutationQuota
    ) -> tuple[list[TopicCreation], dict[str, KafkaError | None]]:
        """Return the creations within the quota, and the errors of the others."""
        charged: list[TopicCreation] = []
        errors: dict[str, KafkaError | None] = {}
        for creation in creations:
            try:
                mutation_quota(self._admin.partition_count(creation))
            except KafkaError as error:
                errors[creation.name] = error.as_result()
            else:
                charged.append(creation)
        return charged, errors

    async def create_partitions(
        self,
        creations: Sequence[PartitionsCreation],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> dict[str, KafkaError | None]:
        """Add partitions to topics, each with its leader elected when this returns; None for each success.

        Raises KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT (the creation continues).
        """
        creation = partial(
            self._create_partitions, creations, validate_only=validate_only, mutation_quota=mutation_quota
        )
        return await self._run_with_timeout("the creation of partitions", timeout_ms, creation)

    async def _create_partitions(
        self,
        creations: Sequence[PartitionsCreation],
        deadline: float | None,
        *,
        validate_only: bool,
        mutation_quota: ControllerMutationQuota,
    ) -> dict[str, KafkaError | None]:
        async with self._change(deadline) as term:
            results: dict[str, KafkaError | None] = {}
            budget = CountBudget(CHANGES_PER_TURN)
            for creation in creations:
                await budget.step()
                try:
                    await self._admin.create_partitions(creation, term, None if validate_only else mutation_quota)
                except KafkaError as error:
                    results[creation.name] = error.as_result()
                except StoreUnavailableError as error:
                    logger.error("partitions of %s could not be created: %s", creation.name, error)
                    results[creation.name] = error.as_answer()
                else:
                    results[creation.name] = None
            self._resign_if_store_failed(results)
            return results

    async def delete_topics(
        self,
        names: Iterable[str],
        *,
        topic_ids: Mapping[str, UUID] = MappingProxyType({}),
        timeout_ms: float = DELETION_MS,
        mutation_quota: ControllerMutationQuota = unbounded_controller_mutation_quota,
    ) -> dict[str, KafkaError | None]:
        """Delete topics: brokers stop serving them, and the replicas on all live brokers are deleted.

        A topic in `topic_ids` is deleted only if it has this id: a topic of the same name may have been created since
        the client read the id.

        The result of a topic is None where its directories are renamed on all live brokers, and REQUEST_TIMED_OUT where
        some are not after `timeout_ms`. Raises KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT if the deletion has not
        begun after `timeout_ms`. The deletion continues in either case.
        """
        began = asyncio.get_running_loop().time()
        deletion = partial(self._begin_deletions, names, topic_ids, mutation_quota)
        results, term = await self._run_with_timeout("the deletion of topics", timeout_ms, deletion)
        begun = [name for name, error in results.items() if error is None]
        left_ms = timeout_ms - (asyncio.get_running_loop().time() - began) * 1000
        for name in await self._delayed_delete_topics.wait_until_deleted(begun, left_ms, lambda: self._term is term):
            # The node in /admin/delete_topics is kept: the next controller, or the next start, finishes the deletion.
            results[name] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, DELETION_CONTINUES)
        return results

    async def _begin_deletions(
        self,
        names: Iterable[str],
        topic_ids: Mapping[str, UUID],
        mutation_quota: ControllerMutationQuota,
        deadline: float | None,
    ) -> tuple[dict[str, KafkaError | None], ControllerTerm]:
        """Begin to delete topics. Return the results and the term in which the deletion began."""
        async with self._change(deadline) as term:
            results: dict[str, KafkaError | None] = {}
            present = []
            budget = CountBudget(CHANGES_PER_TURN)
            for name in names:
                await budget.step()
                topic = self._context.topic(name)
                if name in topic_ids and (topic is None or topic.topic_id != topic_ids[name]):
                    text = "This server does not host this topic ID."
                    results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, text)
                elif topic is None:
                    text = "This server does not host this topic-partition."
                    results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                else:
                    try:
                        mutation_quota(len(self._context.partitions_of(name)))
                        present.append(name)
                    except KafkaError as error:
                        results[name] = error.as_result()
            try:
                await self._store.mark_for_deletion(present, term)
                await self._topic_deletion.enqueue_topics_for_deletion(present, term)
            except StoreUnavailableError as error:
                logger.error("topics could not be deleted: %s", error)
                results.update(dict.fromkeys(present, error.as_answer()))
                self._resign_if_store_failed(results)
            else:
                results.update(dict.fromkeys(present))
            return results, term

    def unknown_topics(self, names: Iterable[str]) -> list[str]:
        """Return the topics of the store that are not in the context: new topics and topics that cannot be read."""
        return [name for name in names if self._context.topic(name) is None]

    async def process_topic_change(self, names: Collection[str]) -> None:
        """Load topics that are new in the store; `names` are all topics there. Raises StoreError, KafkaError.

        Apache Kafka's brokers write automatically created topics into the store themselves.
        """
        async with self._change() as term:
            self._context.unreadable.intersection_update(names)
            new = self.unknown_topics(names)
            if new:
                await self._load_topics(term, new)
                await self._load_topic_configs(new)
                found = [name for name in new if self._context.topic(name) is not None]
                partitions = [partition for name in found for partition in self._context.partitions_of(name)]
                await self._partitions.elect_leader_for_partitions(partitions, term)
            await self._process_delete_topic_nodes(term)

    async def process_topic_deletion(self) -> None:
        """Delete the topics in `/admin/delete_topics`, where older tools write. Raises StoreError, KafkaError."""
        async with self._change() as term:
            await self._process_delete_topic_nodes(term)

    async def _process_delete_topic_nodes(self, term: ControllerTerm) -> None:
        may_delete = self._config.delete_topic_enable
        await self._topic_deletion.process_delete_topic_nodes(term, may_delete=may_delete)
        self._delayed_delete_topics.check()

    # -- elections -------------------------------------------------------------------------------------------------

    def _may_elect_uncleanly(self, topic: str) -> bool:
        """Return whether a replica outside of the ISR may become leader, which loses records.

        For an unknown name this is the default of topics without a setting of their own.
        """
        own = self._dynamic_config.topic_config(topic).get("unclean.leader.election.enable")
        return self._config.unclean_leader_election_enable if own is None else own == "true"

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, allow_unclean: bool, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect preferred leaders, or with `allow_unclean` any live replica where there is no leader.

        None stands for all partitions; partitions that need no election are then left out of the result.
        Raises KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT (the elections continue).
        """
        elections = partial(self._elect_leaders, partitions, allow_unclean=allow_unclean)
        return await self._run_with_timeout("the election of leaders", timeout_ms, elections)

    async def _elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, deadline: float | None, *, allow_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        async with self._change(deadline) as term:
            wanted = self._context.partitions() if partitions is None else partitions
            results = await self._partitions.elect_leaders(wanted, term, allow_unclean=allow_unclean)
        self._resume_reassignments_later(results)
        if partitions is None:
            unneeded = ErrorCode.ELECTION_NOT_NEEDED
            results = {p: error for p, error in results.items() if error is None or error.code is not unneeded}
        return results

    async def check_and_trigger_auto_leader_rebalance(self) -> None:
        """Elect the preferred leaders of brokers above `leader.imbalance.per.broker.percentage`."""
        if not self.is_active or not self._config.auto_leader_rebalance_enable:
            return
        async with self._change() as term:
            wanted = self._imbalanced_partitions()
            if wanted:
                logger.info("%d partitions are moved back to their preferred leaders", len(wanted))
                await self._partitions.elect_leaders(wanted, term, allow_unclean=False)

    def _imbalanced_partitions(self) -> list[TopicPartition]:
        """Return partitions that the preferred leader can lead, of brokers with too many of theirs led elsewhere."""
        context, percentage = self._context, self._config.leader_imbalance_per_broker_percentage
        moving = set(context.partitions_being_reassigned())
        preferred: dict[int, list[TopicPartition]] = {}
        for partition in context.partitions():
            if not context.is_queued_for_deletion(partition):
                preferred.setdefault(context.replicas(partition)[0], []).append(partition)
        wanted: list[TopicPartition] = []
        for broker, partitions in preferred.items():
            states = {partition: context.leadership_info(partition) for partition in partitions}
            led_elsewhere = [one for one, state in states.items() if state is None or state.leader != broker]
            if len(led_elsewhere) * 100 > percentage * len(partitions):
                wanted += [
                    one
                    for one in led_elsewhere
                    if one not in moving
                    and (state := states[one]) is not None
                    and broker in state.isr
                    and broker in context.live_replicas(one)
                ]
        return wanted

    def on_topic_config_changed(self, topic: str | None) -> None:
        """Elect leaders outside of the ISR where a changed setting of one topic, or of all, allows it."""
        if self.is_active and self._may_elect_uncleanly(topic or ""):
            self._run_in_background(self._process_unclean_leader_election_enable(topic))

    async def _process_unclean_leader_election_enable(self, topic: str | None) -> None:
        async with self._change() as term:
            partitions = list(self._context.partitions()) if topic is None else self._context.partitions_of(topic)
            await self._partitions.trigger_online_partition_state_change(partitions, term)
        self._resume_reassignments_later(partitions)

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def process_broker_change(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Follow the set of live brokers: elect leaders in place of dead brokers, and inform new ones.

        A broker with another epoch than before has restarted. Raises StoreError, KafkaError NOT_CONTROLLER.
        """
        async with self._change() as term:
            former = self._context.brokers
            same = {
                broker_id: broker
                for broker_id, broker in brokers.items()
                if broker_id in former and former[broker_id].broker_epoch == broker.broker_epoch
            }
            dead, new = former.keys() - same.keys(), brokers.keys() - same.keys()
            if dead or new:
                logger.info(
                    "new brokers: %s, dead brokers: %s, live brokers: %s", sorted(new), sorted(dead), sorted(brokers)
                )
            if dead:
                self._put_brokers(same)
                await self._on_broker_failure(dead, term)
            self._put_brokers(brokers)
            if new:
                await self._on_broker_startup(new, term)
            # The in-sync replicas after an unclean election may complete a reassignment.
            await self._resume_reassignments(self._context.partitions_being_reassigned(), term)
            self._delayed_delete_topics.check()

    def _put_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        if brokers != self._context.brokers:
            self._context.put_brokers(brokers)
            self._channel.update_brokers(brokers)
            self._update_metadata_sender.publish_brokers()

    async def _on_broker_failure(self, dead: Collection[int], term: ControllerTerm) -> None:
        for broker in dead:
            self._topic_deletion.on_broker_failure(broker)
        partitions = self._context.partitions_on(dead)
        await self._partitions.trigger_online_partition_state_change(partitions, term)
        await self._partitions.remove_replicas_from_isr(partitions, dead, term)

    async def _on_broker_startup(self, new: Collection[int], term: ControllerTerm) -> None:
        for broker in new:
            self._context.broker_restarted(broker)
        await self._update_metadata_sender.publish_all(new)
        partitions = self._context.partitions_on(new)
        await self._partitions.send_leader_and_isr(partitions, term, is_new=False, brokers=new)
        await self._partitions.trigger_online_partition_state_change(partitions, term)
        await self._topic_deletion.resume_deletions(list(self._context.topics_to_be_deleted), term)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaders away from a broker that is about to stop; return the partitions that it still leads.

        Raises KafkaError NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        async with self._change() as term:
            broker = self._context.brokers.get(broker_id)
            if broker is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not registered.")
            if -1 < broker_epoch < broker.broker_epoch:
                text = f"Broker epoch {broker_epoch} is older than the epoch of broker {broker_id}."
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
            self._context.begin_shutdown(broker_id)
            concerned = [
                partition
                for partition in self._context.partitions_on([broker_id])
                if len(self._context.replicas(partition)) > 1 and not self._context.is_queued_for_deletion(partition)
            ]
            await self._partitions.elect_for_controlled_shutdown(concerned, broker_id, term)
            stopping, remaining = {}, []
            for partition in concerned:
                state = self._context.leadership_info(partition)
                if state is not None and state.leader == broker_id:
                    remaining.append(partition)
                elif state is not None:
                    stopping[partition] = state.leader_epoch
            if stopping:
                await self._channel.stop_replicas(broker_id, stopping, delete=False)
            logger.info("controlled shutdown of broker %d: it still leads %d partitions", broker_id, len(remaining))
            return remaining

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the epoch of a live broker. Raises KafkaError NOT_CONTROLLER."""
        self._active_term()
        broker = self._context.brokers.get(broker_id)
        return None if broker is None else broker.broker_epoch

    # -- offline replicas ------------------------------------------------------------------------------------------

    async def on_replicas_become_offline(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Elect other leaders for partitions whose log directory on a live broker has failed.

        If this broker is not the controller it writes a log-directory event for the controller.
        """
        if self._term is None:
            if self._remote_controller is not None:
                await self._remote_controller.write_log_dir_event(broker_id)
            return
        async with self._change() as term:
            led: list[TopicPartition] = []
            followed: list[TopicPartition] = []
            for partition in partitions:
                if partition in self._context:
                    self._context.replica_failed(partition, broker_id)
                    state = self._context.leadership_info(partition)
                    (led if state is not None and state.leader == broker_id else followed).append(partition)
            await self._partitions.elect_leader_for_partitions(led, term)
            await self._partitions.remove_replicas_from_isr(followed, {broker_id}, term)
            await self._resume_reassignments(self._context.partitions_being_reassigned(), term)

    def on_replicas_offline(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Schedule `on_replicas_become_offline`: this broker, or a response of another one, has reported it."""
        self._offline_reports[broker_id] += 1

        async def process() -> None:
            try:
                await self.on_replicas_become_offline(broker_id, partitions)
            finally:
                self._offline_reports[broker_id] -= 1

        self._run_in_background(process())

    def on_replicas_created(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Schedule the return of replicas that another broker serves now and that count as offline.

        An earlier failure of the same replica may still wait for its turn: the replica was retried in between.
        """
        if self._offline_reports[broker_id] or self._context.failed_replicas(broker_id):
            self._run_in_background(self._process_created_replicas(broker_id, list(partitions)))

    async def _process_created_replicas(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        async with self._change() as term:
            recovered = self._context.replicas_recovered(partitions, broker_id)
            if recovered:
                await self._partitions.send_leader_and_isr(recovered, term, is_new=False, brokers={broker_id})
                await self._partitions.trigger_online_partition_state_change(recovered, term)
                await self._resume_after_retry(recovered, term)

    def on_replicas_stopped(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """Schedule the handling of another broker's response to the deletion of replicas."""
        self._run_in_background(self._process_stop_replica_response(broker_id, results))

    async def _process_stop_replica_response(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        async with self._change() as term:
            self._topic_deletion.process_stop_replica_response(broker_id, results)
            await self._topic_deletion.complete_deletions(term)
            self._delayed_delete_topics.check()

    async def process_log_dir_event_notification(self, brokers: Iterable[int]) -> None:
        """Retry each replica of brokers with a log directory that has failed, or may have free space again."""
        async with self._change() as term:
            failed = self._context.retry_failed(reporting := set(brokers))
            partitions = self._context.partitions_on(reporting)
            await self._partitions.send_leader_and_isr(partitions, term, is_new=False, brokers=reporting)
            await self._partitions.trigger_online_partition_state_change(failed, term)
            await self._resume_after_retry(failed, term)

    async def retry_replicas(self, broker_id: int, lost: Container[TopicPartition]) -> None:
        """Retry replicas that a live broker could not create, for lack of space, or delete; not the `lost` ones.

        Does nothing if this broker is not the controller.
        """
        if self._term is None:
            return
        async with self._change() as term:
            failed = self._context.retry_failed({broker_id}, lost)
            # Where another broker leads it remains the leader, in the same epoch.
            await self._partitions.send_leader_and_isr(failed, term, is_new=False, brokers={broker_id})
            await self._partitions.trigger_online_partition_state_change(failed, term)
            await self._resume_after_retry(failed, term)

    async def _resume_after_retry(self, retried: Sequence[TopicPartition], term: ControllerTerm) -> None:
        if retried:
            self._resume_reassignments_later(retried)
            await self._topic_deletion.resume_deletions(list(self._context.topics_to_be_deleted), term)
            self._delayed_delete_topics.check()

    # -- in-sync replicas ------------------------------------------------------------------------------------------

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrChange]
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch | ErrorCode]:
        """Change the ISR of partitions as their leader proposes (AlterPartition; KIP-497, 704, 841, 903).

        Return the state of each partition afterwards, or the reason why a proposal was refused. Only the controller
        writes the ISR, so that no leader is elected from an ISR that has changed since. A broker that is dead, is about
        to stop, or has restarted since its last fetch from the leader, does not join the ISR.
        Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH.
        """
        async with self._change() as term:
            if self.broker_epoch(broker_id) != broker_epoch:
                raise KafkaError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"The epoch of broker {broker_id} is stale, or the broker is not alive.",
                )
            wanted = {proposal.topic_partition: proposal for proposal in proposals}
            refused: dict[TopicPartition, ErrorCode] = {}

            def decide(
                partition: TopicPartition, state: LeaderIsrAndControllerEpoch
            ) -> LeaderIsrAndControllerEpoch | None:
                # An earlier decision, from a state that has since been read again, does not count.
                refused.pop(partition, None)
                try:
                    return self._altered_state(broker_id, wanted[partition], state)
                except KafkaError as error:
                    refused[partition] = error.code
                    return None

            await self._partitions.update_states(wanted, decide, term)
            results: dict[TopicPartition, LeaderIsrAndControllerEpoch | ErrorCode] = {}
            budget = CountBudget()
            for partition in wanted:
                present = self._context.leadership_info(partition)
                if present is None or self._context.is_queued_for_deletion(partition):
                    results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    results[partition] = refused.get(partition, present)
                await budget.step()
            changed = [
                partition for partition, result in results.items() if isinstance(result, LeaderIsrAndControllerEpoch)
            ]
            await self._update_metadata_sender.publish_partitions(changed)
        self._resume_reassignments_later(changed)
        return results

    def _altered_state(
        self, broker_id: int, wanted: IsrChange, state: LeaderIsrAndControllerEpoch
    ) -> LeaderIsrAndControllerEpoch | None:
        """Return the proposed state; None if it is the present one. Raises KafkaError."""
        if wanted.leader_epoch != state.leader_epoch:
            # A leader with a newer epoch than its controller has received it from the next controller.
            is_old = wanted.leader_epoch < state.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NOT_CONTROLLER)
        if broker_id != state.leader:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if (wanted.isr, wanted.leader_recovery_state) == (state.isr, state.leader_recovery_state):
            return None
        if wanted.partition_epoch != state.partition_epoch:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
        replicas = self._context.replicas(wanted.topic_partition)
        is_malformed = len(set(wanted.isr)) != len(wanted.isr) or not set(wanted.isr) <= set(replicas)
        if is_malformed or state.leader not in wanted.isr:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if wanted.leader_recovery_state == RECOVERING and (
            len(wanted.isr) > 1 or state.leader_recovery_state == RECOVERED
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._check_eligible(wanted, state)
        return replace(state, isr=wanted.isr, leader_recovery_state=wanted.leader_recovery_state)

    def _check_eligible(self, wanted: IsrChange, state: LeaderIsrAndControllerEpoch) -> None:
        live = self._context.live_replicas(wanted.topic_partition)
        epochs = dict(zip(wanted.isr, wanted.broker_epochs, strict=False))
        for broker in wanted.isr:
            if broker not in state.isr and broker not in live:
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
            registration = self._context.brokers.get(broker)
            if registration is not None:
                accepted = (ANY_BROKER_EPOCH, registration.broker_epoch)
                if epochs.get(broker, ANY_BROKER_EPOCH) not in accepted:
                    raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)

    async def process_isr_change_notification(self, partitions: Iterable[TopicPartition]) -> None:
        """Read the ISRs that leaders of older clusters have written themselves. Raises StoreError."""
        async with self._change():
            known = [partition for partition in partitions if partition in self._context]
            changed = await self._partitions.update_leader_and_isr_cache(known)
            await self._update_metadata_sender.publish_partitions(changed)
        self._resume_reassignments_later(changed)

    # -- reassignments (KIP-455) -----------------------------------------------------------------------------------
    #
    # Another controller can continue each step of a reassignment from the store alone:
    #
    # 1. The topic's node has the old and the new replicas, and names the `adding_replicas` and `removing_replicas`. The
    #    adding replicas copy the partition, and its leader adds each to the ISR that has caught up.
    # 2. When all target replicas are in sync, the other replicas leave the ISR. If the leader is to be removed or not
    #    alive, a target replica in the ISR becomes leader. The target replicas receive LeaderAndIsr with the target as
    #    the whole assignment.
    # 3. The removed replicas are deleted, and the topic's node has the target replicas alone.
    #
    # A cancellation is a reassignment to the original replicas.

    def list_partition_reassignments(self) -> list[TopicRegistration]:
        """Return the topics with reassignments in progress. Raises KafkaError NOT_CONTROLLER."""
        self._active_term()
        return self._context.topics_being_reassigned()

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_factor: bool = True,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin to move partitions to other brokers, or with None back to the original ones; None for each success.

        Raises KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT (the remaining reassignments begin nevertheless).
        """
        moves = partial(self._alter_partition_reassignments, reassignments, may_change_factor=may_change_factor)
        return await self._run_with_timeout("the reassignment of partitions", timeout_ms, moves)

    async def _alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        deadline: float | None,
        *,
        may_change_factor: bool,
    ) -> dict[TopicPartition, KafkaError | None]:
        async with self._change(deadline) as term:
            results: dict[TopicPartition, KafkaError | None] = {}
            budget = CountBudget(CHANGES_PER_TURN)
            for partition, replicas in reassignments.items():
                await budget.step()
                try:
                    wanted = self._planned_assignment(partition, replicas, may_change_factor=may_change_factor)
                    await self._on_partition_reassignment(partition, wanted, term)
                except KafkaError as error:
                    if error.code is ErrorCode.NOT_CONTROLLER:
                        raise
                    results[partition] = error.as_result()
                else:
                    results[partition] = None
            return results

    def _planned_assignment(
        self, partition: TopicPartition, replicas: Sequence[int] | None, *, may_change_factor: bool
    ) -> ReplicaAssignment:
        """Return the assignment during the reassignment; None cancels. Raises KafkaError with the reason."""
        if partition not in self._context or self._context.is_queued_for_deletion(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The partition {partition} does not exist.")
        present = self._context.full_replica_assignment(partition)
        if replicas is None:
            if not present.is_being_reassigned:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being reassigned.")
            return present.reassign_to(present.origin_replicas)
        target = tuple(replicas)
        if not target or len(set(target)) != len(target) or min(target) < 0:
            reason = f"Replica assignment {list(target)} is empty, or has a duplicate or negative broker id."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        wanted = present.reassign_to(target)
        # A broker that already has a replica may be dead, as in Kafka: the reassignment waits for it.
        missing = [broker for broker in wanted.adding_replicas if broker not in self._context.live_brokers]
        if missing:
            reason = f"Replica assignment {list(target)} contains brokers that are not alive: {missing}."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        if not may_change_factor and len(target) != len(present.origin_replicas):
            reason = f"{partition} has {len(present.origin_replicas)} replicas, which {list(target)} would change."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        return wanted

    async def _on_partition_reassignment(
        self, partition: TopicPartition, wanted: ReplicaAssignment, term: ControllerTerm
    ) -> None:
        """Take step 1 of a reassignment, and further steps if possible. Raises StoreError, KafkaError."""
        present = self._context.full_replica_assignment(partition)
        if wanted == present:
            return
        logger.info(
            "%s is reassigned from %s to %s", partition, list(present.origin_replicas), list(wanted.target_replicas)
        )
        unneeded = [broker for broker in present.replicas if broker not in wanted.replicas]
        await self._partitions.elect_among(partition, wanted.replicas, term)
        topic = self._context.reassigned_topic(partition, wanted)
        await self._store.set_topic(topic, term)
        self._context.put_topic(topic)
        # Replicas that were added by an earlier reassignment which this one replaces.
        await self._delete_replicas(partition, unneeded)
        new = set(wanted.adding_replicas) - set(present.replicas)
        await self._partitions.send_leader_and_isr([partition], term, is_new=True, brokers=new)
        await self._partitions.send_leader_and_isr([partition], term, is_new=False, brokers=set(wanted.replicas) - new)
        await self._update_metadata_sender.publish_partitions([partition])
        await self._resume_reassignments([partition], term)

    def _resume_reassignments_later(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue reassignments after the present request has been answered."""
        moving = [partition for partition in partitions if self._context.is_being_reassigned(partition)]
        if moving:
            self._run_in_background(self._process_reassignment_progress(moving))

    async def _process_reassignment_progress(self, partitions: Sequence[TopicPartition]) -> None:
        async with self._change() as term:
            await self._resume_reassignments(partitions, term)

    async def _resume_reassignments(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Take steps 2 and 3 for partitions whose target replicas are in sync."""
        for partition in partitions:
            assignment = self._context.full_replica_assignment(partition)
            state = self._context.leadership_info(partition)
            if not assignment.is_being_reassigned or state is None or self._context.is_queued_for_deletion(partition):
                continue
            target = set(assignment.target_replicas)
            if target <= set(state.isr) and target & set(self._context.live_replicas(partition)):
                await self._complete_reassignment(partition, assignment, term)

    async def _complete_reassignment(
        self, partition: TopicPartition, assignment: ReplicaAssignment, term: ControllerTerm
    ) -> None:
        await self._partitions.elect_among(partition, assignment.target_replicas, term)
        # The context first, as in Kafka: the new epoch is sent with the final replicas. If the store were first, a
        # controller that took over would find a final assignment whose leader still has the removed replicas.
        topic = self._context.reassigned_topic(partition, ReplicaAssignment(assignment.target_replicas))
        self._context.put_topic(topic)
        await self._partitions.send_leader_and_isr_until_led([partition], term, is_new=False)
        await self._delete_replicas(partition, assignment.removing_replicas)
        await self._store.set_topic(topic, term)
        await self._update_metadata_sender.publish_partitions([partition])
        logger.info("%s has moved to %s", partition, list(assignment.target_replicas))

    async def _delete_replicas(self, partition: TopicPartition, brokers: Iterable[int]) -> None:
        state = self._context.leadership_info(partition)
        leader_epoch = -1 if state is None else state.leader_epoch
        for broker in brokers:
            if broker in self._context.brokers:
                await self._channel.stop_replicas(broker, {partition: leader_epoch}, delete=True)
