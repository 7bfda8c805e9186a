"""Group benches: joins of many groups, rebalances of many members, heartbeats of thousands, and loading of offsets."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean

from bench import load
from bench.bench import Figures, Run
from bench.crowd_process import CrowdProcess
from bench.members import HEARTBEAT_S, Caller
from bench.modern_group_member import HEARTBEAT_S as MODERN_HEARTBEAT_S
from bench.process import CpuMeter

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

TOPIC = "test"
GROUPS, MEMBERS_EACH = 1000, 5
MEMBERS_OF_ONE = 999
"""The members before the thousandth joins: Barnabas's default of `group.max.size` allows 1000."""
OFFSETS, OFFSETS_EACH = 100_000, 100
RESTARTS, RESTART_S = 3, 2.0
"""Latencies are measured for about the time that loading takes. The percentiles are means of three starts."""
LEAST_S = 6.0
"""The minimum time of a latency measurement: 5400 latencies count. A rebalance takes about one heartbeat interval."""


def produce_p99_ms(run: Run, seconds: float) -> float:
    """Measure the 99th percentile of 1000 produce requests per second, from a separate process."""
    return load.run("latency", bootstrap=run.target.bootstrap, topic=TOPIC, seconds=seconds)["p99_ms"]


def beside(calm: float, busy: float) -> Figures:
    """Return the latency of producers on an idle broker and during other work."""
    return {"produce_p99_ms_calm": calm, "produce_p99_ms": busy, "produce_p99_ratio": busy / calm}


def prepare_groups(run: Run) -> None:
    """Create a topic, and send requests so that the JVM compiles their code."""
    run.target.create_topic(TOPIC, OFFSETS_EACH)
    load.run("single", bootstrap=run.target.bootstrap, topics=[TOPIC], seconds=run.seconds)


def measure_rebalance(run: Run) -> Figures:
    """Measure the longest rebalance of 999 members, while another member joins and leaves again and again."""
    group_id = f"crowd-{run.number}"
    return _measure_rebalances(run, [group_id] * MEMBERS_OF_ONE, [group_id])


def measure_rebalances(run: Run) -> Figures:
    """Measure the longest rebalance of 1000 groups, while a fifth member of each joins, all together, and leaves."""
    group_ids = [f"group-{run.number}-{index}" for index in range(GROUPS)]
    return _measure_rebalances(run, group_ids * (MEMBERS_EACH - 1), group_ids)


def _measure_rebalances(run: Run, members: Sequence[str], newcomers: Sequence[str]) -> Figures:
    seconds = max(run.seconds, LEAST_S)
    calm = produce_p99_ms(run, seconds)
    with CrowdProcess(run.target.bootstrap) as crowd:
        crowd.add(members)
        meter = CpuMeter(run.target.pids)
        crowd.rebalance(newcomers)
        busy = produce_p99_ms(run, seconds)
        spent = crowd.rest()
        cost = meter.spent() / len(spent)
    return {"rebalance_s": max(spent), "cpu_s_per_rebalance": cost, **beside(calm, busy)}


def measure_joins(run: Run) -> Figures:
    """Measure 1000 new groups of five members that join together, from the first JoinGroup to the last assignment."""
    seconds = max(run.seconds, LEAST_S)
    calm = produce_p99_ms(run, seconds)
    with CrowdProcess(run.target.bootstrap) as crowd, ThreadPoolExecutor() as pool:
        crowd.connect(_members_of_groups(run))
        meter, producing = CpuMeter(run.target.pids), pool.submit(produce_p99_ms, run, seconds)
        joined_s = crowd.join()
        busy = producing.result()
        cost = meter.spent()
    return {"joined_s": joined_s, "cpu_s": cost, **beside(calm, busy)}


def _members_of_groups(run: Run) -> list[str]:
    """Return the group id of each of 5000 members: the first member of every group, then the second, and so on."""
    return [f"group-{run.number}-{index}" for index in range(GROUPS)] * MEMBERS_EACH


def prepare_modern_groups(run: Run) -> None:
    """Create a topic with a partition per member, and send requests so that the JVM compiles their code."""
    run.target.create_topic(TOPIC, MEMBERS_EACH)
    load.run("single", bootstrap=run.target.bootstrap, topics=[TOPIC], seconds=run.seconds)


def measure_heartbeats(run: Run) -> Figures:
    """Measure the heartbeats of 1000 classic groups of five members, after all have joined together."""
    return _measure_heartbeats(run, "classic", HEARTBEAT_S)


def measure_share_heartbeats(run: Run) -> Figures:
    """Measure the heartbeats of 1000 share groups of five members."""
    return _measure_heartbeats(run, "share", MODERN_HEARTBEAT_S)


def measure_streams_heartbeats(run: Run) -> Figures:
    """Measure the heartbeats of 1000 streams groups of five members."""
    return _measure_heartbeats(run, "streams", MODERN_HEARTBEAT_S)


def _measure_heartbeats(run: Run, group_type: str, heartbeat_s: float) -> Figures:
    seconds = max(run.seconds, LEAST_S)
    calm = produce_p99_ms(run, seconds)
    with CrowdProcess(run.target.bootstrap, group_type) as crowd:
        entered_s = crowd.add(_members_of_groups(run))
        # Twice the interval: by then the last assignments have been reported.
        time.sleep(2 * heartbeat_s)
        meter, before, begin = CpuMeter(run.target.pids), crowd.heartbeats(), time.perf_counter()
        time.sleep(seconds)
        elapsed = time.perf_counter() - begin
        cost, beats = meter.spent(), crowd.heartbeats() - before
        busy = produce_p99_ms(run, seconds)
    return {
        "entered_s": entered_s,
        "heartbeats_per_s": beats / elapsed,
        "cpu_percent": cost / elapsed * 100,
        "cpu_us_per_heartbeat": cost / beats * 1e6,
        **beside(calm, busy),
    }


def measure_restart(run: Run) -> Figures:
    """Measure the time from a restart's first response until all 100 000 offsets of 1000 groups can be read."""
    if not run.number:
        asyncio.run(_commit_offsets(run))
    calm = produce_p99_ms(run, LEAST_S)
    restarts = []
    for _ in range(RESTARTS):
        run.target.stop()
        restarts.append(asyncio.run(_restart(run)))
    mean = {name: fmean(one[name] for one in restarts) for name in restarts[0]}
    return {"load_s": mean["load_s"], "start_s": mean["start_s"], **beside(calm, mean["p99_ms"])}


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


async def _restart(run: Run) -> Figures:
    # The producer starts before the broker and retries until the broker responds.
    producing = asyncio.create_task(asyncio.to_thread(produce_p99_ms, run, RESTART_S))
    await asyncio.sleep(1)
    begin = time.perf_counter()
    run.target.start()  # not in another thread: the process ends with the thread that started it
    answering = time.perf_counter()
    caller = await Caller.open(run.target.bootstrap)
    # All offsets of a group become readable together. One offset per group is read here; all are counted afterwards,
    # outside the measured time.
    for index in range(OFFSETS // OFFSETS_EACH):
        while await _count_offsets(caller, f"reader-{index}", [index % OFFSETS_EACH]) != 1:
            await asyncio.sleep(0.005)
    loaded = time.perf_counter()
    p99_ms = await producing
    for index in range(OFFSETS // OFFSETS_EACH):
        count = await _count_offsets(caller, f"reader-{index}", list(range(OFFSETS_EACH)))
        assert count == OFFSETS_EACH, f"{count} offsets of group {index}"
    caller.close()
    return {"load_s": loaded - answering, "start_s": loaded - begin, "p99_ms": p99_ms}


async def _count_offsets(caller: Caller, group_id: str, partitions: list[int]) -> int:
    request = OffsetFetchRequest(
        group_id=group_id, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=partitions)]
    )
    answer = await caller.send(ApiKey.OFFSET_FETCH, 5, request)
    if answer.error_code:
        return 0
    return sum(partition.committed_offset >= 0 for topic in answer.topics for partition in topic.partitions)
