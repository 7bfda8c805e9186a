"""Benches of share groups: the consumption by one group with few and many members.

The broker writes the state of acknowledged records to `__share_group_state`. Apache Kafka acknowledges these writes
from the page cache, and so does Barnabas in these benches. In `…-disk` both acknowledge them from the disk.
"""

from collections.abc import Mapping

from bench import load
from bench.bench import BROKERS, Bench, Figures, Run
from bench.transactions import PAGE_CACHE, SYNC_EACH_APPEND

MEMBERS = (1, 16, 256)
PARTITIONS = 16
BATCH_BYTES = 16_384
"""The default of producers for `batch.size`."""
RECORDS_PER_S = 2_500_000
MAX_TOPIC_BYTES = 3_000_000_000
"""The topic has enough records for this rate in both halves of a round, but at most this many bytes, so that it fits
the page cache. A half ends early when it has used two fifths of the records."""
MAX_TOPIC_BYTES_ON_DISK = 300_000_000
"""Each append is synced, so writing a larger topic would take minutes. Consumption is slower as well."""
GROUP_FIGURES = {
    "records_per_s": "higher",
    "cpu_us_per_record": "lower",
    "acknowledgements_per_s": "higher",
    "cpu_us_per_acknowledgement": "lower",
    "redelivery_p99_ms": "lower",
}
TOPIC = "shared"
NO_PROPERTIES: Mapping[str, str] = {}


def share_bench(
    name: str,
    about: str,
    size: int,
    *,
    properties: Mapping[str, str],
    kafka_properties: Mapping[str, str] = NO_PROPERTIES,
    max_topic_bytes: int = MAX_TOPIC_BYTES,
) -> Bench:
    """Return a bench with records of `size` bytes. Each round has new groups, which read the same topic."""

    def prepare(run: Run) -> None:
        run.target.create_topic(TOPIC, PARTITIONS)
        run.state |= load.run(
            "replay-produce",
            bootstrap=run.target.bootstrap,
            topic=TOPIC,
            size=size,
            seconds=300,
            partitions=PARTITIONS,
            batch_bytes=BATCH_BYTES,
            batches=PARTITIONS,
            max_bytes=int(min(2.5 * max(run.seconds, 0.2) * RECORDS_PER_S * size, max_topic_bytes)),
        )

    def measure(run: Run) -> Figures:
        figures: Figures = {}
        busy = []
        for count in MEMBERS:
            one = load.run(
                "share-group",
                bootstrap=run.target.bootstrap,
                topic=TOPIC,
                group_id=run.topic(f"share-{count}"),
                members=count,
                partitions=PARTITIONS,
                records=int(run.state["records"]),
                seconds=run.seconds,
                pids=run.target.pids,
            )
            busy.append(one.pop("load_cpu_percent"))
            figures |= {f"{figure}_{count}": value for figure, value in one.items()}
        return {**figures, "load_cpu_percent": max(busy)}

    return Bench(
        name,
        about,
        {f"{figure}_{count}": better for count in MEMBERS for figure, better in GROUP_FIGURES.items()}
        | {"load_cpu_percent": "lower"},
        measure,
        prepare,
        targets=BROKERS,
        properties={"group.share.max.size": str(MEMBERS[-1]), **properties},
        kafka_properties=kafka_properties,
        warm_by=("records_per_s_16", "acknowledgements_per_s_16"),
    )


def share_benches() -> list[Bench]:
    """Return the benches of both record sizes from the page cache, and of one size from the disk."""
    made = [
        share_bench(
            f"share-group-{short}",
            f"{words} records in batches of 16 KB, 16 partitions, one share group of 1, 16 and 256 members: accepted "
            "with the next ShareFetch, then by ShareAcknowledge with a type for each record, some released",
            size,
            properties=PAGE_CACHE,
        )
        for size, short, words in ((1000, "1k", "1 KB"), (100, "100b", "100-byte"))
    ]
    made.append(
        share_bench(
            "share-group-1k-disk",
            "as share-group-1k, acknowledged once on disk (Kafka: log.flush.interval.messages=1)",
            1000,
            properties={},
            kafka_properties=SYNC_EACH_APPEND,
            max_topic_bytes=MAX_TOPIC_BYTES_ON_DISK,
        )
    )
    return made
