"""`barnabas spark` with Delta and Iceberg tables as its output, in the session of whichever PySpark has their jars.

`python -m tests.spark.lake_tables BOOTSTRAP FOLDER JARS` prints what it read back from each, one JSON a line.
"""

import json
import sys

from tests.java import QUICK_FLAGS

from barnabas.spark.session import register, session
from barnabas.tools.cli import main as barnabas


def settings(folder: str, jars: str) -> dict[str, str]:
    """What docs/spark.md says, with jars that are here already."""
    return {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{folder}/lake",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(QUICK_FLAGS),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }


def run(*arguments: str) -> int:
    """The status that a command ends with."""
    return barnabas(["spark", *arguments])


def main(bootstrap: str, folder: str, jars: str) -> None:
    """Each command as often as somebody would run it, and what is in its table after that."""
    spark = session("local[2]", config=settings(folder, jars))
    register(spark)
    topic = ("--topic", "t", "-b", bootstrap)
    export = ("export", *topic, "--format", "delta", "--output", f"{folder}/exported")
    print(json.dumps({"export": [run(*export), run(*export)]}))
    rows = spark.read.format("delta").load(f"{folder}/exported").select("topic", "partition", "offset").collect()
    print(json.dumps({"exported": sorted([row.topic, row.partition, row.offset] for row in rows)}))
    for kind, output in (("delta", f"{folder}/latest"), ("iceberg", "lake.db.latest")):
        table = ("table", *topic, "--format", kind, "--output", output)
        ended = [run(*table, "--overwrite"), run(*table), run(*table, "--overwrite")]
        latest = spark.read.format(kind).load(output).collect()
        history = f"SELECT * FROM {output}.snapshots" if kind == "iceberg" else f"DESCRIBE HISTORY delta.`{output}`"
        print(
            json.dumps(
                {
                    kind: ended,
                    "rows": sorted([bytes(row.key).decode(), bytes(row.value).decode()] for row in latest),
                    "versions": len(spark.sql(history).collect()),
                }
            )
        )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
