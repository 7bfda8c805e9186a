"""A Spark session that finds Java, and whose workers run the Python that asked for it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from . import host
from .java import find_java_home
from .log_source import BarnabasLogSource
from .source import BarnabasSource


def session(
    master: str | None = None, *, app_name: str = "barnabas", config: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one.

    `master` None leaves the choice to Spark's own settings (`spark-submit`), and `local[*]` if there are none. Sets
    JAVA_HOME if Java is neither there nor on the PATH, and PYSPARK_PYTHON unless it is set. Raises NoJavaError.
    """
    home = find_java_home()
    if home is not None:
        host.set_environment("JAVA_HOME", str(home))
    if host.environment("PYSPARK_PYTHON") is None:
        # Otherwise workers are the first python3 on the PATH, which need not be the one with these packages.
        host.set_environment("PYSPARK_PYTHON", host.interpreter())
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def register(spark: SparkSession) -> None:
    """Make `format("barnabas")` and `format("barnabas-log")` known to a session, whatever else is installed.

    Spark finds both by itself in most places; a broken neighbour among the installed `pyspark_…` modules, or one that
    was installed after the session began, hides them.
    """
    for source in (BarnabasSource, BarnabasLogSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark 4.0 says so of one that it found by itself; later ones replace it.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise
