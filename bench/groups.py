"""Group benches: joins of many groups, rebalances of many members, heartbeats of thousands, and loading of offsets."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean

from bench import load
from bench.bench import Figures, Run
from bench.member_process import MemberProcess
from bench.members import HEARTBEAT_S, PlainConnection
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
GROUPS, MEMBERS_PER_GROUP = 1000, 5
MEMBERS_OF_LARGE_GROUP = 999
"""The members before the thousandth joins: Barnabas's default of `group.max.size` allows 1000."""
OFFSETS, OFFSETS_PER_GROUP = 100_000, 100
RESTARTS, RESTART_S = 3, 2.0
"""Latencies are measured for about the time that loading takes. The percentiles are means of three starts."""
MIN_LATENCY_S = 6.0
"""The minimum time of a latency measurement: 5400 latencies count. A rebalance takes about one heartbeat interval."""


def produce_p99_ms(run: Run, seconds: float) -> float:
    """Measure the 99th percentile of 1000 produce requests per second, from a separate process."""
    return load.run("latency", bootstrap=run.target.bootstrap, topic=TOPIC, seconds=seconds)["p99_ms"]


def produce_latencies(calm: float, busy: float) -> Figures:
    """Return the latency of producers on an idle broker and during other work."""
    return {"produce_p99_ms_calm": calm, "produce_p99_ms": busy, "produce_p99_ratio": busy / calm}


def prepare_groups(run: Run) -> None:
    """Create a topic, and send requests so that the JVM compiles their code."""
    run.target.create_topic(TOPIC, OFFSETS_PER_GROUP)
    load.run("single", bootstrap=run.target.bootstrap, topics=[TOPIC], seconds=run.seconds)


def measure_rebalance(run: Run) -> Figures:
    """Measure the longest rebalance of 999 members, while another member joins and leaves again and again."""
    group_id = f"large-group-{run.number}"
    return _measure_rebalances(run, [group_id] * MEMBERS_OF_LARGE_GROUP, [group_id])


def measure_rebalances(run: Run) -> Figures:
    """Measure the longest rebalance of 1000 groups, while a fifth member of each joins, all together, and leaves."""
    group_ids = [f"group-{run.number}-{index}" for index in range(GROUPS)]
    return _measure_rebalances(run, group_ids * (MEMBERS_PER_GROUP - 1), group_ids)


def _measure_rebalances(run: Run, members: Sequence[str], newcomers: Sequence[str]) -> Figures:
    seconds = max(run.seconds, MIN_LATENCY_S)
    calm = produce_p99_ms(run, seconds)
    with MemberProcess(run.target.bootstrap) as members_process:
        members_process.add(members)
        meter = CpuMeter(run.target.pids)
        members_process.rebalance(newcomers)
        busy = produce_p99_ms(run, seconds)
        spent = members_process.stop_rebalances()
        cost = meter.spent() / len(spent)
    return {"rebalance_s": max(spent), "cpu_s_per_rebalance": cost, **produce_latencies(calm, busy)}


def measure_joins(run: Run) -> Figures:
    """Measure 1000 new groups of five members that join together, from the first JoinGroup to the last assignment."""
    seconds = max(run.seconds, MIN_LATENCY_S)
    calm = produce_p99_ms(run, seconds)
    with MemberProcess(run.target.bootstrap) as members_process, ThreadPoolExecutor() as pool:
        members_process.connect(_members_of_groups(run))
        meter, producing = CpuMeter(run.target.pids), pool.submit(produce_p99_ms, run, seconds)
        joined_s = members_process.join()
        busy = producing.result()
        cost = meter.spent()
    return {"joined_s": joined_s, "cpu_s": cost, **produce_latencies(calm, busy)}


def _members_of_groups(run: Run) -> list[str]:
    """Return the group id of each of 5000 members: the first member of every group, then the second, and so on."""
    return [f"group-{run.number}-{index}" for index in range(GROUPS)] * MEMBERS_PER_GROUP


def prepare_modern_groups(run: Run) -> None:
    """Create a topic with a partition per member, and send requests so that the JVM compiles their code."""
    run.target.create_topic(TOPIC, MEMBERS_PER_GROUP)
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
    seconds = max(run.seconds, MIN_LATENCY_S)
    calm = produce_p99_ms(run, seconds)
    with MemberProcess(run.target.bootstrap, group_type) as members_process:
        entered_s = members_process.add(_members_of_groups(run))
        # Twice the interval: by then the last assignments have been reported.
        time.sleep(2 * heartbeat_s)
        meter, before, begin = CpuMeter(run.target.pids), members_process.heartbeats(), time.perf_counter()
        time.sleep(seconds)
        elapsed = time.perf_counter() - begin
        cost, heartbeats = meter.spent(), members_process.heartbeats() - before
        busy = produce_p99_ms(run, seconds)
    return {
        "entered_s": entered_s,
        "heartbeats_per_s": heartbeats / elapsed,
        "cpu_percent": cost / elapsed * 100,
        "cpu_us_per_heartbeat": cost / heartbeats * 1e6,
        **produce_latencies(calm, busy),
    }


def measure_restart(run: Run) -> Figures:
    """Measure the time from a restart's first response until all 100 000 offsets of 1000 groups can be read."""
    if not run.number:
        asyncio.run(_commit_offsets(run))
    calm = produce_p99_ms(run, MIN_LATENCY_S)
    restarts = []
    for _ in range(RESTARTS):
        run.target.stop()
        restarts.append(asyncio.run(_restart(run)))
    mean = {name: fmean(one[name] for one in restarts) for name in restarts[0]}
    return {"load_s": mean["load_s"], "start_s": mean["start_s"], **produce_latencies(calm, mean["p99_ms"])}


async def _commit_offsets(run: Run) -> None:
    connection = await PlainConnection.open(run.target.bootstrap)
    for index in range(OFFSETS // OFFSETS_PER_GROUP):
        group_id = f"reader-{index}"
        partitions = [
            OffsetCommitRequestPartition(partition_index=p, committed_offset=p) for p in range(OFFSETS_PER_GROUP)
        ]
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
        request = OffsetCommitRequest(group_id=group_id, topics=[topic])
        while True:
            await connection.send(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=group_id))
            (response,) = (await connection.send(ApiKey.OFFSET_COMMIT, 7, request)).topics
            if not any(partition.error_code for partition in response.partitions):
                break
            await asyncio.sleep(0.1)
    connection.close()


async def _restart(run: Run) -> Figures:
    # The producer starts before the broker and retries until the broker responds.
    producing = asyncio.create_task(asyncio.to_thread(produce_p99_ms, run, RESTART_S))
    await asyncio.sleep(1)
    begin = time.perf_counter()
    run.target.start()  # not in another thread: the process ends with the thread that started it
    started = time.perf_counter()
    connection = await PlainConnection.open(run.target.bootstrap)
    # All offsets of a group become readable together. One offset per group is read here; all are counted afterwards,
    # outside the measured time.
    for index in range(OFFSETS // OFFSETS_PER_GROUP):
        while await _count_offsets(connection, f"reader-{index}", [index % OFFSETS_PER_GROUP]) != 1:
            await asyncio.sleep(0.005)
    loaded = time.perf_counter()
    p99_ms = await producing
    for index in range(OFFSETS // OFFSETS_PER_GROUP):
        count = await _count_offsets(connection, f"reader-{index}", list(range(OFFSETS_PER_GROUP)))
        assert count == OFFSETS_PER_GROUP, f"{count} offsets of group {index}"
    connection.close()
    return {"load_s": loaded - started, "start_s": loaded - begin, "p99_ms": p99_ms}


async def _count_offsets(connection: PlainConnection, group_id: str, partitions: list[int]) -> int:
    request = OffsetFetchRequest(
        group_id=group_id, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=partitions)]
    )
    response = await connection.send(ApiKey.OFFSET_FETCH, 5, request)
    if response.error_code:
        return 0
    return sum(partition.committed_offset >= 0 for topic in response.topics for partition in topic.partitions)
