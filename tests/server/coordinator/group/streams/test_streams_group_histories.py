"""Random histories of streams members: an active task never has two owners, and each task has an owner at the end."""

from __future__ import annotations

import asyncio
import random

import pytest
from soak.groups.members import Cluster, play
from soak.groups.streams_members import SETTINGS, StreamsMember, settle, streams_group, topology

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.group.streams.tasks import iterate_tasks

SEEDS = 12
STEPS = 60
REPAIRABLE = {
    ErrorCode.NONE,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}
PARTITIONS = 7


class History:
    """Members that beat, lose responses, vanish, leave and return, and the broker that restarts, in random order."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.members: list[StreamsMember] = []
        self._made = 0

    async def join(self) -> None:
        process, static = self.rng.choice("pqr"), self.rng.random() < 0.3
        number = self._made = self._made + 1
        self.members.append(
            await StreamsMember(
                self.cluster,
                f"m{number}",
                process=process,
                instance_id=f"i{number}" if static else None,
                with_topology=topology("wide"),
                rebalance_ms=20_000,
            ).connect()
        )

    def check_owners(self) -> None:
        """No two members work on a task: each holds a task from its grant until it has reported the revocation."""
        owners: dict[tuple[str, int], str] = {}
        for member in self.members:
            for task in member.active:
                assert task not in owners, f"{task} is active at {owners[task]} and {member.member_id}"
                owners[task] = member.member_id

    async def step(self) -> None:
        action = self.rng.random()
        if not self.members or (action < 0.12 and len(self.members) < 6):
            await self.join()
            return
        member = self.rng.choice(self.members)
        if action < 0.7:
            self.handle(member, await member.turn())
        elif action < 0.8:
            # The response is lost, and the member repeats everything that it has.
            fields = {} if member.epoch else member.joining_fields()
            await member.send(**fields)
            if member.epoch:
                member._reported = None
                self.handle(member, await member.turn())
        elif action < 0.86:
            await member.leave()
            self.members.remove(member)
        elif action < 0.9 and member.instance_id is not None:
            if await member.leave(-2) is ErrorCode.NONE:
                member.member_id += "x"
        elif action < 0.93:
            member.vanish()
            self.members.remove(member)
            member.active = set()
        elif action < 0.96:
            await self.cluster.restart(self.rng.choice(["kill", "stop", "power"]))
            for one in self.members:
                await one.connect()
        else:
            await asyncio.sleep(self.rng.choice([1, 5, 25]))

    def handle(self, member: StreamsMember, code: ErrorCode) -> None:
        """A fenced member gives up its tasks, as clients do."""
        assert code in REPAIRABLE, code
        if code is not ErrorCode.NONE:
            member.fenced()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_active_task_has_one_owner_at_each_moment(seed: int) -> None:
    rng = random.Random(seed)

    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("wide", PARTITIONS)
        history = History(cluster, rng)
        for _ in range(STEPS):
            await history.step()
            history.check_owners()
        if not history.members:
            await history.join()
        await asyncio.sleep(60)  # sessions of members that have vanished end, and those of the others too
        for member in history.members:
            member.fenced()
        await settle(*history.members)
        history.check_owners()
        owned = set().union(*(member.active for member in history.members))
        assert owned == {("0", partition) for partition in range(PARTITIONS)}
        group = streams_group(cluster)
        for member in history.members:
            found = group.members[member.member_id].assigned.active
            assert set(iterate_tasks(found)) == member.active

    play(talk, settings={**SETTINGS, "group.streams.num.standby.replicas": "1"}, seed=seed)
