"""Where Spark looks for `format("barnabas-log")`: it imports every module called `pyspark_…`, one source in each."""

from barnabas.spark.log_source import BarnabasLogSource as DefaultSource

__all__ = ["DefaultSource"]
