"""Consumer groups in virtual time with faults: members join, leave, crash and pause, and the broker dies.

The invariants: a partition has one owner in a generation, and the owner sends requests. The coordinator removes no
member that sends requests. Committed offsets never decrease, and deleted offsets do not reappear. After the last fault
the group reaches one generation in which every partition has an owner.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from soak.groups.group_history import (
    LONGEST_SESSION_S,
    PARTITIONS,
    History,
    Known,
    Ledger,
    Share,
    plan,
)
from soak.groups.members import GROUP, QUICK, Cluster, Member, commit_request

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.server.coordinator.group.classic_group import ClassicGroup, ClassicGroupState
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import WorkDelays, World
from barnabas.simulation.network import NetworkFaults

CALM_S = 150.0
"""The time within which a group must be stable after the last fault."""
LEDGER = "ledger"
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
JOIN_AGAIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.REQUEST_TIMED_OUT,
}


class NotNowError(Exception):
    """A temporary error, after which the request is repeated."""


class SuddenDeathError(Exception):
    """A death of the process, which does not leave the group."""


class Run:
    """The run of one seed."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        rng = self.random = random.Random(f"{seed}/groups")
        settings = {**QUICK, "log.segment.bytes": str(rng.choice([2000, 1 << 20]))}
        if rng.random() < 0.3:
            settings["group.initial.rebalance.delay.ms"] = str(rng.choice([500, 3000]))
        delays = WorkDelays(usual=rng.choice([0.001, 0.01, 0.4]), slow_chance=rng.choice([0.0, 0.1]))
        self.world = World(loop, seed, settings, NetworkFaults(split_chance=0.05), delays)
        self.cluster = Cluster(self.world)
        self.history = History()
        self.seconds = rng.uniform(120, 600)
        self.people = rng.randint(2, PARTITIONS)
        self.restlessness = rng.choice([0.05, 0.2, 0.5])
        """The probability that a member requests a rebalance at a heartbeat."""
        self.is_calm = False
        self.is_over = False

    async def go(self) -> History:
        await self._start()
        await self.cluster.create_topic("t", PARTITIONS)
        await self.cluster.ask(FindCoordinatorRequest(key=GROUP), 2)
        places = [Place(self, number) for number in range(self.people)]
        tasks = [asyncio.ensure_future(place.live()) for place in places]
        tasks += [asyncio.ensure_future(self._look_on()), asyncio.ensure_future(self._keep_ledger())]
        acting = asyncio.ensure_future(self._act())
        done, _ = await asyncio.wait({acting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        self.is_over = True
        await asyncio.gather(*tasks)
        await self.world.broker.stop()
        return self.history

    async def _act(self) -> None:
        """Inject faults, then wait until the group is stable."""
        await self._nemesis()
        await self._find_peace()

    async def _find_peace(self) -> None:
        self.is_calm = True
        deadline = self.world.loop.time() + CALM_S
        while not self._is_at_peace():
            assert self.world.loop.time() < deadline, f"the group is not stable: {self._situation()}"
            await asyncio.sleep(1)

    def _group(self) -> ClassicGroup | None:
        """Return the group from the broker, or None while the broker loads the group."""
        with suppress(KafkaError):
            return self.cluster.group()
        return None

    def _is_at_peace(self) -> bool:
        group = self._group()
        if group is None or group.state is not ClassicGroupState.STABLE or group.pending_members:
            return False
        owned = {partition for generation, partition in self.history.owners if generation == group.generation}
        return owned == set(range(PARTITIONS)) and len(group.members) == self.people

    def _situation(self) -> str:
        group = self._group()
        if group is None:
            return "there is no group"
        return (
            f"{group.state.value}, {len(group.members)} of {self.people} members, {len(group.pending_members)} pending"
        )

    async def _start(self) -> None:
        await self.world.broker.start()
        self.history.begin_life(self.world.broker.lives)

    async def _nemesis(self) -> None:
        loop, rng = self.world.loop, self.random
        while loop.time() < self.seconds:
            await asyncio.sleep(rng.uniform(3, 45))
            how = rng.choice(["kill", "A", "B", "stop", "nothing"])
            if how == "stop":
                await self.world.broker.stop()
            elif how != "nothing":
                await self._something_acknowledged()
                self.world.broker.crash(how)  # type: ignore[arg-type]
            if how != "nothing":
                await asyncio.sleep(rng.uniform(0, 15))
                await self._start()

    async def _something_acknowledged(self) -> None:
        """Wait briefly for an acknowledged commit, so that the next crash occurs directly after it."""
        before = list(self.history.committed)
        for _ in range(100):
            if self.history.committed != before:
                return
            await asyncio.sleep(0.02)

    async def _look_on(self) -> None:
        """Describe the group and fetch its offsets every second."""
        history = self.history
        while not self.is_over:
            with suppress(KafkaError, OSError, NotNowError):
                connection = await self.cluster.connect()
                try:
                    while not self.is_over:
                        before = list(history.committed)
                        history.saw(before, await fetch(connection))
                        await self._describe(connection)
                        await asyncio.sleep(1)
                finally:
                    connection.close()
            await asyncio.sleep(0.5)

    async def _describe(self, connection: BrokerConnection) -> None:
        known = self.history.known()
        (group,) = (await connection.send(DescribeGroupsRequest(groups=[GROUP]), 5)).groups
        if group.error_code == ErrorCode.NONE and group.group_state == ClassicGroupState.STABLE.value:
            shares = {
                one.group_instance_id or one.member_id: Share.read(one.member_assignment) for one in group.members
            }
            self.history.described(known, shares, self.world.loop.time())

    async def _keep_ledger(self) -> None:
        """Commit, delete and fetch the offset of a group without members, as an operator does."""
        ledger, rng = Ledger(), random.Random(self.random.random())
        number = 0
        while not self.is_over:
            await asyncio.sleep(rng.uniform(0.5, 15))
            with suppress(KafkaError, OSError, NotNowError):
                connection = await self.cluster.connect()
                try:
                    ledger.saw((await fetch(connection, LEDGER))[0])
                    if rng.random() < 0.4:
                        ledger.asked(-1)
                        (result,) = (await connection.send(DeleteGroupsRequest(groups_names=[LEDGER]), 1)).results
                        error = result.error_code
                    else:
                        number += 1
                        ledger.asked(number)
                        request = commit_request(self.cluster, 8, number, group_id=LEDGER)
                        error = (await connection.send(request, 8)).topics[0].partitions[0].error_code
                    if error == ErrorCode.NONE:
                        ledger.acknowledged()
                finally:
                    connection.close()


async def fetch(connection: BrokerConnection, group_id: str = GROUP) -> list[int]:
    """Return the committed offsets of all partitions."""
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(PARTITIONS)))
    response = await connection.send(OffsetFetchRequest(group_id=group_id, topics=[asked]), 6)
    if response.error_code:
        raise NotNowError
    return [partition.committed_offset for partition in response.topics[0].partitions]


class Place:
    """A sequence of processes of one member. With a static member, two processes may run concurrently."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.number = number
        self.random = rng = random.Random(f"{run.random.random()}/{number}")
        self.instance_id = f"static-{number}" if rng.random() < 0.4 else None
        self.versions = rng.choice([(9, 5, 4, 5), (8, 5, 4, 5), (5, 3, 3, 3)] + [(0, 0, 0, 0)] * (not self.instance_id))
        self.processes: list[Process] = []

    async def live(self) -> None:
        while not self.run.is_over:
            working = asyncio.ensure_future(self._work())
            tasks = {working}
            if self.instance_id is not None and not self.run.is_calm and self.random.random() < 0.5:
                # The successor starts while the former process still exists, running or paused.
                await asyncio.sleep(self.random.uniform(3, 40))
                tasks.add(asyncio.ensure_future(self._work()))
            await asyncio.gather(*tasks)
            is_long_gone = not self.run.is_calm and self.random.random() < 0.2
            await asyncio.sleep(self.random.uniform(15, 40) if is_long_gone else self.random.uniform(0.1, 3))

    async def _work(self) -> None:
        rng = self.random
        member = Member(
            self.run.cluster,
            instance_id=self.instance_id,
            versions=self.versions,
            protocols=("range", f"own-{self.number}"),
            session_ms=rng.choice([6000, int(LONGEST_SESSION_S * 1000)]),
            rebalance_ms=rng.choice([6000, 20_000]),
        )
        process = Process(self, member)
        self.processes.append(process)
        with suppress(KafkaError, OSError, SuddenDeathError):
            await process.work()
        self.processes.remove(process)


class Process:
    """A consumer process from its start to its end."""

    def __init__(self, place: Place, member: Member) -> None:
        self.place = place
        self.run = place.run
        self.history = place.run.history
        self.member = member
        self.random = place.random
        self.positions: dict[int, int] = {}
        self._sign_of_life: float | None = None
        """The time of the last request whose response showed that the member had not missed a rebalance."""

    @property
    def is_over(self) -> bool:
        return self.run.is_over

    @property
    def name(self) -> str:
        return self.member.instance_id or self.member.member_id

    @property
    def _now(self) -> float:
        return self.run.world.loop.time()

    def _has_bad_luck(self, chance: float) -> bool:
        return not self.run.is_calm and self.random.random() < chance

    async def work(self) -> None:
        await self.member.connect()
        try:
            while not self.is_over and await self._enter():
                await self._consume()
                if self._has_bad_luck(0.15):
                    await self._leave()
                    return
        finally:
            self.member.vanish()

    async def _leave(self) -> None:
        member, known = self.member, self._known()
        self._sign_of_life = None
        if await member.leave() is ErrorCode.NONE:
            assert not (known.is_fenced and known.life == self.history.life), "a replaced process could leave"

    def _known(self) -> Known:
        """Return the facts for the check of a response. Call this function directly before the request."""
        self.history.heard(self.name, self._now)
        return self.history.known(self.member.member_id)

    # -- joining ---------------------------------------------------------------------------------------------------

    async def _enter(self) -> bool:
        """Join and sync; return False if this process has been replaced."""
        while not self.is_over:
            if not self.member.member_id and self._has_bad_luck(0.1):
                self.history.doubtful |= self._others()
                self.history.heard(self.name, self._now)
                await self.member.join_once()
                self.history.heard(self.name, self._now)
                raise SuddenDeathError  # perhaps after the coordinator has assigned a member id
            error = await self._join()
            if error is ErrorCode.NONE:
                if self._has_bad_luck(0.05):
                    raise SuddenDeathError
                if self._has_bad_luck(0.05):
                    await asyncio.sleep(self.random.uniform(1, 25))
                error = await self._sync()
            if error is ErrorCode.NONE:
                await self._take_over()
                if self._has_bad_luck(0.05):
                    await self._speak_late()
                return True
            if error is ErrorCode.FENCED_INSTANCE_ID:
                return False
            self._note(error)
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
        return False

    def _others(self) -> set[str]:
        """Return the member ids of the other processes of this member."""
        return {one.member.member_id for one in self.place.processes if one is not self}

    async def _join(self) -> ErrorCode:
        member, known = self.member, self._known()
        others = self._others()
        if not member.member_id:
            self.history.doubtful |= others
        error = await member.join()
        self.history.heard(self.name, self._now)
        if error is ErrorCode.NONE:
            self.history.joined(known, member.generation, member.instance_id, others, member.member_id)
        return error

    async def _sync(self) -> ErrorCode:
        member, known, sent = self.member, self._known(), self._now
        joined = member.joined
        assert joined is not None
        is_to_plan = member.is_leader and not joined.skip_assignment
        error = await member.sync(
            plan(member.generation, [one.member_id for one in joined.members]) if is_to_plan else {}
        )
        self.history.heard(self.name, self._now)
        if error is ErrorCode.NONE:
            self.history.owns(known, member.generation, self.name, Share.read(member.assignment))
            self._sign_of_life = sent
        return error

    async def _take_over(self) -> None:
        """Set the positions to the committed offsets of the group."""
        while True:
            before = list(self.history.committed)
            with suppress(NotNowError):
                offsets = await fetch(self.member.connection)
                self.history.saw(before, offsets)
                self.positions = {one: max(offsets[one], 0) for one in Share.read(self.member.assignment).partitions}
                return
            await asyncio.sleep(0.2)

    async def _speak_late(self) -> None:
        """Send a request with the previous generation, as a thread does that was paused during the rebalance."""
        member, known = self.member, self.history.known()
        generation = member.generation - 1
        member.generation, present = generation, member.generation
        try:
            for request in (member.heartbeat, lambda: member.sync({}), lambda: member.commit(0)):
                if await request() is ErrorCode.NONE:
                    self.history.accepted(known, generation, "a late request")
        finally:
            member.generation = present

    # -- membership ------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        """Commit and send heartbeats until the member must join again."""
        rng = self.random
        while not self.is_over:
            if self._has_bad_luck(0.02):
                raise SuddenDeathError
            if self._has_bad_luck(0.03):
                await asyncio.sleep(rng.uniform(5, 40))  # a pause, after which the process is a zombie
            for partition in rng.sample(sorted(self.positions), min(2, len(self.positions))):
                if not await self._commit(partition):
                    return
            if not await self._beat() or self._has_bad_luck(self.run.restlessness):
                return
            await asyncio.sleep(rng.uniform(0.3, 2))

    async def _commit(self, partition: int) -> bool:
        known = self._known()
        offset = self.positions[partition] + self.random.randint(1, 5)
        error = await self.member.commit(offset, partition=partition)
        if error is ErrorCode.NONE:
            self.positions[partition] = offset
            self.history.committed[partition] = max(self.history.committed[partition], offset)
        return self._is_still_in(error, known, "a commit")

    async def _beat(self) -> bool:
        known, sent = self._known(), self._now
        error = await self.member.heartbeat()
        if error is ErrorCode.NONE:
            self._sign_of_life = sent
        return self._is_still_in(error, known, "a heartbeat")

    def _is_still_in(self, error: ErrorCode, known: Known, what: str) -> bool:
        if error is ErrorCode.NONE:
            self.history.accepted(known, self.member.generation, what)
        elif error not in RETRIABLE:
            self._note(error)
            return False
        return True

    def _note(self, error: ErrorCode) -> None:
        """Handle an error as a client does before it joins again."""
        member = self.member
        if error is ErrorCode.FENCED_INSTANCE_ID:
            raise SuddenDeathError
        if error is not ErrorCode.UNKNOWN_MEMBER_ID:
            assert error in JOIN_AGAIN | RETRIABLE, error.name
            return
        if self._sign_of_life is not None and member.member_id not in self.history.doubtful:
            silent = self._now - self._sign_of_life
            least = min(member.session_ms, member.rebalance_ms) / 1000
            assert silent >= least, f"removed {silent:.1f} s after its last request, before {least:.0f} s had passed"
        self._sign_of_life = None
        member.member_id = ""


def play_seed(seed: int) -> History:
    """Play a seed. Raises AssertionError after a violation."""

    async def main(loop: SimLoop) -> History:
        return await Run(loop, seed).go()

    history: History = run(main, seed, most_steps=50_000_000)
    return history
