"""Who is controller, and what happens in the cluster while this broker is: election, resignation, and the watches.

Every broker of a cluster looks at `/controller`. Whoever finds it empty claims it, and one multi says who was first and
raises the controller epoch, which every later write of the term checks: nobody who was followed by another can write.
A term ends when the node is another's or gone, when the session is lost, and when an answer of the store or of a broker
leaves in doubt that what is known here is so; then the next controller, this one or another, reads everything anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from ...protocol.errors import KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata import znodes
from ..metadata.cluster_store import ClusterStore, ControllerTerm
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import MetadataStore, SessionState, StoreError, Watch, WatchEvent
from ..metadata.notice_store import NoticeStore
from ..metadata.topic_store import TopicStore
from .controller import Controller

logger = room_logger("controller")

RETRY_SECONDS = 0.25
"""After which the store is asked again, if it did not answer."""
TOPICS_REST_SECONDS = 0.1
"""Between two looks at which topics there are, as each is a list of all: ten thousand that are made one after the other
would be ten thousand such lists."""

T = TypeVar("T")


class Office:
    """Seats and unseats the controller of one broker. Loop-thread only; `start` once it is registered, `close` once."""

    def __init__(
        self,
        broker_id: int,
        controller: Controller,
        store: MetadataStore,
        *,
        cluster_store: ClusterStore,
        topic_store: TopicStore,
        metadata: MetadataCache,
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._store = store
        self._cluster = cluster_store
        self._topics = topic_store
        self._notices = NoticeStore(store)
        self._metadata = metadata
        self._look_again = asyncio.Event()
        self._seated = asyncio.Event()
        self._doubted = False
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        controller.on_doubt = self._doubt

    async def start(self) -> None:
        """Looks who is controller; when this returns somebody is, and the cache says who."""
        self._store.on_state_change(self._session_changed)
        self._tasks.append(asyncio.get_running_loop().create_task(self._preside()))
        await self._seated.wait()

    async def close(self) -> None:
        """Leaves office. The node goes with the session."""
        tasks = [*self._tasks, *self._watching]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._step_down()

    # -- the seat --------------------------------------------------------------------------------------------------

    async def _preside(self) -> None:
        while True:
            self._look_again.clear()
            try:
                await self._look()
            except (StoreError, KafkaError) as error:
                logger.warning("who is controller cannot be told: %s", error)
                self._step_down()
                await self._pause()
                continue
            except Exception:
                logger.exception("a term as controller could not begin")
                self._step_down()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._look_again.wait()
            if self._doubted:
                # What went wrong at once may do so again: not in a circle without a rest.
                self._doubted = False
                await asyncio.sleep(RETRY_SECONDS)

    async def _pause(self) -> None:
        """Waits a little; the end of a session's trouble is not waited for longer than need be."""
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                await self._look_again.wait()
        except TimeoutError:
            return

    async def _look(self) -> None:
        seat = await self._cluster.controller(self._heard)
        if self._controller.is_active and seat.is_ours:
            return
        self._step_down()
        if seat.broker_id is None or seat.is_ours:
            term = await self._cluster.claim_controller(self._broker_id)
            if term is None:
                # Somebody else was first, or the epoch moved on: the next look tells.
                self._look_again.set()
                return
            await self._controller.take_office(term)
            self._watch_all(term)
        else:
            self._metadata.controller_id = seat.broker_id
        self._seated.set()

    def _heard(self, event: WatchEvent) -> None:
        self._look_again.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            # The node is gone with the session: another may be controller by now.
            self._step_down()
        self._look_again.set()

    def _doubt(self) -> None:
        self._doubted = True
        self._step_down()
        self._look_again.set()

    def _step_down(self) -> None:
        self._controller.leave_office()
        for task in self._watching:
            task.cancel()
        self._watching.clear()

    # -- what happens in the cluster -------------------------------------------------------------------------------

    def _watch_all(self, term: ControllerTerm) -> None:
        """From now on the controller hears of whatever happens in the tree, and of what has happened already."""
        self._follow(self._cluster.brokers, self._controller.brokers_changed)
        self._follow(self._topic_names, self._controller.topics_changed, rest_seconds=TOPICS_REST_SECONDS)
        self._follow(
            self._topics.topics_to_delete,
            lambda _: self._controller.topics_changed(),
            rest_seconds=TOPICS_REST_SECONDS,
        )
        self._follow(self._notices.isr_changes, lambda found: self._isr_changes(found, term))
        self._follow(self._notices.log_dir_events, lambda found: self._log_dir_events(found, term))
        self._follow(self._notices.reassignment_wishes, lambda found: self._reassignments(found, term))
        self._follow(self._notices.election_wishes, lambda found: self._elections(found, term))

    def _follow(
        self,
        look: Callable[[Watch], Awaitable[T]],
        heed: Callable[[T], Awaitable[None]],
        *,
        rest_seconds: float = 0.0,
    ) -> None:
        work = self._keep_looking(look, heed, rest_seconds)
        self._watching.append(asyncio.get_running_loop().create_task(work))

    async def _keep_looking(
        self, look: Callable[[Watch], Awaitable[T]], heed: Callable[[T], Awaitable[None]], rest_seconds: float
    ) -> None:
        changed = asyncio.Event()

        def tell(_: WatchEvent) -> None:
            changed.set()

        while True:
            changed.clear()
            try:
                await heed(await look(tell))
            except (StoreError, KafkaError) as error:
                logger.warning("a term as controller ends early: %s", error)
                self._doubt()
                return
            except Exception:
                logger.exception("a term as controller ends early")
                self._doubt()
                return
            await asyncio.sleep(rest_seconds)
            await changed.wait()

    async def _topic_names(self, watch: Watch) -> list[str]:
        """Which topics there are; of those that could not be read `watch` also hears when somebody mends them."""
        names = await self._topics.names(watch)
        for name in self._controller.unknown_topics(names):
            await self._store.exists(znodes.topic_path(name), watch)
        return names

    async def _isr_changes(self, found: dict[str, list[TopicPartition]], term: ControllerTerm) -> None:
        if found:
            await self._controller.isr_changed_in_store(
                dict.fromkeys(one for partitions in found.values() for one in partitions)
            )
            await self._notices.remove(found, term)

    async def _log_dir_events(self, found: dict[str, int], term: ControllerTerm) -> None:
        if found:
            await self._controller.log_dirs_failed(found.values())
            await self._notices.remove(found, term)

    async def _reassignments(self, found: Mapping[TopicPartition, Sequence[int]] | None, term: ControllerTerm) -> None:
        if found is None:
            return
        results = await self._controller.reassign(found)
        for partition, error in results.items():
            if error is not None:
                logger.warning("%s is not reassigned: %s", partition, error)
        await self._notices.remove([znodes.REASSIGN_PARTITIONS], term)

    async def _elections(self, found: list[TopicPartition] | None, term: ControllerTerm) -> None:
        if found is not None:
            await self._controller.elect_leaders(found, allow_unclean=False)
            await self._notices.remove([znodes.PREFERRED_ELECTION], term)
