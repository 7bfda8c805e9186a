"""`barnabas bench`: benchmark of the broker at an address, Barnabas or any other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from ...clients.admin import NewTopic, raise_first
from ...clients.client import Client
from ...clients.connection import ConnectionOptions
from ...clients.host import new_random
from ...clients.offsets import by_leader_of
from ...clients.security import PLAINTEXT
from ...protocol.compression import CODEC_BY_CONFIG_NAME
from . import load
from .client_settings import (
    DEFAULT_BOOTSTRAP,
    admin_of,
    bootstrap_servers,
    security,
)
from .load import Progress, Workload
from .session import (
    Bootstrap,
    Json,
    Row,
    fail,
    print_rows,
    progress_bar,
    run_fast,
)

app = typer.Typer(add_completion=False)

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_PIPELINE = 64


class Test(StrEnum):
    """The available tests."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUESTS = "requests"
    LATENCY = "latency"


class Driver(StrEnum):
    """Source of the load: requests encoded beforehand, or librdkafka through confluent-kafka."""

    RAW = "raw"
    CONFLUENT = "confluent"


@app.command()
def bench(
    tests: Annotated[list[Test] | None, typer.Argument(help="Tests to run; all by default.")] = None,
    *,
    record_size: Annotated[int, typer.Option("--record-size", min=1, help="Bytes of a record's value.")] = 1024,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Partitions of the benchmark's topic.")] = 1,
    codec: Annotated[str, typer.Option("--codec", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str, typer.Option("--acks", "-a", help="all or 1.")] = "1",
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Seconds per test.")] = 3,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Bytes of a batch before compression.")
    ] = 65_536,
    window: Annotated[int, typer.Option("--in-flight", min=1, help="Produce requests in flight on a connection.")] = 5,
    connections: Annotated[int, typer.Option("--connections", min=1, help="Connections to each broker.")] = 1,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Requests per second in the latency test.")] = 1000,
    driver: Annotated[
        Driver, typer.Option(help="Client of the produce and fetch tests: raw sockets or confluent-kafka.")
    ] = Driver.RAW,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the topic of the benchmark.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Measure produce and fetch throughput, single-record requests per second, and latency at a fixed rate.

    Batches are built once and sent repeatedly, so that a load on one core can saturate a broker. Works with any
    Kafka-compatible broker of 2.7 or later.
    """
    if acks not in _ACKS or _ACKS[acks] == 0:
        raise typer.BadParameter("--acks: expected all or 1, because unacknowledged requests cannot be measured")
    if codec not in CODEC_BY_CONFIG_NAME:
        raise typer.BadParameter(f"--codec {codec}: invalid value. Expected one of {', '.join(CODEC_BY_CONFIG_NAME)}")
    workload = Workload(
        topic=f"barnabas-bench-{new_random().getrandbits(32):08x}",
        partitions=partitions,
        record_size=record_size,
        batch_size=batch_size,
        codec=codec,
        acks=_ACKS[acks],
        seconds=seconds,
        window=window,
        connections=connections,
    )
    chosen = tests or list(Test)
    if Test.FETCH in chosen and Test.PRODUCE not in chosen:
        chosen = [Test.PRODUCE, *chosen]
    work = _bench(bootstrap, workload, chosen, rate=rate, driver=driver, keep=keep)
    print_rows(
        run_fast(work), as_json=json, title=f"{record_size} B records, {partitions} partitions, {codec}, acks {acks}"
    )


async def _bench(
    bootstrap: str, workload: Workload, tests: list[Test], *, rate: int, driver: Driver, keep: bool
) -> list[Row]:
    rows: list[Row] = []
    servers, options = bootstrap_servers(bootstrap), ConnectionOptions(security=security())
    if driver is Driver.CONFLUENT and options.security != PLAINTEXT:
        raise ValueError("--driver confluent does not support passwords and TLS: use --driver raw")
    async with admin_of(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(workload.topic, workload.partitions, 1)]))
        client = Client(servers, rng=new_random(), options=options)
        try:
            client.keep_topics(lambda: [workload.topic])
            await client.start()
            await client.topic(workload.topic, timeout_ms=10_000)
            await client.retrying(lambda: _all_led(client, workload), timeout_ms=10_000)
            for test in [test for test in Test if test in tests]:
                with progress_bar(f"{test:9}") as progress:
                    row = await _measure(
                        client, workload, test, bootstrap=servers, rate=rate, driver=driver, progress=progress
                    )
                    rows.append(row)
        finally:
            await client.close()
            if not keep:
                await admin.delete_topics([workload.topic])
    return rows


async def _all_led(client: Client, workload: Workload) -> None:
    by_leader_of(client, workload.topic_partitions())


async def _measure(
    client: Client, workload: Workload, test: Test, *, bootstrap: str, rate: int, driver: Driver, progress: Progress
) -> Row:
    if test is Test.LATENCY:
        measured = await load.produce_at_rate(client, workload, rate, progress)
        return measured.row(f"latency at {rate}/s")
    if test is Test.REQUESTS:
        single = replace(workload, batch_size=1, window=_PIPELINE)
        return (await load.produce(client, single, progress)).row(f"single-record requests, {_PIPELINE} in flight")
    if driver is Driver.CONFLUENT:
        module = _confluent_load()
        loop = asyncio.get_running_loop()
        measure = module.produce if test is Test.PRODUCE else module.fetch
        measured = await loop.run_in_executor(None, measure, bootstrap, workload, progress)
        return measured.row(f"{test} with confluent-kafka")
    measured = await (load.produce if test is Test.PRODUCE else load.fetch)(client, workload, progress)
    return measured.row(str(test))


def _confluent_load() -> Any:
    try:
        return import_module(".confluent_load", __package__)
    except ImportError:
        fail("--driver confluent needs the package confluent-kafka")
