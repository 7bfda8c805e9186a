"""What whoever wrote a query has to mend, told without the way through our code, which Spark would print all of.

That may be the Python that Spark runs, which need not be the one of the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ...protocol.errors import KafkaError
from . import host

P = ParamSpec("P")
R = TypeVar("R")

_OF_THE_EXTRA = ("pyarrow", "numpy")
_ERROR_LINE = re.compile(r"^(?:: )?(?:[\w.]+\.)?\w*(?:Error|Exception): ")


def reason_in(text: str) -> str:
    """What an error of Spark's says, which may be the end of a Python traceback inside a Java one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if _ERROR_LINE.match(line)]
    return _ERROR_LINE.sub("", ours[-1]) if ours else (lines or [""])[0]


def plainly(method: Callable[P, R]) -> Callable[P, R]:
    """The same method, but what it raises for a cluster, a topic or an option that is not there has no traceback, and
    for a package that is not there it says where that is not.
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
            remedy = "pip install 'barnabas[spark]' there, or have PYSPARK_PYTHON name another before Spark starts"
            raise ModuleNotFoundError(f"{lacking}: {remedy}", name=error.name) from None

    return called
