"""The benches by name: the load, the targets, the figures and the goals of each bench."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench.bench import BROKERS, LIMIT, PACED, STEPS, THROUGHPUT, Bench, Figures, Goal, Run
from bench.clusters import cluster_benches
from bench.compaction import compaction_benches
from bench.groups import (
    measure_heartbeats,
    measure_joins,
    measure_rebalance,
    measure_rebalances,
    measure_restart,
    measure_share_heartbeats,
    measure_streams_heartbeats,
    prepare_groups,
    prepare_modern_groups,
)
from bench.kraft_clusters import kraft_benches
from bench.many_partitions import measure_many_partitions
from bench.many_partitions import prepare as prepare_many_partitions
from bench.members import HEARTBEAT_S
from bench.requests import (
    CONSUMERS,
    measure_connection_cost,
    measure_connections,
    measure_group_commit,
    measure_latency,
    measure_metadata,
    measure_metrics,
    measure_partitions,
    measure_single,
    measure_topics,
    measure_waiting_fetches,
    prepare_latency,
)
from bench.secured import secured_benches
from bench.share_groups import share_benches
from bench.starting import measure_start, measure_start_again
from bench.throughput import fetch_with, librdkafka_bench, prepare_fetch, produce_bench, replay_bench
from bench.transactions import transaction_benches

PRODUCE_GOALS = (Goal("mb_per_s", "kafka", 1.4), Goal("mb_per_s", "ceiling", 0.9))
COMPRESSED_GOALS = (Goal("mb_per_s", "kafka", 1.2),)
FETCH_GOALS = (Goal("mb_per_s", "kafka", 1.0), Goal("cpu_s_per_gb", "kafka", 0.8), Goal("mb_per_s", "ceiling", 0.9))
SINGLE_REQUEST_GOALS = (Goal("requests_per_s", "kafka", 7.0), Goal("requests_per_s", "ceiling", 0.7))
CONNECTION_GOALS = (
    *(
        Goal(f"requests_per_s_{count}", against, ratio)
        for count, to_kafka in zip(STEPS, (7.0, 2.5, 1.6, 1.5), strict=True)
        for against, ratio in (("kafka", to_kafka), ("ceiling", 0.75))
    ),
    Goal("cpu_us_100", "kafka", 0.5),
    Goal("cpu_us_1000", "kafka", 0.5),
)
JAVA_GOALS = (Goal("mb_per_s", "kafka", 1.2), Goal("cpu_s_per_gb", "kafka", 0.5))
LATENCY_GOALS = (Goal("p50_ms", "kafka", 0.7), Goal("p99_ms", "kafka", 0.7))
START_GOALS = (Goal("first_ack_s", "kafka", 0.1), Goal("idle_mb", "kafka", 0.12))

PRODUCE_LATENCIES = {"produce_p99_ms_calm": "lower", "produce_p99_ms": "lower", "produce_p99_ratio": "lower"}
PRODUCE_LATENCY_GOAL = Goal("produce_p99_ratio", LIMIT, 1.5)

GROWTH = {f"cpu_us_{count}": "lower" for count in STEPS}
REQUESTS = {"requests_per_s": "higher", "cpu_us_per_request": "lower"}
SIZES = ((1000, "1k", "1 KB"), (100, "100b", "100-byte"))

# Kafka's closest setting to "acknowledged once on disk": it syncs each append on the thread of the request.
SYNC_EACH_APPEND = {"log.flush.interval.messages": "1"}


def throughput_benches() -> list[Bench]:
    """Return the produce and fetch benches with librdkafka and with prepared batches."""
    benches = [
        librdkafka_bench(
            f"produce-{short}",
            f"{words} records, one partition, acks 1, no compression",
            size=size,
            goals=PRODUCE_GOALS,
        )
        for size, short, words in SIZES
    ]
    benches += [
        replay_bench(
            f"replay-{short}",
            f"{words} records, one partition, acks 1, no compression, in batches of 0.9 MB made beforehand",
            size=size,
            codec="none",
            partitions=1,
            batch_bytes=900_000,
            batches=1,
            goals=PRODUCE_GOALS,
        )
        for size, short, words in SIZES
    ]
    for codec in ("zstd", "lz4"):
        for size, short, words in SIZES:
            benches += compressed_benches(codec, size, short, words)
    fetches = (
        (
            "fetch-1k",
            "1 KB records in the page cache, one partition, by librdkafka",
            fetch_with("consume", size=1000),
        ),
        (
            "fetch-1k-raw",
            "the same bytes into a socket that drops them, 4 MB per fetch",
            fetch_with("replay-consume", timed=True),
        ),
    )
    for name, about, measure in fetches:
        benches.append(Bench(name, about, THROUGHPUT, measure, prepare_fetch, goals=FETCH_GOALS))
    return benches


def compressed_benches(codec: str, size: int, short: str, words: str) -> list[Bench]:
    """Return benches of 32 partitions: compressed by librdkafka during the run, or in batches built in advance."""
    about = f"{words} text records, 32 partitions, {codec}"
    same: dict[str, Any] = {
        "size": size,
        "partitions": 32,
        "codec": codec,
        "targets": BROKERS,
        "goals": COMPRESSED_GOALS,
    }
    return [
        librdkafka_bench(f"produce-{short}-32-{codec}", f"{about}, compressed by librdkafka during the run", **same),
        replay_bench(
            f"replay-{short}-32-{codec}",
            f"{about}, compressed beforehand, a request for each batch of 1 MB, as librdkafka sends them",
            batch_bytes=1_000_000,
            batches=1,
            **same,
        ),
        replay_bench(
            f"replay-{short}-32-{codec}-small",
            f"{about}, compressed beforehand, a request for 32 batches of 16 KB, as Java's producer sends them",
            batch_bytes=16_384,
            batches=32,
            **same,
        ),
    ]


def java_benches() -> list[Bench]:
    """Return the benches with Kafka's own tools as load."""
    plain = [
        produce_bench(
            f"java-produce-{short}",
            f"kafka-producer-perf-test: {words} records, one partition, acks 1",
            size=size,
            driver="java-produce",
            goals=(*PRODUCE_GOALS, *JAVA_GOALS[1:]),
        )
        for size, short, words in SIZES
    ]
    compressed = [
        produce_bench(
            f"java-produce-{short}-32-{codec}",
            f"kafka-producer-perf-test: {words} records, 32 partitions, {codec}, acks 1",
            size=size,
            driver="java-produce",
            partitions=32,
            options={"codec": codec},
            targets=PACED,
            goals=(*JAVA_GOALS, Goal("cpu_s_per_gb", "ceiling", 1.25)),
        )
        for codec in ("zstd", "lz4")
        for size, short, words in SIZES
    ]
    return [
        *plain,
        *compressed,
        Bench(
            "java-fetch-1k",
            "kafka-console-consumer without output: 1 KB records, one partition",
            THROUGHPUT,
            fetch_with("java-consume", size=1000),
            prepare_fetch,
            goals=JAVA_GOALS,
        ),
    ]


def acks_all_benches() -> list[Bench]:
    """Return the benches of acks -1 from the disk and from the page cache."""
    page_cache = {"acks.all.durability": "page-cache"}
    return [
        librdkafka_bench(
            "acks-all-disk",
            "1 KB records, acks -1 answered once on disk (Kafka: log.flush.interval.messages=1)",
            size=1000,
            acks=-1,
            targets=BROKERS,
            kafka_properties=SYNC_EACH_APPEND,
        ),
        librdkafka_bench(
            "acks-all-page-cache",
            "1 KB records, acks -1 answered from the page cache (Barnabas: acks.all.durability=page-cache)",
            size=1000,
            acks=-1,
            targets=BROKERS,
            properties=page_cache,
        ),
        Bench(
            "acks-all-disk-64",
            "single-record requests from 64 connections, acks -1 answered once on disk",
            REQUESTS,
            measure_group_commit,
            goals=(Goal("requests_per_s", "kafka", 1.0), Goal("requests_per_s", "ceiling", 0.75)),
            kafka_properties=SYNC_EACH_APPEND,
        ),
    ]


def request_benches() -> list[Bench]:
    """Return the benches of requests per second, latency, connections and metadata."""
    return [
        Bench(
            "single-requests",
            "produce requests of one 100-byte record, 64 in flight on one connection, acks 1",
            REQUESTS,
            measure_single,
            goals=SINGLE_REQUEST_GOALS,
        ),
        Bench(
            "metrics-cost",
            "the requests of single-requests to a broker whose request metrics are on and off in short turns",
            {"requests_per_s_ratio": "higher", "cpu_us_with": "lower", "cpu_us_without": "lower"},
            measure_metrics,
            targets=("barnabas",),
            started=False,
            goals=(Goal("requests_per_s_ratio", LIMIT, 0.98),),
        ),
        Bench(
            "latency",
            "1000 single-record produce requests per second, acks 1",
            {"p50_ms": "lower", "p99_ms": "lower", "p999_ms": "lower"},
            measure_latency,
            prepare_latency,
            goals=LATENCY_GOALS,
        ),
        Bench(
            "connections",
            "single-record requests per second over 1, 10, 100 and 1000 connections, 64 (or one each) in flight",
            {f"requests_per_s_{count}": "higher" for count in STEPS} | GROWTH,
            measure_connections,
            goals=CONNECTION_GOALS,
            warm_by=tuple(f"requests_per_s_{count}" for count in STEPS),
        ),
        *waiting_fetch_benches(),
        Bench(
            "connections-idempotent",
            "single-record requests per second of 1, 10, 100 and 1000 idempotent producers with one connection each",
            {f"requests_per_s_{count}": "higher" for count in STEPS} | GROWTH,
            partial(measure_connections, idempotent=True),
            targets=BROKERS,
            warm_by=tuple(f"requests_per_s_{count}" for count in STEPS),
        ),
        Bench(
            "metadata-1000",
            "metadata of one topic with 1000 partitions, one request after the other",
            {"p50_ms": "lower", "cpu_ms_per_request": "lower"},
            measure_metadata,
            partitions=1000,
        ),
    ]


def waiting_fetch_benches() -> list[Bench]:
    """Return the benches of consumers with fetch sessions that wait for the next record."""
    return [
        Bench(
            name,
            f"100 and 1000 consumers with fetch sessions wait at the {where} until a record completes each fetch",
            {
                figure: better
                for count in CONSUMERS
                for figure, better in (
                    (f"fetches_per_s_{count}", "higher"),
                    (f"p99_ms_{count}", "lower"),
                    (f"cpu_us_{count}", "lower"),
                )
            },
            measure_waiting_fetches(partitions),
            targets=BROKERS,
            goals=tuple(
                goal
                for count in CONSUMERS
                for goal in (Goal(f"fetches_per_s_{count}", "kafka", 1.5), Goal(f"p99_ms_{count}", "kafka", 0.5))
            ),
            warm_by=tuple(f"fetches_per_s_{count}" for count in CONSUMERS),
        )
        for name, where, partitions in (
            ("fetch-wakes", "end of one partition", 1),
            ("fetch-wakes-100", "ends of 100 partitions", 100),
        )
    ]


def growth_benches() -> list[Bench]:
    """Return the benches of the server time of a request, by the number of topics, partitions and connections."""
    kinds = (
        ("topics", "requests going to all of 1, 10, 100 and 1000 topics in turn", measure_topics),
        ("partitions", "requests going to all of 1, 10, 100 and 1000 partitions in turn", measure_partitions),
        ("connections", "1, 10, 100 and 1000 connections with one request in flight each", measure_connection_cost),
    )
    return [
        Bench(
            f"growth-{name}",
            f"server time of a single-record request, {about}",
            GROWTH,
            measure,
            targets=BROKERS,
            warm_by=tuple(GROWTH),
        )
        for name, about, measure in kinds
    ]


def start_benches() -> list[Bench]:
    """Return the benches of a start with an empty folder, and with ten thousand partitions."""
    return [
        Bench(
            "start",
            "an empty folder: call to first acknowledged record, and resident memory two idle seconds later",
            {"first_ack_s": "lower", "idle_mb": "lower"},
            measure_start,
            properties={"auto.create.topics.enable": "true"},
            started=False,
            cold="a start is measured",
            goals=START_GOALS,
        ),
        Bench(
            "start-10000",
            "start with 10 000 partitions of one record until a record is acknowledged, after a clean stop and after "
            "kill -9",
            {
                "clean_stop_s": "lower",
                "start_after_clean_s": "lower",
                "start_after_killed_s": "lower",
                "resident_mb": "lower",
            },
            measure_start_again,
            targets=BROKERS,
            started=False,
            cold="starts are measured",
            goals=(Goal("start_after_killed_s", "kafka", 0.5), Goal("start_after_killed_s", LIMIT, 6)),
            rounds=1,
            warmup=0,
        ),
        Bench(
            "many-partitions",
            "10 000 partitions in 100 topics are created, and half of them deleted, alone and while a client sends "
            "1000 produce requests per second",
            {
                "create_s": "lower",
                "create_cpu_s": "lower",
                "create_busy_s": "lower",
                "delete_5000_s": "lower",
                "delete_5000_busy_s": "lower",
                "produce_p99_ms_calm": "lower",
                "produce_p99_ms_create": "lower",
                "produce_p99_ratio_create": "lower",
                "produce_p99_ms_delete": "lower",
                "produce_p99_ratio_delete": "lower",
            },
            measure_many_partitions,
            prepare_many_partitions,
            targets=BROKERS,
            goals=(
                Goal("create_s", LIMIT, 8),
                Goal("delete_5000_s", LIMIT, 3),
                Goal("produce_p99_ratio_create", LIMIT, 2),
                Goal("produce_p99_ratio_delete", LIMIT, 2),
            ),
            rounds=1,
            warmup=0,
            cold="the partitions are created once",
        ),
    ]


def _heartbeat_bench(
    name: str,
    about: str,
    measure: Callable[[Run], Figures],
    prepare: Callable[[Run], None],
    properties: Mapping[str, str],
) -> Bench:
    return Bench(
        name,
        about,
        {
            "entered_s": "lower",
            "heartbeats_per_s": "higher",
            "cpu_percent": "lower",
            "cpu_us_per_heartbeat": "lower",
            **PRODUCE_LATENCIES,
        },
        measure,
        prepare,
        targets=BROKERS,
        properties=properties,
        goals=(Goal("cpu_percent", LIMIT, 30), PRODUCE_LATENCY_GOAL),
        warm_by=("entered_s", "cpu_us_per_heartbeat"),
    )


def modern_group_benches() -> list[Bench]:
    """Return the heartbeat benches of share groups and of streams groups."""
    kinds = (("share", measure_share_heartbeats), ("streams", measure_streams_heartbeats))
    return [
        _heartbeat_bench(
            f"{kind}-group-heartbeats",
            f"heartbeats of 5000 members in 1000 {kind} groups, one every five seconds each, at idle priority",
            measure,
            prepare_modern_groups,
            {},
        )
        for kind, measure in kinds
    ]


def group_benches() -> list[Bench]:
    """Return the benches of many members, many groups and many offsets."""
    default_delay = {"group.initial.rebalance.delay.ms": "3000"}
    return [
        Bench(
            "group-joins",
            "1000 new groups of five members that join together, with an initial delay of three seconds",
            {"joined_s": "lower", "cpu_s": "lower", **PRODUCE_LATENCIES},
            measure_joins,
            prepare_groups,
            targets=BROKERS,
            properties=default_delay,
            goals=(Goal("joined_s", LIMIT, 2 * HEARTBEAT_S), PRODUCE_LATENCY_GOAL),
            warm_by=("joined_s", "cpu_s"),
        ),
        Bench(
            "group-rebalance",
            "rebalances of a group of 1000 members that beat every three seconds; they run at idle priority",
            {"rebalance_s": "lower", "cpu_s_per_rebalance": "lower", **PRODUCE_LATENCIES},
            measure_rebalance,
            prepare_groups,
            targets=BROKERS,
            goals=(Goal("rebalance_s", LIMIT, 2 * HEARTBEAT_S), PRODUCE_LATENCY_GOAL),
            warm_by=("rebalance_s", "cpu_s_per_rebalance"),
        ),
        Bench(
            "group-rebalances",
            "rebalances of 1000 groups of five together, heartbeats every three seconds; they run at idle priority",
            {"rebalance_s": "lower", "cpu_s_per_rebalance": "lower", **PRODUCE_LATENCIES},
            measure_rebalances,
            prepare_groups,
            targets=BROKERS,
            goals=(Goal("rebalance_s", LIMIT, 2 * HEARTBEAT_S), PRODUCE_LATENCY_GOAL),
            warm_by=("rebalance_s", "cpu_s_per_rebalance"),
        ),
        _heartbeat_bench(
            "group-heartbeats",
            "heartbeats of 5000 members in 1000 groups, one every three seconds each; the members run at idle priority",
            measure_heartbeats,
            prepare_groups,
            default_delay,
        ),
        Bench(
            "group-restart",
            "a restart with 100 000 committed offsets, until all can be read",
            {"load_s": "lower", "start_s": "lower", **PRODUCE_LATENCIES},
            measure_restart,
            prepare_groups,
            targets=BROKERS,
            goals=(Goal("load_s", LIMIT, 2), PRODUCE_LATENCY_GOAL),
            cold="each round restarts it, and the time that it takes to load is measured",
        ),
    ]


BENCHES = {
    bench.name: bench
    for bench in (
        *throughput_benches(),
        *request_benches(),
        *start_benches(),
        *acks_all_benches(),
        *growth_benches(),
        *group_benches(),
        *modern_group_benches(),
        *share_benches(),
        *compaction_benches(),
        *java_benches(),
        *cluster_benches(),
        *kraft_benches(),
        *transaction_benches(),
        *secured_benches(),
    )
}
