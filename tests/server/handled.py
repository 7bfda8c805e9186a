"""A handler called as `KafkaApis` calls it: with the services that it names, found in `context.broker`."""

from __future__ import annotations

from collections.abc import Generator
from inspect import signature
from types import coroutine
from typing import Any

from barnabas.server.apis.kafka_apis import continued
from barnabas.server.apis.services import bind
from barnabas.server.runtime.loop_sharing import Steps


class SingleSteps:
    """Sliced work that yields to the loop after each step."""

    @coroutine
    def complete(self, steps: Steps[Any]) -> Generator[None, None, Any]:
        return (yield from steps)


def handled(handler: Any, context: Any, request: Any) -> Any:
    """Return the response of a handler, or its coroutine; that of sliced work runs until it waits for long."""
    if "sliced_work" not in signature(handler.handle).parameters:
        return bind(handler.handle, context.broker)(context, request)
    work = handled_in_steps(handler, context, request)
    while True:
        try:
            awaited = work.send(None)
        except StopIteration as end:
            return end.value
        if awaited is not None:
            return continued(work, awaited)


class _InSteps:
    """The services of a broker, with sliced work in single steps."""

    def __init__(self, services: Any) -> None:
        self._services = services
        self.sliced_work = SingleSteps()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services, name)


def handled_in_steps(handler: Any, context: Any, request: Any) -> Any:
    """Return the coroutine of a handler with sliced work, which waits after each step."""
    return bind(handler.handle, _InSteps(context.broker))(context, request)
