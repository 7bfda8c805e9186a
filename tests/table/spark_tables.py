"""`barnabas spark export` to Iceberg and Delta in a session of the PySpark that has their jars.

`python -m tests.table.spark_tables BOOTSTRAP TOPIC FOLDER JARS KIND…` prints the status of each command, and the number
of rows and the sum of offsets that Spark reads then, one JSON a line. After `read:KIND` it only reads. The
Iceberg catalog is the SQLite catalog of `barnabas table follow --to iceberg:///FOLDER/lake#db.rows`.
"""

import json
import sys

from tests.spark.lake_tables import run, settings

from barnabas.spark.session import register, session


def catalog(lake: str) -> dict[str, str]:
    """The settings of docs/tables.md."""
    return {
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "spark.sql.catalog.local.uri": f"jdbc:sqlite:{lake}/catalog.db",
        "spark.sql.catalog.local.warehouse": f"file://{lake}",
    }


def main(bootstrap: str, topic: str, folder: str, jars: str, *kinds: str) -> None:
    spark = session("local[2]", config={**settings(folder, jars), **catalog(f"{folder}/lake")})
    register(spark)
    outputs = {"iceberg": "local.db.rows", "delta": f"{folder}/table"}
    for step in kinds:
        mode, _, kind = step.rpartition(":")
        status = 0
        if mode != "read":
            export = ("export", "--topic", topic, "-b", bootstrap, "--format", kind, "--output", outputs[kind])
            status = run(*export, *(("--batch-bytes", "4000") if kind == "iceberg" else ()))
        found = (
            spark.sql("SELECT * FROM local.db.rows")
            if kind == "iceberg"
            else spark.read.format(kind).load(outputs[kind])
        )
        (total,) = found.selectExpr("sum(offset)").collect()[0]
        print(json.dumps({kind: status, "rows": found.count(), "offsets": total}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
