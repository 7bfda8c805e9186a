"""Benches of groups: rebalances of many members, heartbeats of thousands, a start with many offsets."""

import asyncio
import time
from typing import Any

from tests.bench import load
from tests.bench.bench import Figures, Run
from tests.bench.members import HEARTBEAT_S, Caller, Crowd, Member
from tests.bench.process import CpuMeter

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

TOPIC = "test"
GROUPS, MEMBERS_EACH = 1000, 5
MEMBERS_OF_ONE = 999
"""And the newcomer, who is the thousandth: as many as `group.max.size` of ours allows."""
OFFSETS, OFFSETS_EACH = 100_000, 100
RESTART_S = 2.0
"""About as long as loading takes."""
LEAST_S = 5.0
"""Latencies are taken for so long at least: a rebalance lasts about as long as the heartbeat interval."""


def produce_p99_ms(run: Run, seconds: float) -> float:
    """Of 1000 produce requests a second, from a process of their own."""
    return load.run("latency", bootstrap=run.target.bootstrap, topic=TOPIC, seconds=seconds)["p99_ms"]


def beside(calm: float, busy: float) -> Figures:
    """What producing costs when nothing else goes on, and while something does."""
    return {"produce_p99_ms_calm": calm, "produce_p99_ms": busy, "produce_p99_ratio": busy / calm}


def prepare_groups(run: Run) -> None:
    """A topic, and requests for the JVM to compile what it runs."""
    run.target.create_topic(TOPIC, OFFSETS_EACH)
    load.run("single", bootstrap=run.target.bootstrap, topics=[TOPIC], seconds=run.seconds)


def measure_rebalance(run: Run) -> Figures:
    """A newcomer joins 1000 members and leaves again, over and over: the longest until all had their assignments."""
    seconds = max(run.seconds, LEAST_S)
    return asyncio.run(_rebalance(run, seconds))


async def _rebalance(run: Run, seconds: float) -> Figures:
    calm = await asyncio.to_thread(produce_p99_ms, run, seconds)
    crowd, group_id = Crowd(run.target.bootstrap), f"crowd-{run.number}"
    try:
        await crowd.add([group_id] * MEMBERS_OF_ONE)
        await crowd.settled(1)
        newcomer = Member(await Caller.open(run.target.bootstrap), group_id)
        producing = asyncio.create_task(asyncio.to_thread(produce_p99_ms, run, seconds))
        meter, spent = CpuMeter(run.target.pid), []
        while not producing.done():
            for act in (newcomer.enter, newcomer.leave):
                generation = max(member.generation for member in crowd.members)
                begin = time.perf_counter()
                await act()
                spent.append(await crowd.settled(generation + 1) - begin)
        cost = meter.spent() / len(spent)
    finally:
        crowd.close()
    return {"rebalance_s": max(spent), "cpu_s_per_rebalance": cost, **beside(calm, await producing)}


def measure_heartbeats(run: Run) -> Figures:
    """1000 groups of five members that do nothing but beat."""
    return asyncio.run(_heartbeats(run, max(run.seconds, LEAST_S)))


async def _heartbeats(run: Run, seconds: float) -> Figures:
    calm = await asyncio.to_thread(produce_p99_ms, run, seconds)
    crowd = Crowd(run.target.bootstrap)
    try:
        begin = time.perf_counter()
        await crowd.add([f"group-{run.number}-{index}" for index in range(GROUPS)] * MEMBERS_EACH)
        entered_s = await crowd.settled(1) - begin
        await asyncio.sleep(2 * HEARTBEAT_S)
        meter, before, begin = CpuMeter(run.target.pid), crowd.heartbeats, time.perf_counter()
        await asyncio.sleep(seconds)
        elapsed = time.perf_counter() - begin
        cost, beats = meter.spent(), crowd.heartbeats - before
        busy = await asyncio.to_thread(produce_p99_ms, run, seconds)
    finally:
        crowd.close()
    return {
        "entered_s": entered_s,
        "heartbeats_per_s": beats / elapsed,
        "cpu_percent": cost / elapsed * 100,
        "cpu_us_per_heartbeat": cost / beats * 1e6,
        **beside(calm, busy),
    }


def measure_restart(run: Run) -> Figures:
    """100 000 offsets of 1000 groups: from the start's first answer until the offsets of all groups can be read."""
    if not run.number:
        asyncio.run(_commit_offsets(run))
    calm = produce_p99_ms(run, LEAST_S)
    run.target.stop()
    return asyncio.run(_restart(run, calm))


async def _commit_offsets(run: Run) -> None:
    caller = await Caller.open(run.target.bootstrap)
    for index in range(OFFSETS // OFFSETS_EACH):
        group_id = f"reader-{index}"
        partitions = [OffsetCommitRequestPartition(partition_index=p, committed_offset=p) for p in range(OFFSETS_EACH)]
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
        request = OffsetCommitRequest(group_id=group_id, topics=[topic])
        while True:
            await caller.send(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=group_id))
            (answer,) = (await caller.send(ApiKey.OFFSET_COMMIT, 7, request)).topics
            if not any(partition.error_code for partition in answer.partitions):
                break
            await asyncio.sleep(0.1)
    caller.close()


async def _restart(run: Run, calm: float) -> Figures:
    # The producer is there first and tries until it is answered.
    producing = asyncio.create_task(asyncio.to_thread(produce_p99_ms, run, RESTART_S))
    await asyncio.sleep(1)
    begin = time.perf_counter()
    run.target.start()  # from this thread, with which it ends
    answering = time.perf_counter()
    caller = await Caller.open(run.target.bootstrap)
    for index in range(OFFSETS // OFFSETS_EACH):
        while await _count_offsets(caller, f"reader-{index}") != OFFSETS_EACH:
            await asyncio.sleep(0.005)
    loaded = time.perf_counter()
    caller.close()
    return {"load_s": loaded - answering, "start_s": loaded - begin, **beside(calm, await producing)}


async def _count_offsets(caller: Caller, group_id: str) -> int:
    request: Any = OffsetFetchRequest(group_id=group_id, topics=None)
    answer = await caller.send(ApiKey.OFFSET_FETCH, 5, request)
    return 0 if answer.error_code else sum(len(topic.partitions) for topic in answer.topics)
