"""A request goes past a meter, as `KafkaApis.handle` has it."""

from __future__ import annotations

from typing import Any

from barnabas.server.apis.kafka_apis import Handle, Meter
from barnabas.server.apis.request_context import RequestContext


def handle_metered(meter: Meter, handle: Handle, context: RequestContext, request: Any) -> None:
    """No more of `KafkaApis` than what has to do with the meter."""
    if meter.begin():
        meter.timed(context, request)
        return
    answer = handle(context, request)
    if meter.is_slow() or not context.is_answered:
        meter.beyond(context, request, answer)
