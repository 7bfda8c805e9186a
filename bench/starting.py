"""Start-up benches: an empty data directory, and ten thousand partitions after a clean stop and after kill -9."""

import time

from bench import single
from bench.bench import Figures, Run
from bench.process import resident_mb
from bench.targets import TIMEOUT_S

IDLE_S = 2.0
TOPICS, PARTITIONS_PER_TOPIC = 10, 1000


def measure_start(run: Run) -> Figures:
    """Measure the time from the start of an empty server to its first acknowledged record, and its idle memory."""
    run.target.prepare()
    begin = time.perf_counter()
    run.target.start()
    single.first_acknowledgement(run.target.bootstrap, "first")
    elapsed = time.perf_counter() - begin
    time.sleep(IDLE_S)
    return {"first_ack_s": elapsed, "idle_mb": resident_mb(run.target.pids)}


def measure_start_again(run: Run) -> Figures:
    """Measure the time from a start with 10 000 partitions of one record each to the first acknowledged record."""
    run.target.start()
    for number in range(TOPICS):
        run.target.create_topic(f"many-{number}", PARTITIONS_PER_TOPIC)
        single.write_record_to_each_partition(run.target.bootstrap, f"many-{number}", PARTITIONS_PER_TOPIC)
    made: Figures = {}
    for name, end in (("clean", run.target.stop), ("killed", run.target.kill)):
        begin = time.perf_counter()
        end()
        if name == "clean":
            made["clean_stop_s"] = time.perf_counter() - begin
        begin = time.perf_counter()
        run.target.start()
        single.first_acknowledgement(run.target.bootstrap, "many-0", timeout_s=TIMEOUT_S)
        made[f"start_after_{name}_s"] = time.perf_counter() - begin
    made["resident_mb"] = resident_mb(run.target.pids)
    return made
