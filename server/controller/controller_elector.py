"""Kafka's ZookeeperLeaderElector: elects the controller, and watches the store while this broker is the controller.

Every broker of a cluster watches `/controller`. A broker that finds no such node claims it: one multi creates the node
and raises the controller epoch, which every later write of the term checks, so that a former controller cannot write.
A term ends when the node has another owner or is deleted, when the session is lost, and when a response of the store or
of a broker shows that the context may be out of date. The next controller, this broker or another, loads everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartition
from ..metadata import znodes
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import SessionState, StoreError, Watch, WatchEvent
from ..metadata.metadata_stores import MetadataStores

if TYPE_CHECKING:
    from .kafka_controller import KafkaController

logger = room_logger("controller")

RETRY_SECONDS = 0.25
"""Pause after a failed election or a resignation."""
TOPICS_PAUSE_SECONDS = 0.1
"""Pause between two reads of the list of topics. It has all topics: ten thousand topics created one after another would
otherwise cause ten thousand reads of it."""

T = TypeVar("T")


class ControllerElector:
    """Kafka's ZookeeperLeaderElector. `KafkaController` owns it; it runs on the loop thread."""

    def __init__(
        self, broker_id: int, controller: KafkaController, stores: MetadataStores, metadata: MetadataCache
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._store = stores.store
        self._cluster = stores.cluster
        self._topics = stores.topics
        self._metadata = metadata
        self._wake = asyncio.Event()
        self._elected = asyncio.Event()
        self._has_resigned = False
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take part in elections. When this returns a controller is elected and the metadata cache has its id."""
        self._store.on_state_change(self._session_changed)
        self._tasks.append(asyncio.get_running_loop().create_task(self._run()))
        await self._elected.wait()

    async def close(self) -> None:
        """End the term and the elections. The node is deleted with the session."""
        tasks = [*self._tasks, *self._watching]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._end_term()

    def resign(self) -> None:
        """End the term; another election follows after a pause."""
        self._has_resigned = True
        self._end_term()
        self._wake.set()

    # -- elections -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._elect()
            except (StoreError, KafkaError) as error:
                logger.warning("the controller cannot be elected: %s", error)
                self._end_term()
                await self._pause()
                continue
            except Exception:
                logger.exception("cannot start as controller")
                self._end_term()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._wake.wait()
            if self._has_resigned:
                # The cause of the resignation may persist: without a pause this would be a busy loop.
                self._has_resigned = False
                await asyncio.sleep(RETRY_SECONDS)

    async def _pause(self) -> None:
        """Wait for `RETRY_SECONDS`, or until the session has recovered."""
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _elect(self) -> None:
        current = await self._cluster.controller(self._controller_changed)
        if self._controller.is_active and current.is_ours:
            return
        self._end_term()
        if current.broker_id is None or current.is_ours:
            term = await self._cluster.claim_controller(self._broker_id)
            if term is None:
                # Another broker was first, or the epoch has changed: read the node again.
                self._wake.set()
                return
            await self._controller.on_controller_failover(term)
            self._watch_cluster(term)
        else:
            self._metadata.controller_id = current.broker_id
        self._elected.set()

    def _controller_changed(self, event: WatchEvent) -> None:
        self._wake.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            # The node was deleted with the session: another broker may be the controller.
            self._end_term()
        self._wake.set()

    def _end_term(self) -> None:
        self._controller.on_controller_resignation()
        for task in self._watching:
            task.cancel()
        self._watching.clear()

    # -- changes in the store --------------------------------------------------------------------------------------

    def _watch_cluster(self, term: ControllerTerm) -> None:
        """Watch the store, and process its present content first."""
        controller, cluster = self._controller, self._cluster
        self._watch(cluster.brokers, controller.process_broker_change)
        self._watch(self._topic_names, controller.process_topic_change, pause_seconds=TOPICS_PAUSE_SECONDS)
        self._watch(
            self._topics.topics_to_delete,
            lambda _: controller.process_topic_deletion(),
            pause_seconds=TOPICS_PAUSE_SECONDS,
        )
        self._watch(cluster.isr_change_notifications, lambda found: self._process_isr_changes(found, term))
        self._watch(cluster.log_dir_event_notifications, lambda found: self._process_log_dir_events(found, term))
        self._watch(cluster.partition_reassignment, lambda found: self._process_reassignments(found, term))
        self._watch(cluster.preferred_replica_election, lambda found: self._process_elections(found, term))

    def _watch(
        self,
        read: Callable[[Watch], Awaitable[T]],
        process: Callable[[T], Awaitable[None]],
        *,
        pause_seconds: float = 0.0,
    ) -> None:
        work = self._process_changes(read, process, pause_seconds)
        self._watching.append(asyncio.get_running_loop().create_task(work))

    async def _process_changes(
        self, read: Callable[[Watch], Awaitable[T]], process: Callable[[T], Awaitable[None]], pause_seconds: float
    ) -> None:
        changed = asyncio.Event()

        def watch(_: WatchEvent) -> None:
            changed.set()

        while True:
            changed.clear()
            try:
                await process(await read(watch))
            except (StoreError, KafkaError) as error:
                logger.warning("resigning as controller: %s", error)
                self.resign()
                return
            except Exception:
                logger.exception("resigning as controller")
                self.resign()
                return
            await asyncio.sleep(pause_seconds)
            await changed.wait()

    async def _topic_names(self, watch: Watch) -> list[str]:
        """Return the names of all topics; `watch` also reports changes of topics that could not be read."""
        names = await self._topics.names(watch)
        for name in self._controller.unknown_topics(names):
            await self._store.exists(znodes.topic_path(name), watch)
        return names

    async def _process_isr_changes(self, found: dict[str, list[TopicPartition]], term: ControllerTerm) -> None:
        if found:
            await self._controller.process_isr_change_notification(
                dict.fromkeys(one for partitions in found.values() for one in partitions)
            )
            await self._cluster.delete_notifications(found, term)

    async def _process_log_dir_events(self, found: dict[str, int], term: ControllerTerm) -> None:
        if found:
            await self._controller.process_log_dir_event_notification(found.values())
            await self._cluster.delete_notifications(found, term)

    async def _process_reassignments(
        self, found: Mapping[TopicPartition, Sequence[int]] | None, term: ControllerTerm
    ) -> None:
        if found is None:
            return
        results = await self._controller.alter_partition_reassignments(found)
        for partition, error in results.items():
            if error is not None:
                logger.warning("%s is not reassigned: %s", partition, error)
        await self._cluster.delete_notifications([znodes.REASSIGN_PARTITIONS], term)

    async def _process_elections(self, found: list[TopicPartition] | None, term: ControllerTerm) -> None:
        if found is not None:
            await self._controller.elect_leaders(found, allow_unclean=False)
            await self._cluster.delete_notifications([znodes.PREFERRED_ELECTION], term)
