"""Errors that the author of a query can correct, without this package's traceback, which Spark would print.

This includes the Python that Spark runs, which may differ from the Python of the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..protocol.errors import KafkaError
from . import host

P = ParamSpec("P")
R = TypeVar("R")

_OF_THE_EXTRA = ("pyarrow", "numpy")
_ERROR_LINE = re.compile(r"^(?:: )?(?:[\w.]+\.)?\w*(?:Error|Exception): ")


def error_reason(text: str) -> str:
    """Return the message of a Spark error, which may be the end of a Python traceback inside a Java one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if _ERROR_LINE.match(line)]
    return _ERROR_LINE.sub("", ours[-1]) if ours else (lines or [""])[0]


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method: errors of a cluster, a topic or an option have no traceback, and the error of a missing
    package contains the Python that lacks it.
    """

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except (KafkaError, ValueError) as error:
            raise error.with_traceback(None) from None
        except ModuleNotFoundError as error:
            if error.name not in _OF_THE_EXTRA:
                raise
            lacking = f"{host.interpreter()}, the Python that this Spark runs, has no {error.name}"
            remedy = "pip install 'barnabas[spark]' there, or set PYSPARK_PYTHON to another Python"
            raise ModuleNotFoundError(f"{lacking}: {remedy}", name=error.name) from None

    return called
