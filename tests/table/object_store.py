"""Records and tables in an object store with S3's protocol, in a process that has the packages for it.

`python -m tests.table.object_store ENDPOINT BOOTSTRAP DATA FOLDER` copies the log directory DATA to the bucket `logs`,
reads it, and follows topic `t` to Iceberg tables in the bucket `tables`, whose catalog is in FOLDER. It prints what it
has read, one JSON per line.
"""

import json
import sys

import s3fs
from pyiceberg.catalog.sql import SqlCatalog

from barnabas.arrow import read_folder
from barnabas.table import FollowSettings, TableFollower, open_table
from barnabas.table.parquet_files import TableSettings
from barnabas.tools.cli import main as barnabas


def tell(name: str, offsets: list[int]) -> None:
    """The number of records and the sum of their offsets."""
    print(json.dumps({name: [len(offsets), sum(offsets)]}), flush=True)


def main(endpoint: str, bootstrap: str, data: str, folder: str) -> None:
    store = s3fs.S3FileSystem()  # by the environment: FSSPEC_S3_ENDPOINT_URL, …
    for bucket in ("logs", "tables"):
        store.mkdir(bucket)
    store.put(f"{data}/t-*", "logs/data/", recursive=True)
    tell("folder", read_folder("s3://logs/data", topics="t").to_table()["offset"].to_pylist())
    late = read_folder("s3://logs/data/t-1", start=100, end=200, columns=["offset"])
    tell("part", late.to_table()["offset"].to_pylist())
    options = {
        "warehouse": "s3://tables/lake",
        "s3.endpoint": endpoint,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    given = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    backfill = ["--from-folder", "s3://logs/data"]
    for more in (backfill, []):
        to = f"iceberg:{folder}/lake#db.rows"
        assert barnabas(["table", "follow", "t", "--to", to, "-b", bootstrap, "--once", *given, *more]) == 0
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/lake/catalog.db", **options)
    table = catalog.load_table("db.rows")
    assert all(task.file.file_path.startswith("s3://tables/lake/") for task in table.scan().plan_files())
    tell("table", table.scan().to_arrow()["offset"].to_pylist())

    settings = FollowSettings(bootstrap, ["t"], mode="upsert", most_bytes=20_000)
    layout = TableSettings(merge_at=2, options=tuple(options.items()))
    with open_table(f"iceberg:{folder}/lake#db.latest", layout) as sink:
        TableFollower(sink, settings, is_stopping=lambda: False).run(once=True)
        merged = sink.maintain()
    print(json.dumps({"merged": merged}))
    tell("latest", catalog.load_table("db.latest").scan().to_arrow()["offset"].to_pylist())


if __name__ == "__main__":
    main(*sys.argv[1:])
