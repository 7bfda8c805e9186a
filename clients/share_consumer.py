"""The share consumer: a member of a share group, which reads and acknowledges single records (KIP-932)."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum
from math import inf
from random import Random
from types import TracebackType
from typing import Literal, Self, TypeVar

from ..common.room_logger import room_logger
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .client import Client
from .connection import ConnectionOptions
from .group.settings import GroupSettings
from .host import new_random
from .name_list import name_list
from .security import PLAINTEXT, Security
from .share.acknowledgements import Acknowledgements, AcknowledgeType
from .share.share_consume_request_manager import AcknowledgementCommitCallback, ShareConsumeRequestManager
from .share.share_fetch_settings import ShareAcknowledgementMode, ShareAcquireMode, ShareFetchSettings
from .share.share_in_flight_batch import ShareRecord
from .share.share_membership_manager import ShareMembershipManager

logger = room_logger("clients.share")

E = TypeVar("E", bound=Enum)
_CLOSE_MS = 30_000
_TURN_PAUSE = 0.0
_LONGEST_TURN = 0.02
"""Seconds for which consecutive reads may return buffered records without letting other tasks run."""
_TOPIC_ERRORS = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})


class ShareConsumer:
    """A member of a share group. Settings have the names and defaults of Kafka's Java client, with `_` instead of `.`.

    async with ShareConsumer("localhost:9092", "workers", ["flights"]) as consumer:
        async for record in consumer:
            print(record.value, record.delivery_count)

    A group may have more members than the topics have partitions. The broker locks each record that it delivers, for
    `acquisition_lock_timeout_ms`; a record that is not acknowledged by then is delivered again.

    With `share_acknowledgement_mode="implicit"`, the default, each read and `close` accept the records that the
    previous read returned; a record whose processing raised an exception is released. The application may also
    acknowledge a record itself. With "explicit" it has to acknowledge every record: `await record.accept()`,
    `release()`, `reject()` or `renew()`, in any order, also in several tasks.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        topics: Iterable[str] = (),
        *,
        client_id: str = "barnabas-share-consumer",
        client_rack: str = "",
        share_acknowledgement_mode: Literal["implicit", "explicit"] = "implicit",
        share_acquire_mode: Literal["batch_optimized", "record_limit"] = "batch_optimized",
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        fetch_max_wait_ms: int = 500,
        max_poll_records: int = 500,
        max_poll_interval_ms: int = 300_000,
        check_crcs: bool = True,
        allow_auto_create_topics: bool = True,
        request_timeout_ms: int = 30_000,
        socket_connection_setup_timeout_ms: int | None = None,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        metadata_max_age_ms: int = 300_000,
        security: Security = PLAINTEXT,
        rng: Random | None = None,
    ) -> None:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group_id required")
        self._topics = name_list(topics, "topics")
        self._mode = _chosen("share_acknowledgement_mode", share_acknowledgement_mode, ShareAcknowledgementMode)
        self._client = Client(
            bootstrap_servers,
            rng=rng or new_random(),
            options=ConnectionOptions(
                client_id, request_timeout_ms, socket_connection_setup_timeout_ms, security=security
            ),
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            allow_auto_topic_creation=allow_auto_create_topics,
        )
        settings = ShareFetchSettings(
            min_bytes=fetch_min_bytes,
            max_bytes=fetch_max_bytes,
            max_wait_ms=fetch_max_wait_ms,
            max_poll_records=max_poll_records,
            check_crcs=check_crcs,
            acquire_mode=_chosen("share_acquire_mode", share_acquire_mode, ShareAcquireMode),
            request_timeout_ms=request_timeout_ms,
            default_api_timeout_ms=default_api_timeout_ms,
        )
        group = GroupSettings(group_id, rack=client_rack, max_poll_interval_ms=max_poll_interval_ms)
        self._membership = ShareMembershipManager(self._client, group, self._on_change)
        self._requests = ShareConsumeRequestManager(
            self._client, group_id, self._membership.member_id, settings, lambda: self._membership.assigned
        )
        self._max_poll_records = max_poll_records
        self._timeout_ms = default_api_timeout_ms
        self._close_ms = min(_CLOSE_MS, request_timeout_ms)
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._ready: deque[ShareRecord] = deque()
        self._unprocessed: list[ShareRecord] = []
        """The records that the last read returned, in implicit mode."""
        self._yielded_at = 0.0
        """Loop time at which a read last let other tasks run."""

    async def start(self) -> Self:
        """Connect to the cluster. The first read joins the group. Raises BrokerUnreachableError."""
        self._client.keep_topics(lambda: self._membership.topics)
        self._client.on_metadata(self._requests.data_ready.set)
        if self._topics:
            self._membership.topics = frozenset(self._topics)
        await self._client.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._requests.run()), loop.create_task(self._membership.heartbeats.run())]
        for task in self._tasks:
            task.add_done_callback(lambda task: self._requests.data_ready.set())
        return self

    async def close(self) -> None:
        """Send the acknowledgements, release all other acquired records, leave the group and close the connections.

        In implicit mode the records that the last read returned are accepted; after an error or a cancellation, at the
        end of an `async with` block or with `close()` in a `finally` block, they are released. Takes at most
        `request_timeout_ms`, but not more than 30 s, for each of the acknowledgements and the leave.
        """
        # An exception that propagates through the caller's `finally` is the one being handled at this point.
        self._finish_unprocessed(is_failed=sys.exc_info()[1] is not None)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # A second cancellation of the caller does not interrupt the acknowledgements.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            if self._tasks:
                requests, *others = self._tasks
                requests.cancel()
                await asyncio.gather(requests, return_exceptions=True)
                await self._requests.close(self._close_ms)
                await self._leave("the consumer is closing")
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
        finally:
            await self._client.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish_unprocessed(is_failed=error is not None)
        await self.close()

    # The subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, from the next read on; a second call replaces the first. Raises ValueError without
        topics.
        """
        names = name_list(topics, "topics")
        if not all(names) or not names:
            raise ValueError("topics required")
        self._topics = names
        if self._tasks:
            self._membership.subscribe(names)

    async def unsubscribe(self) -> None:
        """Leave the group. The records of the last read are accepted in implicit mode."""
        self._finish_unprocessed()
        self._topics = []
        await self._leave("the consumer has unsubscribed")

    @property
    def subscription(self) -> frozenset[str]:
        """Return the topics of the subscription."""
        return frozenset(self._topics)

    @property
    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that the coordinator has assigned; other members may have them, too."""
        return set(self._membership.assigned)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return the group's acquisition lock timeout, None before the first response of a broker."""
        return self._requests.acquisition_lock_timeout_ms

    # Records

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord]]:
        """Return records by partition, at least one unless `timeout_ms` passes first.

        In implicit mode this accepts the records of the previous read. Raises KafkaError: CORRUPT_MESSAGE for a corrupt
        batch, which is rejected, UNSUPPORTED_VERSION if the cluster has no share groups, authorization errors.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        by_partition: dict[TopicPartition, list[ShareRecord]] = {}
        for record in await self._read(max_records or self._max_poll_records, deadline):
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return by_partition

    async def getone(self) -> ShareRecord:
        """Return the next record of any partition, without a timeout. Raises as `getmany`."""
        (record,) = await self._read(1, inf)
        return record

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord:
        return await self.getone()

    # Acknowledgements

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> Acknowledgements:
        """Acknowledge a record, as its methods do."""
        return record.acknowledge(kind)

    async def commit(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements and return the result by partition, None for success.

        In implicit mode this accepts the records of the last read. A partition whose broker does not respond within
        `timeout_ms` has the result REQUEST_TIMED_OUT.
        """
        waiting = self._flush()
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(*(one.wait() for one in waiting))
        results: dict[TopicPartition, KafkaError | None] = {}
        for one in waiting:
            error = one.error
            if not one.is_complete:
                error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no response within {timeout_ms} ms")
            partition = one.partition.topic_partition
            results[partition] = results.get(partition) or error
        return results

    def commit_async(self) -> None:
        """Send all acknowledgements without waiting for the result. In implicit mode this accepts the records of the
        last read.
        """
        self._flush()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Call this function with the offsets by partition, and the error or None, after each result.

        It is called on the event loop and must return quickly.
        """
        self._requests.commit_callback = callback

    # Internals

    def _on_change(self) -> None:
        self._requests.data_ready.set()
        self._requests.wake()

    def _flush(self) -> list[Acknowledgements]:
        self._finish_unprocessed()
        return self._requests.flush()

    def _finish_unprocessed(self, *, is_failed: bool = False) -> None:
        """Acknowledge the records that the last read returned, unless the application has done it."""
        returned, self._unprocessed = self._unprocessed, []
        kind = AcknowledgeType.RELEASE if is_failed else AcknowledgeType.ACCEPT
        late = 0
        for record in returned:
            if not record.is_acknowledged:
                late += record.acknowledge(kind).error is not None
        if late:
            logger.warning(
                "%d records were processed after their acquisition locks (%s ms) had expired or the share session was "
                "lost; they are delivered again",
                late,
                self.acquisition_lock_timeout_ms,
            )

    async def _read(self, max_records: int, deadline: float) -> list[ShareRecord]:
        if not self._topics:
            raise RuntimeError("the consumer is not subscribed to any topic")
        self._finish_unprocessed()
        time, heartbeats = asyncio.get_running_loop().time, self._membership.heartbeats
        if time() - self._yielded_at > _LONGEST_TURN:
            # Buffered records are returned without waiting; heartbeats and acknowledgements need the loop as well.
            await asyncio.sleep(_TURN_PAUSE)
            self._yielded_at = time()
        while True:
            heartbeats.read_at = time()
            self._raise_failure()
            self._membership.poll()
            records = self._take(max_records)
            if not records:
                self._requests.fetch_more()
            if records or deadline <= time():
                if self._mode is ShareAcknowledgementMode.IMPLICIT:
                    self._unprocessed = records
                return records
            with heartbeats.waiting():
                await self._requests.data_ready.wait(deadline)
            self._yielded_at = time()

    def _take(self, max_records: int) -> list[ShareRecord]:
        """Return records whose locks have not expired while they waited."""
        taken: list[ShareRecord] = []
        while len(taken) < max_records:
            if not self._ready:
                if taken:
                    break
                self._ready.extend(self._requests.take(max(max_records, self._max_poll_records)))
                if not self._ready:
                    break
            record = self._ready.popleft()
            if not record.is_expired:
                taken.append(record)
        return taken

    async def _leave(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self._close_ms / 1000):
                await self._membership.leave(reason)
        except TimeoutError:
            logger.warning("the group coordinator did not respond to the leave within %d ms", self._close_ms)

    def _raise_failure(self) -> None:
        """Raise the error that has ended a background task, and errors of subscribed topics."""
        if not self._tasks or self._closing is not None:
            raise RuntimeError("the consumer is not running")
        for task in self._tasks:
            if task.done():
                task.result()
        for name in self._membership.topics:
            topic = self._client.cluster.topics.get(name)
            if topic is not None and topic.error in _TOPIC_ERRORS:
                raise KafkaError(topic.error, f"topic {name!r}")


def _chosen(name: str, value: str, kind: type[E]) -> E:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(one.value for one in kind)
        raise ValueError(f"{name}: invalid value {value!r}. Expected one of {names}") from None
