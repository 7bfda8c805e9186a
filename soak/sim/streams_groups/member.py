"""Members of a streams group that send StreamsGroupHeartbeat like the threads of Kafka Streams (KIP-1071).

A member revokes tasks before it reports the revocation, and processes new tasks after the coordinator assigned them.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Protocol

from soak.groups.streams_members import tasks, wire
from soak.sim.streams_groups.ledger import Entitlement, Task, TaskLedger
from soak.sim.streams_groups.plan import StreamsPlan

from barnabas.clients.client import Client
from barnabas.clients.connection import ConnectionOptions
from barnabas.clients.group.coordinator_link import MOVED, CoordinatorLink
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from barnabas.simulation.cluster import ClusterWorld
from barnabas.simulation.node import SimNode

APPLICATION, INPUT, CHANGELOG, REPARTITION = "app", "in", "app-store-changelog", "app-repartition"
JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
HEARTBEAT_SECONDS = 0.3
REQUEST_TIMEOUT_MS = 1000
PAUSE = 0.05
FENCED = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors after which a member abandons its tasks and joins again."""
TEMPORARY = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNRELEASED_INSTANCE_ID}


class Setting(Protocol):
    """The run that a member belongs to."""

    world: ClusterWorld
    plan: StreamsPlan
    ledger: TaskLedger
    bootstrap: str
    is_over: bool
    is_finished: bool
    errors: list[str]


class Slot:
    """A sequence of members (lives) of one thread of an application. A paused thread may overlap with its successor."""

    def __init__(self, setting: Setting, number: int) -> None:
        self.setting = setting
        self.number = number
        self.process_id = f"process-{number % setting.plan.processes}"
        is_static = random.Random(f"{setting.plan.seed}/static/{number}").random() < setting.plan.static_chance
        self.instance_id = f"instance-{number}" if is_static else None
        self.lives: list[Life] = []

    @property
    def running(self) -> list[Life]:
        return [life for life in self.lives if not life.has_ended and not life.is_dead]

    async def keep_going(self) -> None:
        """Start a new thread after each thread that has ended or is paused, until the run is finished."""
        loop = self.setting.world.loop
        while not self.setting.is_finished:
            if all(life.node in loop.frozen for life in self.running):
                self.lives.append(Life(self, len(self.lives)))
            if self.setting.is_over:
                # A paused thread has resumed: one of the two threads leaves.
                for life in self.running[:-1]:
                    life.is_leaving = True
            await asyncio.sleep(PAUSE)
        for life in self.lives:
            if not life.is_dead:
                await life.task


class Life:
    """A thread from its start to its end."""

    def __init__(self, slot: Slot, number: int) -> None:
        self.setting = setting = slot.setting
        self.name = f"member-{slot.number}-{number}"
        """The name of the thread, which is also the member id."""
        self.process_id = slot.process_id
        self.instance_id = slot.instance_id
        self.node: SimNode = setting.world.machine(self.name)
        self.random = random.Random(f"{setting.plan.seed}/{self.name}")
        self.epoch = JOIN_EPOCH
        self.active: frozenset[Task] = frozenset()
        self.standby: frozenset[Task] = frozenset()
        self.entitlement = Entitlement()
        self.is_dead = self.is_leaving = self.is_stubborn = False
        self._granted: tuple[frozenset[Task], frozenset[Task]] = self.active, self.standby
        self._reported: tuple[frozenset[Task], frozenset[Task]] | None = None
        """The tasks of the last heartbeat with a response; None if the next heartbeat must contain all fields."""
        self._revoked_at: float | None = None
        """The time at which the requested revocation is finished."""
        setting.ledger.lives.append(self)
        self.task = setting.world.spawn(self.node, self._run())

    @property
    def has_ended(self) -> bool:
        return self.task.done()

    def kill(self) -> None:
        """Kill the thread without leaving the group."""
        self.is_dead = True
        self.node.kill()

    async def _run(self) -> None:
        options = ConnectionOptions("streams", REQUEST_TIMEOUT_MS)
        rng = random.Random(f"{self.setting.plan.seed}/client/{self.name}")
        client = Client(self.setting.bootstrap, rng=rng, options=options, metadata_max_age_ms=300_000)
        try:
            await client.start()
            link = CoordinatorLink(client, APPLICATION)
            while not (self.setting.is_finished or self.is_leaving):
                await self._turn(link)
            await self._leave(link)
        except KafkaError:
            return  # no broker was reachable; another thread starts
        finally:
            self._abandon()
            await client.close()

    async def _turn(self, link: CoordinatorLink) -> None:
        if await self._beat(link) and self._reconcile():
            return  # a finished revocation is reported immediately
        seconds = HEARTBEAT_SECONDS
        if self._revoked_at is not None:
            seconds = min(seconds, max(0.0, self._revoked_at - self.setting.ledger.now()))
        await asyncio.sleep(seconds)

    async def _beat(self, link: CoordinatorLink) -> bool:
        """Send a heartbeat; return whether it was successful."""
        ledger, sent_at, epoch = self.setting.ledger, self.setting.ledger.now(), self.epoch
        owned, fields = (self.active, self.standby), dict[str, Any]()
        if epoch == JOIN_EPOCH:
            fields = self._joining_fields()
        elif self._reported != owned:
            fields = {"active_tasks": wire(set(owned[0])), "standby_tasks": wire(set(owned[1])), "warmup_tasks": []}
        request = self._request(epoch, **fields)
        # A lost response may have had another epoch: the next heartbeat reports all tasks.
        self._reported = None
        try:
            response: StreamsGroupHeartbeatResponse = await link.send(request)
        except KafkaError:
            return False
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._fail(link, code, response.error_message)
            return False
        self._reported = owned
        if fields:
            # A static member that returns with another member id has the tasks of its former id, in the same epoch.
            ledger.acknowledge(self.instance_id or self.name, epoch, owned[0])
        self._take(response)
        if self.active <= self._granted[0]:
            self.entitlement.revocation_since = None
        elif self.entitlement.revocation_since is None:
            # The coordinator may have computed the assignment for an earlier heartbeat whose response was lost.
            self.entitlement.revocation_since = self.entitlement.heartbeat_at
        self.entitlement.heartbeat_at = sent_at
        return True

    def _take(self, response: StreamsGroupHeartbeatResponse) -> None:
        granted = self._granted
        if response.active_tasks is not None:
            granted = frozenset(tasks(response.active_tasks)), frozenset(tasks(response.standby_tasks or ()))
        self.setting.ledger.check_response(self, response.member_epoch, *granted)
        self.epoch, self._granted = response.member_epoch, granted

    def _reconcile(self) -> bool:
        """Take one step towards the assignment; return whether a revocation was finished."""
        now, plan = self.setting.ledger.now(), self.setting.plan
        active, standby = self._granted
        # A standby task that becomes active is not revoked.
        if not self.active <= active or not self.standby <= standby | active:
            if self._revoked_at is None:
                # The coordinator waits for tasks that the member must revoke in all roles, and removes the member.
                is_waited_for = not self.active | self.standby <= active | standby
                self.is_stubborn = is_waited_for and self.random.random() < plan.stubborn_chance
                self._revoked_at = now + self.random.random() * plan.revocation
            if self.is_stubborn or now < self._revoked_at:
                return False
            self._revoked_at = None
            self.active &= active
            self.standby &= standby
            self.entitlement.revocation_since = None
            return True
        self._revoked_at = None
        self.setting.ledger.adopt(self, active - self.active)
        self.active, self.standby = active, standby
        return self._reported != (active, standby)

    def _fail(self, link: CoordinatorLink, code: ErrorCode, message: str | None) -> None:
        if code in FENCED:
            self._abandon()
            self.epoch = JOIN_EPOCH
        elif code in MOVED:
            link.forget(code.name)
        elif code not in TEMPORARY and not code.retriable:
            self.setting.errors.append(f"error: {self.name} received {code.name}: {message}")

    def _abandon(self) -> None:
        self.active = self.standby = frozenset()
        self._granted = self.active, self.standby
        self._reported = self._revoked_at = self.entitlement.revocation_since = None
        self.is_stubborn = False

    async def _leave(self, link: CoordinatorLink) -> None:
        """Leave the group; a static member often leaves temporarily."""
        self._abandon()
        is_static = self.instance_id is not None and not self.setting.is_over and self.random.random() < 0.7
        try:
            await link.send(self._request(STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH))
        except KafkaError:
            return  # the session of the member expires

    # -- requests --------------------------------------------------------------------------------------------------

    def _request(self, epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=APPLICATION,
            member_id=self.name,
            member_epoch=epoch,
            endpoint_information_epoch=0,
            instance_id=self.instance_id,
            **fields,
        )

    def _joining_fields(self) -> dict[str, Any]:
        plan = self.setting.plan
        return {
            "rebalance_timeout_ms": int(plan.rebalance_seconds * 1000),
            "topology": topology(is_repartitioned=plan.is_repartitioned),
            "process_id": self.process_id,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }


def topology(*, is_repartitioned: bool) -> Topology:
    """Return a topology with a stateful subtopology, and optionally a stateless one after a repartition topic."""
    compacted = [KeyValue(key="cleanup.policy", value="compact")]
    first = Subtopology(
        subtopology_id="0",
        source_topics=[INPUT],
        state_changelog_topics=[TopicInfo(name=CHANGELOG, topic_configs=compacted)],
        repartition_sink_topics=[REPARTITION] if is_repartitioned else [],
    )
    if not is_repartitioned:
        return Topology(epoch=0, subtopologies=[first])
    second = Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name=REPARTITION)])
    return Topology(epoch=0, subtopologies=[first, second])
