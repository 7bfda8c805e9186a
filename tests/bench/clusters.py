"""Benches of three brokers and a ZooKeeper: acknowledged by all, latency, memory, a folder and a broker lost."""

import shutil
import time

from confluent_kafka import ElectionType
from confluent_kafka.admin import PartitionMetadata
from kazoo.client import KazooClient
from tests.barnabas_server import BarnabasServer
from tests.bench import load
from tests.bench.bench import BROKERS, THROUGHPUT, Bench, Figures, Goal, Run
from tests.bench.process import resident_mb
from tests.bench.starting import IDLE_S
from tests.bench.targets import PATIENCE_S, ClusterTarget
from tests.bench.throughput import librdkafka_bench
from tests.kafka import KafkaServer
from tests.server_process import wait_until

SIZE = 3
COPIED_BYTES = 600_000_000
LED_BY_EACH = 1000
LATENCY_RATE = 500

PAGE_CACHE = {"acks.all.durability": "page-cache"}
# ZooKeeper tells that a broker is gone when its session ends; what is measured begins then.
SHORT_SESSION = {"zookeeper.session.timeout.ms": "2000"}


def cluster_benches() -> list[Bench]:
    """Replication factor 3. Apache Kafka acknowledges from the page cache; ours does so where the bench says it."""
    produced = [
        librdkafka_bench(
            f"cluster-produce-{short}{durability}",
            f"{words} records, 6 partitions with 3 replicas, acks -1{told}",
            size=size,
            partitions=6,
            acks=-1,
            brokers=SIZE,
            targets=BROKERS,
            properties=properties,
            goals=goals,
            warm_by="mb_per_s",
        )
        for durability, told, properties, goals in (
            ("", " from the page caches", PAGE_CACHE, (Goal("mb_per_s", "kafka", 1.5),)),
            ("-disk", " once on the leader's disk (Kafka: from the page caches)", {}, ()),
        )
        for size, short, words in ((1000, "1k", "1 KB"), (100, "100b", "100-byte"))
    ]
    return [
        *produced,
        Bench(
            "cluster-latency",
            f"{LATENCY_RATE} single-record produce requests a second to one leader, acks -1, from the page caches",
            {"p50_ms": "lower", "p99_ms": "lower", "p999_ms": "lower"},
            measure_latency,
            brokers=SIZE,
            targets=BROKERS,
            properties=PAGE_CACHE,
            goals=(Goal("p50_ms", "kafka", 0.7), Goal("p99_ms", "kafka", 0.7)),
            warm_by="p50_ms",
        ),
        Bench(
            "cluster-idle",
            "resident memory of three brokers that have just started and have nothing to do",
            {"idle_mb": "lower"},
            measure_idle,
            brokers=SIZE,
            targets=BROKERS,
            goals=(Goal("idle_mb", "kafka", 0.12),),
            rounds=1,
            warmup=0,
        ),
        Bench(
            "cluster-catch-up",
            f"a follower that lost its folder: {COPIED_BYTES // 10**6} MB of 1 KB records until it is in sync again",
            {"mb_per_s": THROUGHPUT["mb_per_s"]},
            measure_catch_up,
            prepare_catch_up,
            brokers=SIZE,
            targets=BROKERS,
            properties=SHORT_SESSION,
            goals=(Goal("mb_per_s", "kafka", 1.5),),
        ),
        Bench(
            "cluster-failover",
            f"kill -9 of a broker that leads {LED_BY_EACH} partitions, from the end of its session until others do",
            {"failover_s": "lower"},
            measure_failover,
            prepare_failover,
            brokers=SIZE,
            targets=BROKERS,
            properties=SHORT_SESSION,
            goals=(Goal("failover_s", "kafka", 0.5),),
        ),
    ]


def measure_latency(run: Run) -> Figures:
    topic = run.topic("latency")
    target = cluster_of(run)
    target.create_topic(topic)
    leader = partitions_of(target, topic)[0].leader
    figures = load.run(
        "latency",
        bootstrap=target.servers[leader - 1].bootstrap,
        topic=topic,
        seconds=run.seconds,
        rate=LATENCY_RATE,
        acks=-1,
    )
    target.delete_topic(topic)
    return figures


def measure_idle(run: Run) -> Figures:
    time.sleep(IDLE_S)
    return {"idle_mb": resident_mb(run.target.pids)}


def prepare_catch_up(run: Run) -> None:
    run.target.create_topic("copied", 3)
    load.run(
        "produce",
        bootstrap=run.target.bootstrap,
        topic="copied",
        size=1000,
        seconds=PATIENCE_S,
        partitions=3,
        max_records=COPIED_BYTES // 1000,
        config={"acks": -1, "linger.ms": 5},
    )


def measure_catch_up(run: Run) -> Figures:
    target = cluster_of(run)
    victim = kill_last(target)
    shutil.rmtree(victim.log_dir)
    victim.start(timeout_s=PATIENCE_S)
    begin = time.perf_counter()
    await_in_sync(target, "copied")
    return {"mb_per_s": COPIED_BYTES / (time.perf_counter() - begin) / 1e6}


def prepare_failover(run: Run) -> None:
    run.target.create_topic("wide", LED_BY_EACH * SIZE)
    await_in_sync(cluster_of(run), "wide")


def measure_failover(run: Run) -> Figures:
    target = cluster_of(run)
    victim = kill_last(target)
    begin = time.perf_counter()

    def is_replaced() -> bool:
        return all(partition.leader not in (SIZE, -1) for partition in partitions_of(target, "wide").values())

    wait_until(is_replaced, timeout_s=PATIENCE_S, what="others lead")
    elapsed = time.perf_counter() - begin
    victim.start(timeout_s=PATIENCE_S)
    await_in_sync(target, "wide")
    target.admin().elect_leaders(ElectionType.PREFERRED, None).result()
    return {"failover_s": elapsed}


def kill_last(target: ClusterTarget) -> BarnabasServer | KafkaServer:
    """The last broker, killed, once its session has ended: Apache Kafka does not start again before."""
    victim = target.servers[-1]
    client = KazooClient(target.zookeeper.address)
    client.start()
    try:
        victim.kill()
        registered = f"/brokers/ids/{SIZE}"
        wait_until(lambda: client.exists(registered) is None, timeout_s=60, what="the session ends", interval_s=0.002)
    finally:
        client.stop()
        client.close()
    return victim


def cluster_of(run: Run) -> ClusterTarget:
    """The run's target."""
    assert isinstance(run.target, ClusterTarget)
    return run.target


def partitions_of(target: ClusterTarget, topic: str) -> dict[int, PartitionMetadata]:
    """What a broker says of the partitions."""
    partitions: dict[int, PartitionMetadata] = target.admin().list_topics(topic, timeout=60).topics[topic].partitions
    return partitions


def await_in_sync(target: ClusterTarget, topic: str) -> None:
    """Return once each partition has all its replicas in sync."""

    def is_in_sync() -> bool:
        return all(len(partition.isrs) == SIZE for partition in partitions_of(target, topic).values())

    wait_until(is_in_sync, timeout_s=PATIENCE_S, what=f"all replicas of {topic} are in sync")
