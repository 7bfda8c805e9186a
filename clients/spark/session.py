"""A Spark session that finds Java, and whose workers run the Python that asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from . import host
from .java import find_java_home
from .log_source import BarnabasLogSource
from .source import BarnabasSource

_SET_UP = ("MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE")
"""What is in the environment where a Spark is not just the one that pip installed."""
_LOCAL_IP = "SPARK_LOCAL_IP"


def session(
    master: str | None = None, *, app_name: str = "barnabas", config: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one.

    `master` None leaves the choice to Spark's own settings (`spark-submit`), and `local[*]` if there are none. Sets
    JAVA_HOME if Java is neither there nor on the PATH, and PYSPARK_PYTHON unless it is set. A running session that
    was started without them gets the sources by `register`. Raises NoJavaError.
    """
    home = find_java_home()
    if home is not None:
        host.set_environment("JAVA_HOME", str(home))
    host.set_environment("PYSPARK_PYTHON", _python_of_workers())
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if {spark.sparkContext.pythonExec, _python_that_looks_for_sources()} != {_python_of_workers()}:
        register(spark)
    return spark


def keep_to_loopback(master: str | None, config: Mapping[str, str]) -> None:
    """Have a Spark that is about to start for this machine alone, open its ports on 127.0.0.1 only.

    For commands, whose process has one Spark: the environment counts for every later session, too. SPARK_LOCAL_IP wins.
    """
    named = master or config.get("spark.master")
    if named is None and not _is_set_up():
        named = "local[*]"
    if named is not None and named.startswith("local") and host.environment(_LOCAL_IP) is None:
        host.set_environment(_LOCAL_IP, "127.0.0.1")


def _is_set_up() -> bool:
    """Whether settings that are not ours may name a cluster."""
    return any(map(host.environment, _SET_UP)) or Path(pyspark.__file__).with_name("conf").exists()


def active_session() -> SparkSession | None:
    """The session that is there already, if one is."""
    return SparkSession.getActiveSession()


def register(spark: SparkSession) -> None:
    """Make `format("barnabas")` and `format("barnabas-log")` known to a session, whatever else is installed.

    Spark finds both by itself where PYSPARK_PYTHON said in time which Python has them; a broken neighbour among the
    installed `pyspark_…` modules, or one that was installed after the session began, hides them. From here on the
    session's workers are PYSPARK_PYTHON's, or run the Python that called this, unless the session is a remote one.
    """
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        context.pythonExec = _python_of_workers()
    for source in (BarnabasSource, BarnabasLogSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark 4.0 says so of one that it found by itself; later ones replace it.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise


def _python_that_looks_for_sources() -> str:
    """It is no worker that does, and where the driver's Python is named Spark has that do it."""
    return host.environment("PYSPARK_DRIVER_PYTHON") or _python_of_workers()


def _python_of_workers() -> str:
    """Without a word Spark takes the first python3 on the PATH, which need not be the one with these packages."""
    return host.environment("PYSPARK_PYTHON") or host.interpreter()
