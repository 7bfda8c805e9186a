"""A Spark session that finds Java, and whose workers run the caller's Python."""

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
"""Environment variables of a Spark other than pip's."""
_LOCAL_IP = "SPARK_LOCAL_IP"


def session(
    master: str | None = None, *, app_name: str = "barnabas", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, or a new one.

    `master` None uses Spark's own settings (`spark-submit`), and `local[*]` without any. Sets JAVA_HOME if neither it
    nor the PATH has a Java, and PYSPARK_PYTHON unless it is set. A running session that was started without
    them receives the sources by `register`. Raises NoJavaError.
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
    """Let a Spark that is about to start on this machine open its ports on 127.0.0.1 only.

    For commands, whose process has one Spark: the environment applies to every later session, too. SPARK_LOCAL_IP has
    precedence.
    """
    named = master or config.get("spark.master")
    if named is None and not _is_set_up():
        named = "local[*]"
    if named is not None and named.startswith("local") and host.environment(_LOCAL_IP) is None:
        host.set_environment(_LOCAL_IP, "127.0.0.1")


def _is_set_up() -> bool:
    """Return whether foreign settings may select a cluster."""
    return any(map(host.environment, _SET_UP)) or Path(pyspark.__file__).with_name("conf").exists()


def active_session() -> SparkSession | None:
    """Return the existing session, if any."""
    return SparkSession.getActiveSession()


def register(spark: SparkSession) -> None:
    """Register `format("barnabas")` and `format("barnabas-log")` with a session, independently of other packages.

    Spark finds both if PYSPARK_PYTHON was set early enough to the Python with these packages; a broken module among the
    installed `pyspark_…` modules, or an installation after the start of the session, hides them. From now on the
    session's workers run PYSPARK_PYTHON, or the caller's Python, unless the session is remote.
    """
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        context.pythonExec = _python_of_workers()
    for source in (BarnabasSource, BarnabasLogSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark 4.0 warns about a source that it has found itself; later versions replace it.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise


def _python_that_looks_for_sources() -> str:
    """Return the Python that looks for sources: not a worker's, but PYSPARK_DRIVER_PYTHON if set."""
    return host.environment("PYSPARK_DRIVER_PYTHON") or _python_of_workers()


def _python_of_workers() -> str:
    """Return Spark's default, the first python3 on the PATH, which may lack these packages."""
    return host.environment("PYSPARK_PYTHON") or host.interpreter()
