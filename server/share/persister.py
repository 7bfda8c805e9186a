"""The state of share-partitions for partition leaders and group coordinators (Kafka: DefaultStatePersister).

Each share-partition of a request is sent to its coordinator, which is this broker or another one. Share-partitions of
one group that wait for the same broker are sent together. Requests are retried after errors that occur when the
coordinator moves to another broker (Kafka: PersisterStateManager).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ...protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from ...protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ...protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ...protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ...protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from ...protocol.schema import UNBOUNDED
from ...protocol.topic_partition import TopicPartition
from ..coordinator.inter_broker_sender import InterBrokerSender
from ..coordinator.share.share_coordinator import ShareCoordinator
from ..coordinator.share.share_partition_key import SharePartitionKey
from ..metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from ..runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from ..metadata.metadata_cache import MetadataCache
    from ..runtime.ports import SendRequest

logger = room_logger("share")

REQUEST_BACKOFF_MS = 100
"""The pause before the first retry, which doubles with each attempt. Kafka's is 2 s: when a coordinator moves,
each acknowledgement would wait that long, although the new coordinator is known after milliseconds."""
REQUEST_BACKOFF_MAX_MS = 10_000
BACKOFF_JITTER = 0.2
MAX_ATTEMPTS = 9
"""These attempts take about 25 s, as Kafka's five attempts do."""
PARTITIONS_PER_REQUEST = 1000
LOWEST_VERSION = 0

RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors that end when the coordinator has moved or the metadata is updated. A write that is repeated because its
response was lost has no further effect."""


@dataclass(frozen=True)
class _Rpc:
    """The messages of one API (Kafka: PersisterStateManager.RPCType)."""

    name: str
    request: Callable[..., Any]
    topic: Callable[..., Any]
    response: Callable[..., Any]
    topic_result: Callable[..., Any]
    partition_result: Callable[..., Any]


INITIALIZE = _Rpc(
    "initialize",
    InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
    InitializeShareGroupStateResponse,
    initialize_share_group_state.InitializeStateResult,
    initialize_share_group_state.PartitionResult,
)
READ = _Rpc(
    "read",
    ReadShareGroupStateRequest,
    read_share_group_state.ReadStateData,
    ReadShareGroupStateResponse,
    read_share_group_state.ReadStateResult,
    read_share_group_state.PartitionResult,
)
WRITE = _Rpc(
    "write",
    WriteShareGroupStateRequest,
    write_share_group_state.WriteStateData,
    WriteShareGroupStateResponse,
    write_share_group_state.WriteStateResult,
    write_share_group_state.PartitionResult,
)
DELETE = _Rpc(
    "delete",
    DeleteShareGroupStateRequest,
    delete_share_group_state.DeleteStateData,
    DeleteShareGroupStateResponse,
    delete_share_group_state.DeleteStateResult,
    delete_share_group_state.PartitionResult,
)
SUMMARY = _Rpc(
    "summary",
    ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
    ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary.ReadStateSummaryResult,
    read_share_group_state_summary.PartitionResult,
)


class _Item:
    """One share-partition of a request (Kafka: PersisterStateManagerHandler)."""

    __slots__ = ("data", "key", "result")

    def __init__(self, key: SharePartitionKey, data: Any) -> None:
        self.key = key
        self.data = data
        self.result: asyncio.Future[Any] | None = None
        """The partition's part of the response of another broker, or a KafkaError; None if no request is sent."""

    def finish(self, result: Any) -> None:
        """Set the result, unless the caller was cancelled."""
        if self.result is not None and not self.result.done():
            self.result.set_result(result)


class Persister:
    """The access of this broker to the state of all share-partitions, on any coordinator.

    Owned by the broker and used on the loop's thread only. Its methods raise no KafkaError: after the retries, each
    share-partition of the response has its own error. The results have the order of the request.
    """

    def __init__(
        self,
        share_coordinator: ShareCoordinator,
        metadata: MetadataCache,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        *,
        broker_id: int,
        send: SendRequest | None,
    ) -> None:
        """`send` sends requests to other brokers; None if there are none."""
        self._coordinator = share_coordinator
        self._metadata = metadata
        self._loop = loop
        self._random = random
        self._broker_id = broker_id
        self._local: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
            INITIALIZE.name: share_coordinator.initialize_state,
            READ.name: share_coordinator.read_state,
            WRITE.name: share_coordinator.write_state,
            DELETE.name: share_coordinator.delete_state,
            SUMMARY.name: share_coordinator.read_state_summary,
        }
        self._senders: dict[str, InterBrokerSender[_Item]] = {}
        self._send = send
        if send is not None:
            self._senders = {
                rpc.name: InterBrokerSender(
                    self._send_request,
                    loop,
                    lowest=LOWEST_VERSION,
                    request=partial(_coalesce, rpc),
                    answered=_distribute,
                )
                for rpc in (INITIALIZE, READ, WRITE, DELETE, SUMMARY)
            }
        self._sent: set[_Item] = set()
        """The share-partitions of requests to other brokers that callers wait for."""
        self._is_closed = False

    async def close(self) -> None:
        """Stop sending; all waiting callers receive COORDINATOR_NOT_AVAILABLE."""
        self._is_closed = True
        for sender in self._senders.values():
            await sender.close()
        for item in self._sent:
            item.finish(_closed_error())

    # -- the state of share-partitions ---------------------------------------------------------------------------------

    async def initialize_state(self, request: InitializeShareGroupStateRequest) -> InitializeShareGroupStateResponse:
        """Create the state of share-partitions, or replace it by a new state with a higher state epoch."""
        return cast(InitializeShareGroupStateResponse, await self._persist(INITIALIZE, request))

    async def read_state(self, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
        """Read the state of share-partitions; leaders with an older leader epoch cannot write it after this."""
        return cast(ReadShareGroupStateResponse, await self._persist(READ, request))

    async def write_state(self, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
        """Write changes of the state; the changes without an error are durable when this returns."""
        return cast(WriteShareGroupStateResponse, await self._persist(WRITE, request))

    async def delete_state(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
        """Delete the state of share-partitions."""
        return cast(DeleteShareGroupStateResponse, await self._persist(DELETE, request))

    async def read_state_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> ReadShareGroupStateSummaryResponse:
        """Read the start offsets of share-partitions without their state batches."""
        return cast(ReadShareGroupStateSummaryResponse, await self._persist(SUMMARY, request))

    # -- attempts ------------------------------------------------------------------------------------------------------

    async def _persist(self, rpc: _Rpc, request: Any) -> Any:
        """Send all share-partitions, and send share-partitions with a retried error again after a growing pause."""
        items = [
            _Item(SharePartitionKey(request.group_id, topic.topic_id, data.partition), data)
            for topic in request.topics
            for data in topic.partitions
        ]
        results: dict[SharePartitionKey, Any] = {item.key: None for item in items}
        attempt = 0
        while items:
            attempt += 1
            failed: list[_Item] = []
            outcomes = await self._try(rpc, request.group_id, items)
            for item, outcome in zip(items, outcomes, strict=True):
                results[item.key] = result = self._as_result(rpc, item.key, outcome)
                if result.error_code in RETRIED and attempt < MAX_ATTEMPTS and not self._is_closed:
                    failed.append(item)
            if failed:
                logger.debug("%s of %d share-partitions is retried", rpc.name, len(failed))
                await asyncio.sleep(self._backoff_ms(attempt) / 1000)
            items = failed
        return _response(rpc, results)

    def _backoff_ms(self, attempt: int) -> float:
        pause = min(REQUEST_BACKOFF_MS << (attempt - 1), REQUEST_BACKOFF_MAX_MS)
        return pause * self._random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)

    async def _try(self, rpc: _Rpc, group_id: str, items: Sequence[_Item]) -> list[Any]:
        """Return a partition result or a KafkaError for each item, after one attempt."""
        if self._is_closed:
            return [_closed_error()] * len(items)
        outcomes: dict[_Item, Any] = {}
        local: list[_Item] = []
        budget = CountBudget()
        for item in items:
            try:
                leader = await self._find_coordinator(item.key)
            except KafkaError as error:
                outcomes[item] = error.as_result()
                continue
            if leader == self._broker_id:
                local.append(item)
            elif self._is_closed:
                outcomes[item] = _closed_error()
            else:
                item.result = self._loop.create_future()
                self._sent.add(item)
                self._senders[rpc.name].add(leader, item)
            await budget.step()
        try:
            if local:
                outcomes |= await self._handle_local(rpc, group_id, local)
            for item in items:
                if item.result is not None:
                    outcomes[item] = await item.result
        finally:
            for item in items:
                item.result = None
                self._sent.discard(item)
        return [outcomes[item] for item in items]

    async def _find_coordinator(self, key: SharePartitionKey) -> int:
        """Return the broker that coordinates a share-partition; create the topic if it does not exist."""
        index = self._coordinator.partition_for(key)
        if index is not None:
            image = self._metadata.partition(TopicPartition(SHARE_GROUP_STATE_TOPIC, index))
            if image is not None and (image.leader == self._broker_id or image.leader in self._metadata.brokers):
                return image.leader
        leader = await self._coordinator.find_coordinator(key)
        if leader != self._broker_id and not self._senders:
            reason = f"broker {leader} coordinates the share-partition, and this broker sends no requests to others"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return leader

    async def _send_request(self, broker_id: int, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """Send a request. An unexpected error becomes a KafkaError, because callers wait for an outcome."""
        assert self._send is not None
        try:
            return await self._send(broker_id, request, lowest=lowest, highest=highest)
        except (KafkaError, ProtocolError):
            raise
        except Exception as error:
            logger.exception("a request to broker %d has failed", broker_id)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def _handle_local(self, rpc: _Rpc, group_id: str, items: list[_Item]) -> dict[_Item, Any]:
        """Return the results of this broker's coordinator."""
        try:
            response = await self._local[rpc.name](_request(rpc, group_id, items))
        except Exception as error:
            logger.exception("the share coordinator has failed")
            return dict.fromkeys(items, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        return dict(zip(items, _results_of(items, response), strict=True))

    def _as_result(self, rpc: _Rpc, key: SharePartitionKey, outcome: Any) -> Any:
        if not isinstance(outcome, KafkaError):
            return outcome
        return rpc.partition_result(
            partition=key.partition, error_code=outcome.code, error_message=f"{rpc.name} state: {outcome.message}"
        )


def _closed_error() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker is stopping.")


def _request(rpc: _Rpc, group_id: str, items: Sequence[_Item]) -> Any:
    """Return one request for share-partitions of a group."""
    by_topic: dict[UUID, list[Any]] = {}
    for item in items:
        by_topic.setdefault(item.key.topic_id, []).append(item.data)
    topics = [rpc.topic(topic_id=topic_id, partitions=data) for topic_id, data in by_topic.items()]
    return rpc.request(group_id=group_id, topics=topics)


def _response(rpc: _Rpc, results: dict[SharePartitionKey, Any]) -> Any:
    by_topic: dict[UUID, list[Any]] = {}
    for key, result in results.items():
        by_topic.setdefault(key.topic_id, []).append(result)
    return rpc.response(
        results=[rpc.topic_result(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()]
    )


def _coalesce(rpc: _Rpc, waiting: deque[_Item]) -> tuple[list[_Item], Any]:
    """Remove the share-partitions of the group that has waited longest, and return them with their request.

    A response has one result for each share-partition, so a second write of the same share-partition waits for the next
    request.
    """
    group_id = waiting[0].key.group_id
    taken: dict[SharePartitionKey, _Item] = {}
    left: list[_Item] = []
    for item in waiting:
        key = item.key
        if key.group_id == group_id and key not in taken and len(taken) < PARTITIONS_PER_REQUEST:
            taken[key] = item
        else:
            left.append(item)
    waiting.clear()
    waiting.extend(left)
    items = list(taken.values())
    return items, _request(rpc, group_id, items)


def _distribute(items: Sequence[_Item], response: Any | KafkaError) -> None:
    """Pass the results of a response to the items."""
    results = [response] * len(items) if isinstance(response, KafkaError) else _results_of(items, response)
    for item, result in zip(items, results, strict=True):
        item.finish(result)


def _results_of(items: Sequence[_Item], response: Any) -> list[Any]:
    """Return the result of each item, a KafkaError where the response has none."""
    results = {(topic.topic_id, result.partition): result for topic in response.results for result in topic.partitions}
    missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The response of the coordinator lacks the share-partition.")
    return [results.get((item.key.topic_id, item.key.partition), missing) for item in items]
