"""Compaction benches: the same dirty log cleaned by one cleaner thread of Apache Kafka and by Barnabas's worker.

Both brokers first clean copies of the log that do not count, until the speed no longer improves. Kafka's figures are
from the log messages of its cleaner, and Barnabas's from `barnabas compact --status`. Both count the bytes of the log
once, and include the swap of segments. The processor time of Kafka is that of its cleaner thread, without the JVM's own
threads. The processor time of Barnabas is that of the whole worker process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import load
from bench.bench import BROKERS, LIMIT, Bench, Figures, Goal, Run
from bench.cleaning import clean_once, dirty_batches, job_of, make_folder, puts_per_second
from bench.process import cpu_seconds, peak_mb
from bench.targets import BrokerTarget
from bench.warming import WarmUp, WarmUpResult
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.barnabas_server import BarnabasServer
from tests.cleaning.kafka_broker import NEVER_MS, cleaned_in
from tests.foreign_tools import cache_dir, cache_entry
from tests.kafka import SERVER_FLAGS, KafkaServer
from tests.server_process import BrokerProcess, free_port, wait_until

from barnabas.storage.cleaning.clean_job import CleanJob, SourceSegment
from barnabas.storage.file_records import FileRecords
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.segment_files import LOG_SUFFIX, segment_file_name

SEGMENT_BYTES = 128 << 20
BUFFER_BYTES = 128 << 20
MEBIBYTE = 1 << 20
PASS_S = 120.0
MAX_WARM_PASSES = 5
"""Each pass cleans a separate copy of the log, which is created in advance and then occupies up to one gigabyte."""
MAX_LOGS_PER_SECOND = 1.3
"""More logs of one gigabyte per second than any cleaner completes, so that cleaning lasts as long as the load."""
PYTHON_BYTES = 8_000_000
"""The part of a log that the Python implementation cleans."""
CLEANER = {
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(BUFFER_BYTES),
    "log.initial.task.delay.ms": "1000",
}
TOPIC = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": NEVER_MS,
    "min.cleanable.dirty.ratio": "0.001",
    "segment.bytes": str(SEGMENT_BYTES),
}
FIGURES = {"mb_per_s": "higher", "records_per_s": "higher", "mb_per_cpu_s": "higher"}
SPEED = (Goal("mb_per_s", "kafka", 1.5),)
CASES = {
    "1k-90": (1024, 90, 1000),
    "1k-10": (1024, 10, 1000),
    "100b-90": (100, 90, 300),
    "100b-10": (100, 10, 300),
}
"""Bytes of a record, the percentage of records that a later record replaces, megabytes of the log."""


WORKER_FIGURES = {"mb_per_s": "higher", "peak_mb": "lower", "p50_ms": "lower", "p99_ms": "lower"}


def dirty_folder(case: str) -> Path:
    """Return the log of a case, which is created once: dirty segments, and then an active segment."""
    size, duplicates, megabytes = CASES[case]
    with cache_entry(cache_dir("bench-cleaning"), f"{case}-{megabytes}-1") as (entry, scratch):
        if scratch is not None:
            made = scratch / "log"
            make_folder(made, megabytes * 1_000_000, size, duplicates, SEGMENT_BYTES)
            end = job_of(made).first_uncleanable_offset
            _, batch = next(iter(dirty_batches(1, size, duplicates)))
            (made / f"{end:020}.log").write_bytes(end.to_bytes(8, "big") + batch[8:])
    return entry / "log"


def records_in(folder: Path) -> int:
    """Return the number of records before the active segment."""
    return max(int(path.stem) for path in folder.glob("*.log"))


class DirtyBroker:
    """A broker with topics that are copies of one dirty log, which it does not clean before `clean`."""

    def __init__(self, name: str, folder: Path, *, form: str = "process") -> None:
        """Configure a broker. `form` sets whether Barnabas cleans its logs in a `process` or in a `thread`."""
        self.health_port = free_port()
        self.server: BrokerProcess
        if name == "kafka":
            self.server = KafkaServer(folder, heap="1g", properties=CLEANER, log_level="info", jvm_flags=SERVER_FLAGS)
        else:
            own = {"health.port": str(self.health_port), "log.cleaner.worker": form}
            self.server = BarnabasServer(folder, properties={**CLEANER, **own})

    def _admin(self) -> AdminClient:
        """Return a client. Its futures complete only while it is referenced."""
        return AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 0})

    def start(self, topics: Sequence[str], dirty: Path) -> None:
        """Create the topics, copy the dirty segments to them while the broker is stopped, and start it again."""
        self.server.start()
        self.create(topics, TOPIC)
        for topic in topics:
            wait_until((self.server.log_dir / f"{topic}-0").is_dir, timeout_s=30, what=f"the folder of {topic}")
        self.server.stop()
        for topic in topics:
            self._replace(self.server.log_dir / f"{topic}-0", dirty)
        self.server.start(timeout_s=180)
        wait_until(lambda: self._have_leaders(topics), timeout_s=60, what=f"leaders of {topics}", interval_s=0.1)
        os.sync()

    def create(self, topics: Sequence[str], config: Mapping[str, str]) -> None:
        """Create topics of one partition."""
        admin = self._admin()
        made = admin.create_topics([NewTopic(topic, 1, 1, config=dict(config)) for topic in topics])
        for future in made.values():
            future.result(60)

    def _replace(self, folder: Path, dirty: Path) -> None:
        identity = (folder / "partition.metadata").read_bytes()
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        (folder / "partition.metadata").write_bytes(identity)
        *closed, active = sorted(dirty.glob("*.log"))
        for path in closed:
            _link(path, folder / path.name)
        shutil.copy2(active, folder / active.name)

    def _have_leaders(self, topics: Sequence[str]) -> bool:
        known = self._admin().list_topics(timeout=20).topics
        return all(topic in known and known[topic].partitions[0].leader >= 0 for topic in topics)

    def allow_cleaning(self, topics: Sequence[str]) -> None:
        """Allow the cleaner to clean these topics."""
        entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
        resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in topics]
        admin = self._admin()
        for future in admin.incremental_alter_configs(resources).values():
            future.result(30)

    def clean(self, topic: str) -> float:
        """Let the cleaner clean a topic, and return the speed in bytes per second."""
        self.allow_cleaning([topic])
        wait_until(lambda: topic in self.speeds(), timeout_s=PASS_S, what=f"{topic} is clean", interval_s=0.05)
        return self.speeds()[topic]

    def speeds(self) -> dict[str, float]:
        """Return the speed of each topic that has been cleaned, in bytes per second."""
        if isinstance(self.server, KafkaServer):
            text = self.server.log.read_text(errors="replace")
            return {entry.topic: entry.mb_per_s * MEBIBYTE for entry in cleaned_in(text)}
        return {
            one["topic"]: one["last_pass"]["stats"]["bytes_read"] / one["last_pass"]["seconds"]
            for one in self._status()
            if one["last_pass"] is not None
        }

    def _status(self) -> list[dict[str, Any]]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.health_port}/compaction", timeout=30) as answer:
            status: list[dict[str, Any]] = json.load(answer)["partitions"]
            return status

    def cpu_seconds(self) -> float:
        """Return the processor time so far of Kafka's cleaner thread, or of Barnabas's worker."""
        pid = self.server.pid
        if not isinstance(self.server, KafkaServer):
            return cpu_seconds(self.worker())
        threads = Path(f"/proc/{pid}/task").iterdir()
        [cleaner] = [path for path in threads if (path / "comm").read_text().startswith("kafka-log-clean")]
        return int((cleaner / "schedstat").read_text().split()[0]) / 1e9

    def worker(self) -> int:
        """Return the process id of Barnabas's worker, which runs for a while after its last job."""
        found = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.server.pid)], capture_output=True, text=True, check=True
        )
        [worker] = [line.split()[0] for line in found.stdout.splitlines() if "cleaning.worker" in line]
        return int(worker)


def _link(path: Path, to: Path) -> None:
    """Link a segment to another path, because only active segments are written to. On another disk, copy it."""
    try:
        os.link(path, to)
    except OSError:
        shutil.copy2(path, to)


def _broker(run: Run) -> DirtyBroker:
    """Return a broker of the run's kind, in the run's folder."""
    assert isinstance(run.target, BrokerTarget)
    return DirtyBroker(run.target.name, run.target.servers[0].folder)


def measure_cleaning(run: Run, case: str) -> Figures:
    """Measure the last of several equal logs. The JVM compiles, and the worker starts, during the logs before it."""
    dirty = dirty_folder(case)
    broker = _broker(run)
    copies = [f"warm-{number}" for number in range(MAX_WARM_PASSES)]
    try:
        broker.start([*copies, "measured"], dirty)
        run.warm_up = warm_up(broker, copies)
        before = broker.cpu_seconds()
        speed = broker.clean("measured")
        spent = broker.cpu_seconds() - before
        log_bytes = sum(path.stat().st_size for path in sorted(dirty.glob("*.log"))[:-1])
        return {
            "mb_per_s": speed / 1e6,
            "records_per_s": speed * records_in(dirty) / log_bytes,
            "mb_per_cpu_s": log_bytes / 1e6 / spent,
        }
    finally:
        broker.server.kill()


def warm_up(broker: DirtyBroker, copies: Sequence[str]) -> WarmUpResult:
    """Clean copies until the speed no longer improves. The output of a pass is synced before the next pass."""
    warming = WarmUp({"mb_per_s": FIGURES["mb_per_s"]}, min_rounds=1, max_rounds=len(copies))
    remaining = iter(copies)
    while not warming.is_over():
        warming.add({"mb_per_s": broker.clean(next(remaining)) / 1e6})
        os.sync()
    return warming.result()


def measure_worker(run: Run) -> Figures:
    """Measure the memory of Barnabas's worker, the map alone, and the Python implementation on a part of each log."""
    broker = _broker(run)
    try:
        broker.start(["measured"], dirty_folder("100b-10"))
        broker.clean("measured")
        peak = peak_mb(broker.worker())
    finally:
        broker.server.kill()
    made = {
        "worker_peak_mb": peak,
        "worker_over_buffer_mb": peak - BUFFER_BYTES / 1e6,
        "map_puts_per_s": puts_per_second(2_000_000, "MD5", use_native=True),
        "map_puts_per_s_python": puts_per_second(20_000, "MD5", use_native=False),
    }
    for case in CASES:
        finished, seconds, _ = clean_once(beginning_of(job_of(dirty_folder(case))), use_native=False)
        made[f"mb_per_s_python_{case}"] = finished.stats.bytes_read / seconds / 1e6
    return made


def beginning_of(job: CleanJob) -> CleanJob:
    """Return the same job over the first megabytes of the log."""
    first = job.segments[0]
    records = FileRecords(f"{job.directory}/{segment_file_name(first.base_offset, LOG_SUFFIX)}", OsFileSystem())
    batch = next(batch for batch in records.batch_positions() if batch.position >= PYTHON_BYTES)
    records.close_handle()
    part = SourceSegment(first.base_offset, batch.position)
    return replace(job, segments=(part,), first_uncleanable_offset=batch.base_offset)


def measure_disturbance(run: Run) -> Figures:
    """Measure 1000 single-record produce requests per second, without and during compaction of one-gigabyte logs."""
    big = [f"big-{number}" for number in range(2 + int(MAX_LOGS_PER_SECOND * run.seconds))]
    broker = _broker(run)
    try:
        broker.start(["warm", *big], dirty_folder("1k-10"))
        broker.clean("warm")
        bootstrap = broker.server.bootstrap
        broker.create(["latency"], {})
        load.run("latency", bootstrap=bootstrap, topic="latency", seconds=2)
        idle = load.run("latency", bootstrap=bootstrap, topic="latency", seconds=run.seconds)
        broker.allow_cleaning(big)
        busy = load.run("latency", bootstrap=bootstrap, topic="latency", seconds=run.seconds)
        assert not set(big) <= set(broker.speeds()), "the compaction ended before the load"
    finally:
        broker.server.kill()
    return {
        "p99_ms": idle["p99_ms"],
        "p99_ms_cleaning": busy["p99_ms"],
        "p50_ms_cleaning": busy["p50_ms"],
        "p99_ratio": busy["p99_ms"] / idle["p99_ms"],
    }


def measure_forms(run: Run) -> Figures:
    """Measure passes in a process and in a thread of the broker: speed, total memory, and a producer's latency."""
    assert isinstance(run.target, BrokerTarget)
    figures: Figures = {}
    for form in ("process", "thread"):
        broker = DirtyBroker("barnabas", run.target.servers[0].folder / form, form=form)
        try:
            broker.start(["warm", "measured", "busy"], dirty_folder("1k-10"))
            broker.clean("warm")
            figures[f"mb_per_s_{form}"] = broker.clean("measured") / 1e6
            peak = peak_mb(broker.server.pid)
            figures[f"peak_mb_{form}"] = peak + (peak_mb(broker.worker()) if form == "process" else 0)
            broker.create(["latency"], {})
            load.run("latency", bootstrap=broker.server.bootstrap, topic="latency", seconds=2)
            broker.allow_cleaning(["busy"])
            busy = load.run("latency", bootstrap=broker.server.bootstrap, topic="latency", seconds=run.seconds)
            figures[f"p50_ms_{form}"], figures[f"p99_ms_{form}"] = busy["p50_ms"], busy["p99_ms"]
        finally:
            broker.server.kill()
    return figures


def compaction_benches() -> list[Bench]:
    """Return the benches of the four cases, of the worker, of its two forms, and of a producer's latency."""
    made = []
    for case, (size, duplicates, megabytes) in CASES.items():
        words = "1 KB" if size == 1024 else f"{size}-byte"
        made.append(
            Bench(
                f"cleaning-{case}",
                f"compaction of {megabytes} MB by one thread, {words} records, {duplicates} % of them replaced later",
                FIGURES,
                lambda run, case=case: measure_cleaning(run, case),  # type: ignore[misc]
                targets=BROKERS,
                goals=SPEED,
                started=False,
                warmup=0,
            )
        )
    python = {f"mb_per_s_python_{case}": "higher" for case in CASES}
    return [
        *made,
        Bench(
            "cleaning-worker",
            "memory of the worker with a buffer of 134 MB, puts into the offset map, and passes of the Python code",
            {
                "worker_peak_mb": "lower",
                "worker_over_buffer_mb": "lower",
                "map_puts_per_s": "higher",
                "map_puts_per_s_python": "higher",
                **python,
            },
            measure_worker,
            targets=("barnabas",),
            goals=(Goal("worker_over_buffer_mb", LIMIT, 64), Goal("map_puts_per_s", LIMIT, 3_000_000)),
            started=False,
            warmup=0,
        ),
        Bench(
            "cleaning-forms",
            "compaction in a process and in a thread: speed, total memory, and 1000 requests per second during it",
            {f"{figure}_{form}": better for form in ("process", "thread") for figure, better in WORKER_FIGURES.items()},
            measure_forms,
            targets=("barnabas",),
            started=False,
            warmup=0,
        ),
        Bench(
            "cleaning-latency",
            "1000 single-record produce requests per second, acks 1, alone and during compaction of logs of a gigabyte",
            {"p99_ms": "lower", "p99_ms_cleaning": "lower", "p50_ms_cleaning": "lower", "p99_ratio": "lower"},
            measure_disturbance,
            targets=BROKERS,
            goals=(Goal("p99_ratio", LIMIT, 1.5),),
            started=False,
            cold="it is new in each round, has cleaned one log and answered requests for two seconds",
            warmup=0,
        ),
    ]
