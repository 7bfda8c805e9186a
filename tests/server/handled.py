"""A handler called as the table of APIs calls it: with the services that it names, found in `context.broker`."""

from types import GeneratorType
from typing import Any

from barnabas.server.apis.services import bind


def handled(handler: Any, context: Any, request: Any) -> Any:
    """What `handler.handle` returns for the request."""
    answer = bind(handler.handle, context.broker)(context, request)
    if not isinstance(answer, GeneratorType):
        return answer
    while True:
        try:
            next(answer)
        except StopIteration as end:
            return end.value
