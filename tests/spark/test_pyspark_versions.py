"""The older versions of PySpark: each is downloaded once, and runs a batch, a stream and their sinks."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from tests.foreign_tools import CHECKOUT, cache_dir, cache_entry, require_tool, run_checked

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]

FOLDERS = {"pyspark": "pyspark", "deps/jars": "pyspark/jars", "deps/bin": "pyspark/bin", "lib": "pyspark/python/lib"}
"""The folders of the source distribution, and the places where its setup.py installs them."""


def installed(name: str) -> str | None:
    """Return the path in an installation of a file of the source distribution."""
    for source, place in FOLDERS.items():
        if name.startswith(f"{source}/"):
            return place + name.removeprefix(source)
    return None


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in archive:
        path = installed("/".join(PurePosixPath(member.name).parts[1:]))
        if path is not None and member.isfile():
            yield member.replace(name=path, mode=member.mode | 0o444)


def package(version: str) -> Path:
    """Return a folder with the newest PySpark of a minor version, without the packages that it requires.

    pip would build a wheel of 450 MB from the source distribution: this takes a third of the time.
    """
    with cache_entry(cache_dir("pyspark"), version) as (entry, scratch):
        if scratch is not None:
            options = ["--quiet", "--no-cache-dir", "--no-deps", "--no-binary", "pyspark", "--dest", str(scratch)]
            run_checked([sys.executable, "-m", "pip", "download", *options, f"pyspark=={version}.*"])
            (path,) = scratch.glob("pyspark-*.tar.gz")
            with tarfile.open(path) as archive:
                archive.extractall(scratch, members(archive), filter="data")
            path.unlink()
    return entry


@pytest.mark.parametrize(
    "version", ["4.0", *(pytest.param(version, marks=pytest.mark.nightly) for version in ("4.1", "4.2"))]
)
def test_an_older_pyspark_reads_and_writes(version: str, tmp_path: Path) -> None:
    require_tool("java", "Spark needs Java 17 or later")
    entry = package(version)
    paths = [str(entry), str(CHECKOUT / ".src"), str(CHECKOUT)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.pyspark_round"],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "ROUND_FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout
    assert f"PySpark {version}." in done.stdout and str(entry) in done.stdout, done.stdout
