"""Jobs on a master with workers and executors in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tests.foreign_tools import CHECKOUT, require_tool
from tests.spark.conftest import read_log

from barnabas.protocol.record_batch import RecordBatchBuilder

pytestmark = [pytest.mark.verify, pytest.mark.timeout(290)]
RECORDS, KEYS = 2000, 150
JOBS = """
import json, sys
from barnabas.spark import jobs
from barnabas.spark.session import session
source, target = sys.argv[1:]
spark = session("local-cluster[2,1,1024]", config={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2"})
spark.sparkContext.setLogLevel("ERROR")
jobs.compact(jobs.log_records(spark, source, options={"splitBytes": "20000"}), target)
found = jobs.audit(jobs.log_records(spark, target)).collect()
print(json.dumps([row.asDict() for row in found], default=str))
"""


def test_compact_and_audit_with_executors_of_their_own(tmp_path: Path) -> None:
    require_tool("java", "Spark needs Java 17 or later")
    folder = tmp_path / "log" / "t-0"
    folder.mkdir(parents=True)
    for first in range(0, RECORDS, 500):
        builder = RecordBatchBuilder(base_offset=first)
        for offset in range(first, first + 500):
            builder.append(b"k%d" % (offset % KEYS), b"%0100d" % offset, (), 1_700_000_000_000)
        (folder / f"{first:020}.log").write_bytes(builder.build())
    target = tmp_path / "compacted"
    # Workers write below Spark's home; here it is a folder that goes away.
    home = tmp_path / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT / '.src'}{os.pathsep}{CHECKOUT}", "SPARK_HOME": str(home)}
    command = [sys.executable, "-c", JOBS, f"file://{folder.parent}", str(target)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [row["offset"] for row in read_log({"path": str(target)})] == list(range(RECORDS - KEYS, RECORDS))
    (partition,) = json.loads(done.stdout.splitlines()[-1])
    assert (partition["records"], partition["keys"], partition["repeats"]) == (KEYS, KEYS, 0)
