"""The pumps of `barnabas bench`: what becomes of them when they are interrupted."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.tools.cli.load import LoadResult, ProducePump, Workload

PATIENCE = 60


class Refusing:
    """Answers every request with an error."""

    def send_encoded(self, *_: object) -> asyncio.Future[memoryview]:
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        answer.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"))
        return answer


async def test_nobody_is_told_of_errors_after_an_interrupt() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    pump = ProducePump(cast(BrokerConnection, Refusing()), [b""], Workload("t"), LoadResult())
    pump.start()
    (failed,), _ = await asyncio.wait([pump._done], timeout=PATIENCE)  # which does not ask what has failed
    del pump, failed  # its user was interrupted, and never stops it
    gc.collect()
    assert complaints == []
