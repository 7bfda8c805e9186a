"""What whoever wrote a query has to mend, told without the way through our code, which Spark would print all of."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ...protocol.errors import KafkaError

P = ParamSpec("P")
R = TypeVar("R")

_ERROR_LINE = re.compile(r"^(?:: )?(?:[\w.]+\.)?\w*(?:Error|Exception): ")


def reason_in(text: str) -> str:
    """What an error of Spark's says, which may be the end of a Python traceback inside a Java one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if _ERROR_LINE.match(line)]
    return _ERROR_LINE.sub("", ours[-1]) if ours else (lines or [""])[0]


def plainly(method: Callable[P, R]) -> Callable[P, R]:
    """The same method, but what it raises for a cluster, a topic or an option that is not there has no traceback."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except (KafkaError, ValueError) as error:
            raise error.with_traceback(None) from None

    return called
