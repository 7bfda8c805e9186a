"""Benches of three brokers with Apache Kafka's KRaft controllers: produce, latency, memory, failover and start."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench.bench import BROKERS, Bench, Figures, Goal, Run
from bench.clusters import (
    LATENCY_RATE,
    LEADERS_PER_BROKER,
    PAGE_CACHE,
    SIZE,
    TOPIC,
    await_in_sync,
    brokers_of,
    measure_idle,
    measure_latency,
    partitions_of,
    prepare_partitions,
    produce_benches,
)
from bench.targets import TIMEOUT_S, BrokerTarget
from bench.wire import ResponseCounter, produce_request, send_until_accepted, small_batch
from confluent_kafka import ElectionType
from tests.server_process import wait_until

PARTITIONS = 10_000
"""Partitions with three replicas, of which each broker leads a third."""
REPLICATED = {
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
}
# The controller fences a killed broker at the end of its session; the measurement begins then.
SHORT_SESSION = {**REPLICATED, "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


def kraft_benches() -> list[Bench]:
    """Return benches with replication factor 3 and acknowledgements from the page caches of all in-sync replicas."""
    return [
        *produce_benches(
            "kraft-produce-{}",
            "from the page caches, KRaft",
            {**PAGE_CACHE, **REPLICATED},
            (Goal("mb_per_s", "kafka", 1.7), Goal("cpu_s_per_gb", "kafka", 0.5)),
            kraft=True,
        ),
        Bench(
            "kraft-latency",
            f"{LATENCY_RATE} single-record produce requests per second to one leader, acks -1, from the page caches",
            {"p50_ms": "lower", "p99_ms": "lower", "p999_ms": "lower"},
            measure_latency,
            brokers=SIZE,
            kraft=True,
            targets=BROKERS,
            properties={**PAGE_CACHE, **REPLICATED},
            goals=(Goal("p99_ms", "kafka", 0.5),),
        ),
        Bench(
            "kraft-idle",
            "resident memory of three brokers of a KRaft cluster that have just started, without the controllers",
            {"idle_mb": "lower"},
            measure_idle,
            brokers=SIZE,
            kraft=True,
            targets=BROKERS,
            properties=REPLICATED,
            goals=(Goal("idle_mb", "kafka", 0.15),),
            cold="memory right after a start is measured",
            rounds=1,
            warmup=0,
        ),
        Bench(
            "kraft-failover",
            f"kill -9 of a broker that leads {LEADERS_PER_BROKER} partitions, from its fencing until all of them "
            "acknowledge",
            {"failover_s": "lower"},
            measure_failover,
            partial(prepare_partitions, partitions=LEADERS_PER_BROKER * SIZE),
            brokers=SIZE,
            kraft=True,
            targets=BROKERS,
            properties={**SHORT_SESSION, **PAGE_CACHE},
            goals=(Goal("failover_s", "kafka", 0.7),),
        ),
        Bench(
            "kraft-restart",
            f"{PARTITIONS} partitions with 3 replicas: a broker stops and starts until it serves clients and is in "
            "sync",
            {"stop_s": "lower", "start_s": "lower", "in_sync_s": "lower"},
            measure_restart,
            partial(prepare_partitions, partitions=PARTITIONS),
            brokers=SIZE,
            kraft=True,
            targets=BROKERS,
            properties=SHORT_SESSION,
            goals=(Goal("start_s", "kafka", 0.5),),
            cold="a broker that has just started is measured",
            rounds=2,
            warmup=0,
        ),
    ]


def measure_failover(run: Run) -> Figures:
    """Kill the last broker, and write to all its partitions as soon as they have other leaders."""
    target = brokers_of(run)
    victim, survivors = target.servers[-1], target.servers[:-1]
    lost = [index for index, one in partitions_of(target, TOPIC).items() if one.leader == SIZE]
    victim.kill()

    def is_fenced() -> bool:
        return partitions_of(target, TOPIC)[lost[0]].leader not in (SIZE, -1)

    wait_until(is_fenced, timeout_s=TIMEOUT_S, what="the controller fences the broker", interval_s=0.01)
    begin = time.perf_counter()
    found, batch = partitions_of(target, TOPIC), small_batch()
    waiting = []
    with ThreadPoolExecutor() as threads:
        # One request for each leader: requests of one connection wait for each other's replication.
        for number, server in enumerate(survivors, start=1):
            led = [(index, batch) for index in lost if found[index].leader == number]
            request = produce_request(TOPIC, led, -1)
            waiting.append(
                threads.submit(send_until_accepted, server.bootstrap, [request], ResponseCounter(TOPIC, len(led)))
            )
        for one in waiting:
            one.result()
    elapsed = time.perf_counter() - begin
    victim.start(timeout_s=TIMEOUT_S)
    await_in_sync(target, TOPIC, interval_s=0.1)
    elect_preferred(target)
    return {"failover_s": elapsed}


def measure_restart(run: Run) -> Figures:
    """Restart the last broker by a controlled shutdown."""
    target = brokers_of(run)
    victim = target.servers[-1]
    begin = time.perf_counter()
    victim.stop(timeout_s=TIMEOUT_S)
    stopped = time.perf_counter()
    victim.start(timeout_s=TIMEOUT_S)
    started = time.perf_counter()
    await_in_sync(target, TOPIC, interval_s=0.1)
    return {
        "stop_s": stopped - begin,
        "start_s": started - stopped,
        "in_sync_s": time.perf_counter() - stopped,
    }


def elect_preferred(target: BrokerTarget) -> None:
    """Give each broker its third of the leaders again. A fenced broker is elected later."""

    def is_done() -> bool:
        target.admin().elect_leaders(ElectionType.PREFERRED, None).result()
        found = partitions_of(target, TOPIC)
        return bool(found) and all(one.leader == one.replicas[0] for one in found.values())

    wait_until(is_done, timeout_s=TIMEOUT_S, what="each broker leads a third of the partitions", interval_s=0.5)
