"""Benches of three brokers whose controllers are Apache Kafka's: produce, latency, memory, failover and start."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench import load
from bench.bench import BROKERS, Bench, Figures, Goal, Run
from bench.process import resident_mb
from bench.starting import IDLE_S
from bench.targets import PATIENCE_S, BrokerTarget
from bench.throughput import librdkafka_bench
from bench.wire import Answers, produce_request, settle, small_batch
from confluent_kafka import ElectionType
from confluent_kafka.admin import PartitionMetadata
from tests.server_process import wait_until

SIZE = 3
LED_BY_EACH = 1000
WIDTH = 10_000
"""Partitions with three replicas, of which each broker leads a third."""
LATENCY_RATE = 500
TOPIC = "wide"

PAGE_CACHE = {"acks.all.durability": "page-cache"}
REPLICATED = {
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
}
# The controller fences a killed broker at the end of its session; the measurement begins then.
SHORT_SESSION = {**REPLICATED, "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


def kraft_benches() -> list[Bench]:
    """Replication factor 3, acknowledgements from the page cache of all replicas in sync."""
    return [
        *(
            librdkafka_bench(
                f"kraft-produce-{short}",
                f"{words} records, 6 partitions with 3 replicas, acks -1 from the page caches, KRaft",
                size=size,
                partitions=6,
                acks=-1,
                brokers=SIZE,
                kraft=True,
                targets=BROKERS,
                properties={**PAGE_CACHE, **REPLICATED},
                goals=(Goal("mb_per_s", "kafka", 1.5),),
            )
            for size, short, words in ((1000, "1k", "1 KB"), (100, "100b", "100-byte"))
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
            f"kill -9 of a broker that leads {LED_BY_EACH} partitions, from its fencing until all of them acknowledge",
            {"failover_s": "lower"},
            measure_failover,
            partial(prepare_width, width=LED_BY_EACH * SIZE),
            brokers=SIZE,
            kraft=True,
            targets=BROKERS,
            properties={**SHORT_SESSION, **PAGE_CACHE},
            goals=(Goal("failover_s", "kafka", 0.7),),
        ),
        Bench(
            "kraft-restart",
            f"{WIDTH} partitions with 3 replicas: a broker stops and starts until it serves clients and is in sync",
            {"stop_s": "lower", "start_s": "lower", "in_sync_s": "lower"},
            measure_restart,
            partial(prepare_width, width=WIDTH),
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


def measure_latency(run: Run) -> Figures:
    """Measure the latencies of single records, with the leader as the bootstrap server."""
    topic, target = run.topic("latency"), brokers_of(run)
    target.create_topic(topic)
    leader = partitions_of(target, topic)[0].leader
    address = target.servers[leader - 1].bootstrap
    figures = load.run("latency", bootstrap=address, topic=topic, seconds=run.seconds, rate=LATENCY_RATE, acks=-1)
    target.delete_topic(topic)
    return figures


def measure_idle(run: Run) -> Figures:
    """Return the mean resident memory of a broker."""
    time.sleep(IDLE_S)
    return {"idle_mb": resident_mb(run.target.pids) / SIZE}


def prepare_width(run: Run, width: int) -> None:
    """Create partitions whose replicas are all in sync."""
    run.target.create_topic(TOPIC, width)
    await_in_sync(brokers_of(run))


def measure_failover(run: Run) -> Figures:
    """Kill the last broker, and write to all its partitions as soon as they have other leaders."""
    target = brokers_of(run)
    victim, survivors = target.servers[-1], target.servers[:-1]
    lost = [index for index, one in partitions_of(target, TOPIC).items() if one.leader == SIZE]
    victim.kill()

    def is_fenced() -> bool:
        return partitions_of(target, TOPIC)[lost[0]].leader not in (SIZE, -1)

    wait_until(is_fenced, timeout_s=PATIENCE_S, what="the controller fences the broker", interval_s=0.01)
    begin = time.perf_counter()
    found, batch = partitions_of(target, TOPIC), small_batch()
    waiting = []
    with ThreadPoolExecutor() as threads:
        # One request for each leader: requests of one connection wait for each other's replication.
        for number, server in enumerate(survivors, start=1):
            led = [(index, batch) for index in lost if found[index].leader == number]
            request = produce_request(TOPIC, led, -1)
            waiting.append(threads.submit(settle, server.bootstrap, [request], Answers(TOPIC, len(led))))
        for one in waiting:
            one.result()
    elapsed = time.perf_counter() - begin
    victim.start(timeout_s=PATIENCE_S)
    await_in_sync(target)
    elect_preferred(target)
    return {"failover_s": elapsed}


def measure_restart(run: Run) -> Figures:
    """Restart the last broker by a controlled shutdown."""
    target = brokers_of(run)
    victim = target.servers[-1]
    begin = time.perf_counter()
    victim.stop(timeout_s=PATIENCE_S)
    stopped = time.perf_counter()
    victim.start(timeout_s=PATIENCE_S)
    started = time.perf_counter()
    await_in_sync(target)
    return {
        "stop_s": stopped - begin,
        "start_s": started - stopped,
        "in_sync_s": time.perf_counter() - stopped,
    }


def elect_preferred(target: BrokerTarget) -> None:
    """Give each broker its third of the leaders again. A broker that is fenced is elected later."""

    def is_done() -> bool:
        target.admin().elect_leaders(ElectionType.PREFERRED, None).result()
        found = partitions_of(target, TOPIC)
        return bool(found) and all(one.leader == one.replicas[0] for one in found.values())

    wait_until(is_done, timeout_s=PATIENCE_S, what="each broker leads a third of the partitions", interval_s=0.5)


def brokers_of(run: Run) -> BrokerTarget:
    """Return the run's target."""
    assert isinstance(run.target, BrokerTarget)
    return run.target


def partitions_of(target: BrokerTarget, topic: str) -> dict[int, PartitionMetadata]:
    """Return the metadata of the partitions of a topic from one broker."""
    partitions: dict[int, PartitionMetadata] = target.admin().list_topics(topic, timeout=60).topics[topic].partitions
    return partitions


def await_in_sync(target: BrokerTarget) -> None:
    """Return once each partition has all its replicas in sync."""

    def is_in_sync() -> bool:
        found = partitions_of(target, TOPIC)
        return bool(found) and all(len(partition.isrs) == SIZE for partition in found.values())

    wait_until(is_in_sync, timeout_s=PATIENCE_S, what=f"all replicas of {TOPIC} are in sync", interval_s=0.1)
