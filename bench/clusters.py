"""Benches of three brokers and a ZooKeeper: acks -1, latency, memory, and the loss of a log directory or a broker."""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial

from bench import load
from bench.bench import BROKERS, THROUGHPUT, Bench, Figures, Goal, Run
from bench.process import resident_mb
from bench.starting import IDLE_S
from bench.targets import TIMEOUT_S, BrokerTarget, ClusterTarget
from bench.throughput import librdkafka_bench
from confluent_kafka import ElectionType
from confluent_kafka.admin import PartitionMetadata
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer
from tests.server_process import wait_until

SIZE = 3
COPIED_BYTES = 600_000_000
LEADERS_PER_BROKER = 1000
PARTITION_COUNTS = (1000, 10_000)
"""Partitions with three replicas, of which each broker leads a third."""
LATENCY_RATE = 500
TOPIC = "wide"

PAGE_CACHE = {"acks.all.durability": "page-cache"}
# ZooKeeper removes a killed broker at the end of its session; the measurement begins then.
SHORT_SESSION = {"zookeeper.session.timeout.ms": "2000"}


def cluster_benches() -> list[Bench]:
    """Return benches with replication factor 3.

    Apache Kafka acknowledges from the page cache. Barnabas does so in the benches whose description mentions it.
    """
    return [
        *_load_benches(),
        *_failure_benches(),
        *(bench for partitions in PARTITION_COUNTS for bench in _partition_benches(partitions)),
    ]


def _load_benches() -> list[Bench]:
    return [
        *produce_benches("cluster-produce-{}", "from the page caches", PAGE_CACHE, (Goal("mb_per_s", "kafka", 1.5),)),
        *produce_benches("cluster-produce-{}-disk", "once on the leader's disk (Kafka: from the page caches)", {}, ()),
        Bench(
            "cluster-latency",
            f"{LATENCY_RATE} single-record produce requests per second to one leader, acks -1, from the page caches",
            {"p50_ms": "lower", "p99_ms": "lower", "p999_ms": "lower"},
            measure_latency,
            brokers=SIZE,
            targets=BROKERS,
            properties=PAGE_CACHE,
            goals=(Goal("p50_ms", "kafka", 0.7), Goal("p99_ms", "kafka", 0.7)),
        ),
        Bench(
            "cluster-idle",
            "resident memory of three brokers that have just started and have nothing to do",
            {"idle_mb": "lower"},
            measure_idle,
            brokers=SIZE,
            targets=BROKERS,
            goals=(Goal("idle_mb", "kafka", 0.12),),
            cold="memory right after a start is measured",
            rounds=1,
            warmup=0,
        ),
    ]


def produce_benches(
    name: str, acknowledged: str, properties: Mapping[str, str], goals: tuple[Goal, ...], *, kraft: bool = False
) -> list[Bench]:
    """Return benches of replicated records of two sizes; the name has a place for the size."""
    return [
        librdkafka_bench(
            name.format(short),
            f"{words} records, 6 partitions with 3 replicas, acks -1 {acknowledged}",
            size=size,
            partitions=6,
            acks=-1,
            brokers=SIZE,
            kraft=kraft,
            targets=BROKERS,
            properties=properties,
            goals=goals,
        )
        for size, short, words in ((1000, "1k", "1 KB"), (100, "100b", "100-byte"))
    ]


def _failure_benches() -> list[Bench]:
    return [
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
            cold="the follower has just started",
        ),
        Bench(
            "cluster-failover",
            f"kill -9 of a broker that leads {LEADERS_PER_BROKER} partitions, from the end of its session until others "
            "lead",
            {"failover_s": "lower"},
            measure_failover,
            partial(prepare_partitions, partitions=LEADERS_PER_BROKER * SIZE),
            brokers=SIZE,
            targets=BROKERS,
            properties=SHORT_SESSION,
            goals=(Goal("failover_s", "kafka", 0.5),),
        ),
    ]


def _partition_benches(partitions: int) -> list[Bench]:
    return [
        Bench(
            f"cluster-restart-{partitions}",
            f"{partitions} partitions with 3 replicas: a broker stops, starts, is in sync; the same after kill -9",
            {"stop_s": "lower", "start_s": "lower", "start_killed_s": "lower"},
            measure_restart,
            partial(prepare_partitions, partitions=partitions),
            brokers=SIZE,
            targets=BROKERS,
            properties=SHORT_SESSION,
            cold="a broker that has just started is measured",
            rounds=2,
            warmup=0,
        ),
        Bench(
            f"cluster-controller-{partitions}",
            f"kill -9 of the controller of {partitions} partitions, from the end of its session until others lead",
            {"failover_s": "lower"},
            measure_controller_failover,
            partial(prepare_partitions, partitions=partitions),
            brokers=SIZE,
            targets=BROKERS,
            properties=SHORT_SESSION,
            cold="a broker that has not been controller before is measured",
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
    return {"idle_mb": resident_mb(run.target.pids)}


def prepare_catch_up(run: Run) -> None:
    run.target.create_topic("copied", 3)
    load.run(
        "produce",
        bootstrap=run.target.bootstrap,
        topic="copied",
        size=1000,
        seconds=TIMEOUT_S,
        partitions=3,
        max_records=COPIED_BYTES // 1000,
        config={"acks": -1, "linger.ms": 5},
    )


def measure_catch_up(run: Run) -> Figures:
    target = cluster_of(run)
    victim = kill_last(target)
    shutil.rmtree(victim.log_dir)
    victim.start(timeout_s=TIMEOUT_S)
    begin = time.perf_counter()
    await_in_sync(target, "copied")
    return {"mb_per_s": COPIED_BYTES / (time.perf_counter() - begin) / 1e6}


def prepare_partitions(run: Run, partitions: int) -> None:
    """Create partitions whose replicas are all in sync."""
    run.target.create_topic(TOPIC, partitions)
    await_in_sync(brokers_of(run), TOPIC)


def measure_failover(run: Run) -> Figures:
    """Kill the last broker. It is not the controller, because the first broker to start is the controller."""
    return _failover(run, SIZE, has_last_session_ended)


def measure_controller_failover(run: Run) -> Figures:
    """Kill the controller. Another broker becomes controller, reads the metadata, and elects other leaders."""
    target = cluster_of(run)
    number = target.admin().list_topics(timeout=60).controller_id
    return _failover(run, number, lambda client: controller_id(client) != number)


def _failover(run: Run, number: int, is_over: Callable[[KazooClient], bool]) -> Figures:
    target = cluster_of(run)
    victim = kill(target, number, is_over)
    begin = time.perf_counter()

    def is_replaced() -> bool:
        return all(partition.leader not in (number, -1) for partition in partitions_of(target, TOPIC).values())

    wait_until(is_replaced, timeout_s=TIMEOUT_S, what="other brokers lead")
    elapsed = time.perf_counter() - begin
    victim.start(timeout_s=TIMEOUT_S)
    await_in_sync(target, TOPIC)
    target.admin().elect_leaders(ElectionType.PREFERRED, None).result()
    return {"failover_s": elapsed}


def measure_restart(run: Run) -> Figures:
    """Measure restarts. A broker that stops moves its leaders; a killed broker waits for the end of its session."""
    target, figures = cluster_of(run), Figures()
    victim = target.servers[-1]
    begin = time.perf_counter()
    victim.stop(timeout_s=TIMEOUT_S)
    figures["stop_s"] = time.perf_counter() - begin
    figures["start_s"] = _until_in_sync(target, victim)
    victim = kill_last(target)
    figures["start_killed_s"] = _until_in_sync(target, victim)
    return figures


def _until_in_sync(target: ClusterTarget, victim: BarnabasServer | KafkaServer) -> float:
    begin = time.perf_counter()
    victim.start(timeout_s=TIMEOUT_S)
    await_in_sync(target, TOPIC)
    return time.perf_counter() - begin


def kill_last(target: ClusterTarget) -> BarnabasServer | KafkaServer:
    """Kill the last broker, and return it once its session has ended: Apache Kafka cannot restart earlier."""
    return kill(target, SIZE, has_last_session_ended)


def has_last_session_ended(client: KazooClient) -> bool:
    """Return whether the last broker's session has ended."""
    return client.exists(f"/brokers/ids/{SIZE}") is None


def kill(target: ClusterTarget, number: int, is_over: Callable[[KazooClient], bool]) -> BarnabasServer | KafkaServer:
    """Kill a broker, and return it once `is_over` is true of the state in ZooKeeper."""
    victim = target.servers[number - 1]
    client = KazooClient(target.zookeeper.address)
    client.start()
    try:
        victim.kill()
        wait_until(lambda: is_over(client), timeout_s=60, what="the session ends", interval_s=0.002)
    finally:
        client.stop()
        client.close()
    return victim


def controller_id(client: KazooClient) -> int | None:
    """Return the id of the current controller."""
    try:
        return int(json.loads(client.get("/controller")[0])["brokerid"])
    except NoNodeError:
        return None


def brokers_of(run: Run) -> BrokerTarget:
    """Return the run's target."""
    assert isinstance(run.target, BrokerTarget)
    return run.target


def cluster_of(run: Run) -> ClusterTarget:
    """Return the run's target, a cluster with a ZooKeeper."""
    assert isinstance(run.target, ClusterTarget)
    return run.target


def partitions_of(target: BrokerTarget, topic: str) -> dict[int, PartitionMetadata]:
    """Return the metadata of the partitions of a topic from one broker."""
    partitions: dict[int, PartitionMetadata] = target.admin().list_topics(topic, timeout=60).topics[topic].partitions
    return partitions


def await_in_sync(target: BrokerTarget, topic: str, interval_s: float = 0.01) -> None:
    """Return once each partition has all its replicas in sync."""

    def is_in_sync() -> bool:
        found = partitions_of(target, topic)
        return bool(found) and all(len(partition.isrs) == SIZE for partition in found.values())

    what = f"all replicas of {topic} are in sync"
    wait_until(is_in_sync, timeout_s=TIMEOUT_S, what=what, interval_s=interval_s)
