"""Where Spark looks for `format("barnabas")`: it takes `DefaultSource` of every module `pyspark_…`."""

from barnabas.spark.source import BarnabasSource as DefaultSource

__all__ = ["DefaultSource", "register", "session"]

from typing import Any


def __getattr__(name: str) -> Any:
    """`session` and `register`, loaded when they are asked for: Spark imports this module in many processes."""
    if name in ("register", "session"):
        from barnabas.spark import session as module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
