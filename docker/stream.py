"""Run a Spark query that keeps a state per aircraft in a compacted topic, and every flight in Parquet."""

import asyncio
import os
import signal
import time

from barnabas.clients.admin import Admin, NewTopic
from barnabas.spark.pipeline import AIRCRAFT, PipelineSettings, keep_parquet, keep_state, stop_between_batches
from barnabas.spark.progress import ProgressListener
from barnabas.spark.session import session


def say(text: str) -> None:
    print(text, flush=True)


async def create_state_topic(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(AIRCRAFT, 4, configs={"cleanup.policy": "compact"})])


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = PipelineSettings(os.environ["BOOTSTRAP"], os.environ["OUTPUT"], pace="5 seconds")
    asyncio.run(create_state_topic(settings.bootstrap_servers))
    spark = session(
        "local[2]",
        app_name="flights",
        config={
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",  # it would fill the log with half lines
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.streams.addListener(ProgressListener(say))
    queries = [keep_state(spark, settings), keep_parquet(spark, settings)]
    say(f"states go to the topic {AIRCRAFT}, flights to {settings.folder}/flights")
    while not stopping and all(query.isActive for query in queries):
        time.sleep(0.5)
    failed = [query.name for query in queries if query.exception() is not None]
    for query in queries:
        stop_between_batches(query, patience_s=10)
    rows = spark.read.parquet(f"{settings.folder}/flights").count()
    spark.stop()
    say(f"stopped with {rows:,} flights in Parquet")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
