"""What whoever wrote a query has to mend, told without the way through our code, which Spark would print all of."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ...protocol.errors import KafkaError

P = ParamSpec("P")
R = TypeVar("R")


def plainly(method: Callable[P, R]) -> Callable[P, R]:
    """The same method, but what it raises for a cluster, a topic or an option that is not there has no traceback."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except (KafkaError, ValueError) as error:
            raise error.with_traceback(None) from None

    return called
