"""The consumption of one share group by many members in one process: records, acknowledgements, redeliveries.

The members are minimal clients: they encode requests, decode the fields of responses, and do not decode records. The
load is one process, so its processor time is measured as well: near 100 % it would limit the rates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import chain
from typing import Any

from bench.modern_group_member import connect
from bench.process import CpuMeter
from bench.share_group_member import ShareGroupMember
from bench.share_session import ACCEPT, RELEASE, Acknowledged, Acquired, ShareSession, accept

from barnabas.clients import Admin, raise_first
from barnabas.clients.admin.configs import ConfigChange
from barnabas.protocol.config_resources import ConfigResource, ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.server.runtime.host import event_loop

SETTLE_TIMEOUT_S = 120.0
SETTLE_STEP_S = 0.25
REDELIVERY_TIMEOUT_S = 15.0
BEGIN_TIMEOUT_S = 60.0
CONNECTIONS_PER_BATCH = 100


class Phase:
    """The counts of one phase of the load, in which all members run the same loop for `seconds` or `records`."""

    def __init__(self, seconds: float, records: int) -> None:
        self.records = 0
        """Number of acquired records, including redeliveries."""
        self.acknowledgements = 0
        """Number of records whose acknowledgement the broker has confirmed."""
        self.redelivered_s: list[float] = []
        """Seconds between a request that releases a record and the response that delivers it again."""
        self.is_over = False
        self._seconds = seconds
        self._limit = records
        self._has_begun = asyncio.Event()
        self._has_limit_reached = asyncio.Event()
        self._released: dict[tuple[int, int], float] = {}
        """The time of the release of each record, by partition and offset, until it is delivered again."""

    async def run(self, members: Sequence[Awaitable[None]], pids: Collection[int]) -> dict[str, float]:
        """Let the members run, and return the rates of the phase and the processor time of `pids` and of this process.

        Time is measured from the first acknowledgement that the broker confirms. Returns when the members have ended.
        Raises the first error of a member.
        """
        running = asyncio.gather(*members)
        await _first_of(running, self._has_begun, BEGIN_TIMEOUT_S)
        broker, own_begin, begin = CpuMeter(tuple(pids)), time.process_time(), time.perf_counter()
        before = self.records, self.acknowledgements
        await _first_of(running, self._has_limit_reached, self._seconds)
        self.is_over = True
        elapsed, cpu_s, own_cpu_s = time.perf_counter() - begin, broker.spent(), time.process_time() - own_begin
        records, acknowledgements = self.records - before[0], self.acknowledgements - before[1]
        await running
        assert records and acknowledgements, "the members acquired no records"
        return {
            "records_per_s": records / elapsed,
            "acknowledgements_per_s": acknowledgements / elapsed,
            "cpu_us_per_record": cpu_s * 1e6 / records,
            "load_cpu_percent": own_cpu_s / elapsed * 100,
        }

    async def consume(self, session: ShareSession, acquired: list[Acquired]) -> None:
        """Fetch records; each ShareFetch accepts the records of the last one."""
        while not self.is_over:
            before, acquired = acquired, await session.fetch(accept(acquired))
            self._count(acquired)
            self._count_acknowledged(before)
        if acquired:
            await session.acknowledge(accept(acquired))

    async def acknowledge(self, session: ShareSession) -> None:
        """Fetch records, and acknowledge them with a ShareAcknowledge that has a type for each record.

        One record of each range that is delivered for the first time is released, the others are accepted. At the end
        of the phase the member continues without releases until the last released record has been delivered again.
        """
        over_at = 0.0
        while not self.is_over or self._released:
            acquired = await session.fetch()
            now = time.perf_counter()
            self._count(acquired)
            self._note_redeliveries(acquired, now)
            if acquired:
                await session.acknowledge(self._with_releases(acquired))
                self._count_acknowledged(acquired)
            if self.is_over:
                over_at = over_at or now
                if now - over_at > REDELIVERY_TIMEOUT_S:
                    raise RuntimeError(f"{len(self._released)} released records were not delivered again")

    def _count(self, acquired: Sequence[Acquired]) -> None:
        self.records += sum(one.record_count for one in acquired)
        if self.records >= self._limit:
            self._has_limit_reached.set()

    def _count_acknowledged(self, acknowledged: Sequence[Acquired]) -> None:
        if acknowledged:
            self.acknowledgements += sum(one.record_count for one in acknowledged)
            self._has_begun.set()

    def _note_redeliveries(self, acquired: Sequence[Acquired], now: float) -> None:
        for one in acquired:
            if one.delivery_count > 1:
                for offset in range(one.first_offset, one.last_offset + 1):
                    self.redelivered_s.append(now - self._released.pop((one.partition, offset)))

    def _with_releases(self, acquired: Sequence[Acquired]) -> Acknowledged:
        made = []
        now = time.perf_counter()
        for one in acquired:
            types = [ACCEPT] * one.record_count
            if one.delivery_count == 1 and not self.is_over:
                middle = one.record_count // 2
                types[middle] = RELEASE
                self._released[one.partition, one.first_offset + middle] = now
            made.append((one, types))
        return made


class ShareGroupLoad:
    """The members of one new group, which begins at the first record of its topic."""

    def __init__(self, bootstrap: str, topic: str, group_id: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group_id = group_id
        self._members: list[ShareGroupMember] = []
        self._heartbeats: list[asyncio.Task[None]] = []
        self.sessions: list[ShareSession] = []

    async def join(self, count: int, partitions: int) -> None:
        """Let `count` members join, and return when all have partitions and the group has assigned all partitions."""
        resource = ConfigResource(ConfigResourceType.GROUP, self._group_id)
        async with Admin(self._bootstrap) as admin:
            earliest = ConfigChange("share.auto.offset.reset", "earliest")
            raise_first(await admin.alter_configs({resource: [earliest]}))
            # A broker of Apache Kafka applies the change after its response; the group must not begin earlier.
            await _until(lambda: _is_set(admin, resource, earliest), "the setting of the group")
        for start in range(0, count, CONNECTIONS_PER_BATCH):
            some = range(start, min(count, start + CONNECTIONS_PER_BATCH))
            opened = (ShareGroupMember.open(self._bootstrap, self._group_id, self._topic) for _ in some)
            self._members += await asyncio.gather(*opened)
        await self._members[0].find_coordinator()
        await asyncio.gather(*(member.rejoin() for member in self._members))
        await _until(lambda: self._is_settled(partitions), "the assignment of the group")
        self._heartbeats = [
            asyncio.ensure_future(member.send_heartbeats(member.heartbeat_s * index / count))
            for index, member in enumerate(self._members)
        ]

    async def open(self) -> list[list[Acquired]]:
        """Open the sessions of all members; return the records that each has acquired."""
        for start in range(0, len(self._members), CONNECTIONS_PER_BATCH):
            some = self._members[start : start + CONNECTIONS_PER_BATCH]
            connections = await asyncio.gather(*(connect(self._bootstrap) for _ in some))
            self.sessions += map(ShareSession, connections, some)
        return list(await asyncio.gather(*(session.open() for session in self.sessions)))

    async def close(self) -> None:
        """Close the sessions, leave, and delete the group. Raises the first error of a heartbeat."""
        for task in self._heartbeats:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*self._heartbeats, return_exceptions=True)
        await asyncio.gather(*(session.close() for session in self.sessions))
        await asyncio.gather(*(member.leave() for member in self._members))
        async with Admin(self._bootstrap) as admin:
            raise_first(await admin.delete_share_groups([self._group_id]))
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections."""
        for session in self.sessions:
            session.disconnect()
        for member in self._members:
            member.close()

    async def _is_settled(self, partitions: int) -> bool:
        errors = await asyncio.gather(*(member.heartbeat() for member in self._members))
        assigned = set(chain.from_iterable(member.assigned for member in self._members))
        return (
            set(errors) == {ErrorCode.NONE}
            and all(member.assigned for member in self._members)
            and len({member.generation for member in self._members}) == 1
            and len(assigned) == partitions
        )


async def _first_of(running: asyncio.Future[Any], event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, for the end of the members or for the time."""
    happened = asyncio.ensure_future(event.wait())
    await asyncio.wait([running, happened], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    happened.cancel()


async def _is_set(admin: Admin, resource: ConfigResource, change: ConfigChange) -> bool:
    described = await admin.describe_configs([resource])
    return any((one.name, one.value) == (change.name, change.value) for one in described[resource])


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until the condition holds. Raises TimeoutError after two minutes."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not done within {SETTLE_TIMEOUT_S:g} s")
        await asyncio.sleep(SETTLE_STEP_S)


def consume(
    bootstrap: str,
    topic: str,
    *,
    group_id: str,
    members: int,
    partitions: int,
    records: int,
    seconds: float,
    pids: Sequence[int],
) -> dict[str, float]:
    """Consume a topic of `records` records with a new group: `seconds` with each kind of acknowledgement.

    First each ShareFetch accepts the records of the fetch before it, then there is a ShareAcknowledge after each
    ShareFetch, and a few records are released.
    """

    async def run() -> dict[str, float]:
        load = ShareGroupLoad(bootstrap, topic, group_id)
        # Towards the end of the topic only some partitions would still have records.
        limit = records * 2 // 5
        try:
            await load.join(members, partitions)
            acquired = await load.open()
            first = Phase(seconds, limit)
            consumed = await first.run(list(map(first.consume, load.sessions, acquired)), pids)
            second = Phase(seconds, limit)
            acknowledged = await second.run(list(map(second.acknowledge, load.sessions)), pids)
            await load.close()
        finally:
            load.disconnect()
        redelivered = sorted(second.redelivered_s)
        return {
            "records_per_s": consumed["records_per_s"],
            "cpu_us_per_record": consumed["cpu_us_per_record"],
            "acknowledgements_per_s": acknowledged["acknowledgements_per_s"],
            "cpu_us_per_acknowledgement": acknowledged["cpu_us_per_record"],
            "redelivery_p99_ms": redelivered[int(len(redelivered) * 0.99)] * 1000,
            "load_cpu_percent": max(consumed["load_cpu_percent"], acknowledged["load_cpu_percent"]),
        }

    with asyncio.Runner(loop_factory=event_loop) as runner:
        return runner.run(run())
