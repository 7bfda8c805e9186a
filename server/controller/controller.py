"""The controller: decides which topics exist and who leads their partitions, and tells the brokers.

One broker is a cluster of one: it elects itself through `/controller`, raises the controller epoch, and takes its own
partitions from Offline to Online by the same elections as in a cluster. There the `Office` says when this broker is
controller, and what has happened. Changes are made one after another: a method holds `_turn` from its first look at
the context to the last order. Each change is written to the store first, then carried out by the replicas, then shown
in the metadata caches: what clients see can be served.
"""

from __future__ import annotations

import asyncio
import random
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
from typing import Any

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..config.broker_config import BrokerConfig
from ..metadata.cluster_store import ClusterStore, ControllerTerm
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
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import BrokerRegistration, PartitionState, TopicRegistration
from ..quotas.charge import Pay, for_nothing
from ..replication.inter_broker_versions import highest_version
from ..replication.isr_changes import IsrChange
from ..runtime.turns import WISHES, WRITTEN_PARTITIONS, Pace
from .adoption import FoundReplica
from .announcer import Announcer
from .balance import imbalanced
from .broker_changes import BrokerChanges
from .context import ControllerContext
from .control_requests import TOPIC_IDS_VERSION
from .deletion_waits import DeletionWaits
from .elsewhere import Elsewhere, nothing_unheard
from .isr_requests import IsrRequests
from .partition_state_machine import PartitionStateMachine
from .reassignments import Reassignments
from .replica_channel import ReplicaChannel
from .takeover import Takeover
from .topic_deletion import TopicDeletion
from .topic_maker import CreatedTopic, TopicMaker
from .topic_rules import PartitionsCreation, TopicConfigs, TopicCreation, TopicRules

logger = room_logger("controller")

DELETION_MS = 10_000
"""For so long is waited until other brokers have deleted their replicas, unless somebody says for how long."""
LEFT_TO_DELETE = "Not every replica could be deleted yet; the deletion goes on."


OVERTAKEN = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""The store holds something else than this controller knows of."""


class Controller:
    """Kafka's KafkaController. Loop-thread only."""

    def __init__(
        self,
        *,
        broker_id: int,
        cluster_store: ClusterStore,
        topic_store: TopicStore,
        metadata: MetadataCache,
        channel: ReplicaChannel,
        config: BrokerConfig,
        topic_configs: TopicConfigs,
        chance: random.Random,
        elsewhere: Elsewhere | None = None,
        learn_configs: Callable[[Iterable[str]], Awaitable[None]] = nothing_unheard,
    ) -> None:
        """`elsewhere` is who is controller if it is not this broker; a broker alone has none.

        `learn_configs` reads the settings of topics that this broker has not heard of.
        """
        self.on_doubt: Callable[[], None] | None = None
        """Called when the store may hold something else than is known here: the term is to end."""
        self._broker_id = broker_id
        self._elsewhere = elsewhere
        self._learn_configs = learn_configs
        self._cluster = cluster_store
        self._store = topic_store
        self._metadata = metadata
        self._channel, self.heard = channel, channel.heard
        self._config = config
        self._topic_configs = topic_configs
        self._rules = TopicRules(config, topic_configs, chance)
        is_alone, protocol = elsewhere is None, config.inter_broker_protocol_version
        tells_ids = is_alone or highest_version(ApiKey.LEADER_AND_ISR, protocol) >= TOPIC_IDS_VERSION
        self._context = context = ControllerContext(tells_topic_ids=tells_ids)
        announcer = self._announcer = Announcer(context, metadata, channel)
        self._partitions = PartitionStateMachine(
            context,
            topic_store,
            channel,
            announcer,
            unclean=self._may_elect_uncleanly,
            partitions_at_once=None if is_alone else WRITTEN_PARTITIONS,
        )
        self._topics = TopicMaker(
            context,
            topic_store,
            self._partitions,
            metadata=metadata,
            rules=self._rules,
            topic_configs=topic_configs,
        )
        self._deletion = TopicDeletion(context, topic_store, channel, announcer, topic_configs)
        self._moves = Reassignments(context, topic_store, channel, announcer, self._partitions)
        self._isr = IsrRequests(context, self._partitions)
        self._brokers = BrokerChanges(
            context, channel, announcer, self._partitions, deletion=self._deletion, reassignments=self._moves
        )
        self._term: ControllerTerm | None = None
        self._turn = asyncio.Lock()
        self._deletion_waits = DeletionWaits(context, topic_store, self._deletion)
        self._events: set[asyncio.Task[None]] = set()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None

    @property
    def controller_epoch(self) -> int:
        """Epoch of this broker's term as controller. Raises KafkaError NOT_CONTROLLER."""
        return self._active_term().epoch

    # Terms

    async def start(self, found: Mapping[TopicPartition, FoundReplica] | None = None) -> None:
        """Becomes controller of a cluster of one and brings every partition online; the broker must be registered.

        `found` are the partitions in this broker's log directories: those that the store does not know are adopted.
        Raises KafkaError NOT_CONTROLLER if another broker is controller.
        """
        async with self._turn:
            term = self._term = await self._cluster.claim_controller(self._broker_id)
            if term is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another broker is the controller of this metadata store.")
            brokers = await self._cluster.brokers()
            self._metadata.set_brokers(brokers)
            self._metadata.controller_id = self._broker_id
            self._context.put_brokers(brokers)
            takeover = Takeover(self._broker_id, term, self._store, self._context)
            await takeover.read_topics()
            adopted = await takeover.adopt(found or {}, self._rules.internal_config)
            for name, config in adopted.items():
                self._topic_configs.topic_config_changed(name, config)
            await self._deletion.heed_marks(term)
            await self._partitions.bring_online(self._context.partitions(), term)

    async def take_office(self, term: ControllerTerm) -> None:
        """Goes on where the controller before has stopped, from what is in the store alone.

        The order is Kafka's: brokers know each other first, then topics, then replicas get their orders, then what is
        not finished goes on. Raises StoreError, KafkaError NOT_CONTROLLER.
        """
        async with self._turn:
            logger.info("broker %d is controller in epoch %d", self._broker_id, term.epoch)
            self._term = term
            self._context.clear()
            self._channel.begin(term.epoch, self)
            self._metadata.controller_id = self._broker_id
            brokers = await self._cluster.brokers()
            self._context.put_brokers(brokers)
            self._channel.brokers_changed(brokers)
            self._announcer.show_brokers()
            await Takeover(self._broker_id, term, self._store, self._context).read_topics()
            await self._learn_configs(topic.name for topic in self._context.topics if topic.name not in self._metadata)
            doomed = await self._store.topics_to_delete()
            self._context.doomed.update(name for name in doomed if self._context.topic(name) is not None)
            self._context.restore_leaders()
            await self._partitions.renew_leaders(self._context.led_by_earlier_runs(), term)
            await self._announcer.show_all_here()
            await self._announcer.show_all(self._channel.others)
            every = list(self._context.partitions())
            await self._partitions.order(every, term, is_new=False)
            await self._partitions.replace_leaders(every, term)
            assigned = {broker for partition in every for broker in self._context.replicas(partition)}
            dead = assigned - self._context.brokers.keys()
            await self._partitions.remove_replicas(self._context.partitions_on(dead), dead, term)
            await self._moves.go_on(self._moves.running(), term)
            await self._deletion.begin(list(self._context.doomed), term)

    def leave_office(self) -> None:
        """Gives no orders any more; what is under way is refused by the store. Does nothing outside of a term."""
        if self._term is not None:
            logger.info("broker %d is controller no longer", self._broker_id)
            self._term = None
            self._channel.end()
            self._deletion_waits.look_again()

    def _active_term(self) -> ControllerTerm:
        if self._term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
        return self._term

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[ControllerTerm]:
        """The one change that is made now.

        Raises KafkaError: NOT_CONTROLLER, also where the store holds something else than is known here, as clients ask
        again then; KAFKA_STORAGE_ERROR if it could not be written.
        """
        async with self._turn:
            term = self._active_term()
            try:
                yield term
            except SessionExpiredError as error:
                self.term_in_doubt()
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "The session of this controller is over.") from error
            except StoreUnavailableError as error:
                self.term_in_doubt()
                raise error.as_answer() from error
            except OVERTAKEN as error:
                if self.on_doubt is None:
                    raise  # there is nobody else
                logger.warning("a change came to nothing, the store holds something else: %r", error)
                self.term_in_doubt()
                text = "Somebody else has changed what this controller was to change."
                raise KafkaError(ErrorCode.NOT_CONTROLLER, text) from error
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    self.term_in_doubt()
                raise

    def term_in_doubt(self) -> None:
        """Somebody knows of a newer controller, or the store of something else than is known here."""
        if self.on_doubt is not None and self._term is not None:
            self.on_doubt()

    def another_began(self, epoch: int) -> None:
        """A controller of this epoch gives orders: from now on nothing is shown here but what that one tells."""
        if self._term is not None and self._term.epoch < epoch:
            self.term_in_doubt()

    def _later(self, event: Coroutine[Any, Any, None]) -> None:
        """An event that nobody waits for; what it raises has put the term in doubt."""

        async def run() -> None:
            try:
                await event
            except (KafkaError, StoreError) as error:
                logger.warning("an event of the controller came to nothing: %s", error)
            except Exception:
                logger.exception("an event of the controller failed")
                self.term_in_doubt()

        task = asyncio.get_running_loop().create_task(run())
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    # Topics

    async def create_topics(
        self, wishes: Sequence[TopicCreation], *, validate_only: bool = False, pay: Pay = for_nothing
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Creates the topics that may be created and are paid for, each led and ready when this returns.

        Raises KafkaError NOT_CONTROLLER, or POLICY_VIOLATION if all are too many partitions together; what concerns
        one topic is its result.
        """
        async with self._change() as term:
            results = await self._topics.create(wishes, term, validate_only=validate_only, pay=pay)
            self._doubt_store(results)
            return results

    def unknown_topics(self, names: Iterable[str]) -> list[str]:
        """Those of the topics in the store that are not known here: new ones, and such as cannot be read."""
        return [name for name in names if self._context.topic(name) is None]

    async def topics_changed(self, names: Collection[str] | None = None) -> None:
        """These are all topics in the store, or else there are marks of topics to be deleted.

        Apache Kafka's brokers write there themselves what is created automatically, and older tools what they want
        deleted. Raises StoreError, KafkaError NOT_CONTROLLER.
        """
        async with self._change() as term:
            if names is not None:
                self._context.unreadable.intersection_update(names)
            new = self.unknown_topics(names or ())
            if new:
                await Takeover(self._broker_id, term, self._store, self._context).read_topics(new)
                await self._learn_configs(new)
                found = [name for name in new if self._context.topic(name) is not None]
                partitions = [partition for name in found for partition in self._context.partitions_of(name)]
                await self._partitions.bring_online(partitions, term)
            await self._deletion.heed_marks(term, may_delete=self._config.delete_topic_enable)
            self._deletion_waits.look_again()

    def _doubt_store(self, results: Mapping[str, object]) -> None:
        """After a write of which nobody knows whether it was done."""
        if any(isinstance(one, KafkaError) and one.message == STORE_FAILED for one in results.values()):
            self.term_in_doubt()

    async def auto_create(self, names: Iterable[str], *, pay: Pay = for_nothing) -> dict[str, KafkaError | None]:
        """Creates topics because somebody asked for them, with the broker's defaults; None where that went well."""
        wishes = [self._rules.auto_creation(name) for name in names]
        if self._elsewhere is not None and not self.is_active:
            return await self._elsewhere.create_topics(wishes)
        results = await self.create_topics(wishes, pay=pay)
        return {name: result if isinstance(result, KafkaError) else None for name, result in results.items()}

    async def create_partitions(
        self, wishes: Sequence[PartitionsCreation], *, validate_only: bool = False, pay: Pay = for_nothing
    ) -> dict[str, KafkaError | None]:
        """Gives topics more partitions, each led and ready when this returns; None where that went well.

        Raises KafkaError NOT_CONTROLLER.
        """
        async with self._change() as term:
            results: dict[str, KafkaError | None] = {}
            pace = Pace(WISHES)
            for wish in wishes:
                await pace.step()
                try:
                    await self._topics.extend(wish, term, None if validate_only else pay)
                except KafkaError as error:
                    results[wish.name] = error.as_result()
                except StoreUnavailableError as error:
                    logger.error("partitions of %s could not be created: %s", wish.name, error)
                    results[wish.name] = error.as_answer()
                else:
                    results[wish.name] = None
            self._doubt_store(results)
            return results

    async def delete_topics(
        self, names: Iterable[str], *, timeout_ms: float = DELETION_MS, pay: Pay = for_nothing
    ) -> dict[str, KafkaError | None]:
        """Deletes topics: nothing serves them from now on, and what can be reached of them is deleted.

        Raises KafkaError NOT_CONTROLLER; what concerns one topic is its result: None where its folders are renamed away
        on all brokers that are there, REQUEST_TIMED_OUT where that is not so after `timeout_ms`.
        """
        async with self._change() as term:
            results = await self._begin_deletion(names, term, pay)
        begun = [name for name, error in results.items() if error is None]
        for name in await self._deletion_waits.until_deleted(begun, timeout_ms, lambda: self._term is term):
            # The mark in the store stays: the next controller, or the next start, finishes the deletion.
            results[name] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, LEFT_TO_DELETE)
        return results

    async def _begin_deletion(
        self, names: Iterable[str], term: ControllerTerm, pay: Pay
    ) -> dict[str, KafkaError | None]:
        results: dict[str, KafkaError | None] = {}
        present = []
        pace = Pace(WISHES)
        for name in names:
            await pace.step()
            if self._context.topic(name) is None:
                text = "This server does not host this topic-partition."
                results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            else:
                try:
                    pay(len(self._context.partitions_of(name)))
                    present.append(name)
                except KafkaError as error:
                    results[name] = error.as_result()
        try:
            await self._store.mark_for_deletion(present, term)
            await self._deletion.begin(present, term)
        except StoreUnavailableError as error:
            logger.error("topics could not be deleted: %s", error)
            results.update(dict.fromkeys(present, error.as_answer()))
            self._doubt_store(results)
        else:
            results.update(dict.fromkeys(present))
        return results

    # Elections

    def _may_elect_uncleanly(self, topic: str) -> bool:
        """Whether replicas that are not in sync may lead rather than nobody, which loses records.

        Of a name that no topic has: where a topic does not say otherwise.
        """
        own = self._topic_configs.topic_config(topic).get("unclean.leader.election.enable")
        return self._config.unclean_leader_election_enable if own is None else own == "true"

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, allow_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects preferred leaders, or with `allow_unclean` any live replica where there is no leader.

        None stands for all partitions; those that need no election are left out of that answer.
        Raises KafkaError NOT_CONTROLLER.
        """
        async with self._change() as term:
            wanted = self._context.partitions() if partitions is None else partitions
            results = await self._partitions.elect(wanted, term, allow_unclean=allow_unclean)
        self._go_on_moving(results)
        if partitions is None:
            unneeded = ErrorCode.ELECTION_NOT_NEEDED
            results = {p: error for p, error in results.items() if error is None or error.code is not unneeded}
        return results

    async def balance_leaders(self) -> None:
        """Gives brokers back what they are to lead, where too much of it is led elsewhere (auto.leader.rebalance)."""
        if not self.is_active or not self._config.auto_leader_rebalance_enable:
            return
        percentage = self._config.leader_imbalance_per_broker_percentage
        async with self._change() as term:
            wanted = imbalanced(self._context, percentage, set(self._moves.running()))
            if wanted:
                logger.info("%d partitions are given back to their preferred leaders", len(wanted))
                await self._partitions.elect(wanted, term, allow_unclean=False)

    def topic_settings_changed(self, topic: str | None) -> None:
        """Of one topic, or of all: replicas not in sync may be allowed to lead from now on, where nobody does."""
        if self.is_active and self._may_elect_uncleanly(topic or ""):
            self._later(self._lead_somehow(topic))

    async def _lead_somehow(self, topic: str | None) -> None:
        async with self._change() as term:
            concerned = list(self._context.partitions()) if topic is None else self._context.partitions_of(topic)
            await self._partitions.replace_leaders(concerned, term)
        self._go_on_moving(concerned)

    # Brokers

    async def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """These are alive. Raises StoreError, KafkaError NOT_CONTROLLER."""
        async with self._change() as term:
            await self._brokers.now_alive(brokers, term)
            self._deletion_waits.look_again()

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Moves leaders away from a broker that is about to stop; returns those that have to stay.

        Raises KafkaError NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        async with self._change() as term:
            return await self._brokers.let_go(broker_id, broker_epoch, term)

    def broker_epoch(self, broker_id: int) -> int | None:
        """Of a live broker. Raises KafkaError NOT_CONTROLLER."""
        self._active_term()
        broker = self._context.brokers.get(broker_id)
        return None if broker is None else broker.broker_epoch

    async def replicas_failed(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """A live broker's log directory has failed with these partitions in it: others lead them, or nobody.

        If this broker is not the controller it leaves word of it.
        """
        if self._term is None:
            if self._elsewhere is not None:
                await self._elsewhere.tell_of_failed_log_dir(broker_id)
            return
        async with self._change() as term:
            await self._brokers.replicas_failed(broker_id, partitions, term)

    def replicas_failed_at(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """A broker cannot serve these: this one, or another that has answered so."""
        self._later(self.replicas_failed(broker_id, partitions))

    def replicas_stopped_at(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """Another broker has answered what became of replicas that it was to delete."""
        self._later(self._replicas_deleted(broker_id, results))

    async def _replicas_deleted(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        async with self._change() as term:
            self._deletion.note(broker_id, results)
            await self._deletion.finish(term)
            self._deletion_waits.look_again()

    async def log_dirs_failed(self, brokers: Iterable[int]) -> None:
        """Brokers have left word that a log directory of theirs has failed, or may have room: each replica is tried."""
        async with self._change() as term:
            failed = self._context.retry_failed(asked := set(brokers))
            await self._partitions.order(self._context.partitions_on(asked), term, is_new=False, brokers=asked)
            await self._partitions.replace_leaders(failed, term)
            await self._go_on_with(failed, term)

    async def retry_replicas(self, broker_id: int, lost: Container[TopicPartition]) -> None:
        """Tries again what a live broker could not make, for want of room, say, or delete; not what it has `lost`.

        Does nothing if this broker is not the controller.
        """
        if self._term is None:
            return
        async with self._change() as term:
            failed = self._context.retry_failed({broker_id}, lost)
            await self._partitions.bring_online(failed, term)
            await self._go_on_with(failed, term)

    async def _go_on_with(self, tried_again: Sequence[TopicPartition], term: ControllerTerm) -> None:
        if tried_again:
            self._go_on_moving(tried_again)
            await self._deletion.go_on(list(self._context.doomed), term)
            self._deletion_waits.look_again()

    # In-sync replicas

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrChange]
    ) -> dict[TopicPartition, PartitionState | ErrorCode]:
        """A leader asks for other in-sync replicas; each partition on its own.

        Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH.
        """
        async with self._change() as term:
            if self.broker_epoch(broker_id) != broker_epoch:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} has another epoch, or is gone.")
            results = await self._isr.alter(broker_id, proposals, term)
            changed = [partition for partition, result in results.items() if isinstance(result, PartitionState)]
            self._announcer.show(changed)
        self._go_on_moving(changed)
        return results

    async def isr_changed_in_store(self, partitions: Iterable[TopicPartition]) -> None:
        """Leaders have left word that they have written other in-sync replicas themselves. Raises StoreError."""
        async with self._change():
            known = [partition for partition in partitions if partition in self._context]
            news = await self._partitions.reread(known)
            self._announcer.show(news)
        self._go_on_moving(news)

    def _go_on_moving(self, partitions: Iterable[TopicPartition]) -> None:
        """Whoever waits for an answer has it before the next orders."""
        ready = [partition for partition in partitions if self._moves.is_running(partition)]
        if ready:
            self._later(self._go_on(ready))

    async def _go_on(self, partitions: Sequence[TopicPartition]) -> None:
        async with self._change() as term:
            await self._moves.go_on(partitions, term)

    # Reassignments

    def reassignments(self) -> list[TopicRegistration]:
        """The topics of which partitions are on their way to other brokers. Raises KafkaError NOT_CONTROLLER."""
        self._active_term()
        return self._moves.topics()

    async def reassign(
        self, wishes: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Moves partitions to other brokers, or with None back to where they were; None where that has begun.

        Raises KafkaError NOT_CONTROLLER.
        """
        async with self._change() as term:
            results: dict[TopicPartition, KafkaError | None] = {}
            pace = Pace(WISHES)
            for partition, replicas in wishes.items():
                await pace.step()
                try:
                    wanted = self._moves.planned(partition, replicas, may_change_factor=may_change_factor)
                    await self._moves.begin(partition, wanted, term)
                except KafkaError as error:
                    if error.code is ErrorCode.NOT_CONTROLLER:
                        raise
                    results[partition] = error.as_result()
                else:
                    results[partition] = None
            return results
