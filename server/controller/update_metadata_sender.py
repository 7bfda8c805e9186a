"""Publishes the controller's metadata: in this broker's cache, and in the other brokers' caches by UpdateMetadata."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from ...protocol.topic_partition import TopicPartition, indexes_by_topic
from ..metadata.metadata_cache import MetadataCache, TopicImage
from ..metadata.znodes import TopicRegistration
from ..runtime.loop_sharing import CountBudget, next_turn
from .control_requests import MetadataUpdate
from .controller_channel_manager import ControllerChannel
from .controller_context import ControllerContext

PARTITIONS_PER_REQUEST = 500
"""Partitions in one UpdateMetadata request: the receiver needs some milliseconds for them."""


class UpdateMetadataSender:
    """The publisher of one controller. Brokers are published before topics, so that each leader has an endpoint."""

    def __init__(self, context: ControllerContext, metadata: MetadataCache, channel: ControllerChannel) -> None:
        self._context = context
        self._metadata = metadata
        self._channel = channel

    async def publish_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Publish partitions as the context has them, without topics that are being deleted."""
        indexes = indexes_by_topic(one for one in partitions if one.topic not in self._context.topics_to_be_deleted)
        budget = CountBudget()
        for name in indexes:
            image = self._context.image(name)
            self._metadata.put_topics([image])
            await budget.step(len(image.partitions))
        if self._channel.others:
            images = tuple(self._context.partial_image(name, its_indexes) for name, its_indexes in indexes.items())
            self._send_update_metadata(self._channel.others, images)

    def publish_brokers(self) -> None:
        """Publish the live brokers."""
        self._metadata.set_brokers(self._context.brokers)
        self._send_update_metadata(self._channel.others)

    async def publish_all(self, broker_ids: Collection[int]) -> None:
        """Send everything to brokers, in several requests: ten thousand partitions would take a tenth of a second."""
        everything = ((topic.name, index) for topic in self._published_topics() for index in topic.assignment)
        while broker_ids and (some := list(islice(everything, PARTITIONS_PER_REQUEST))):
            indexes = indexes_by_topic(some)
            self._send_update_metadata(
                broker_ids, tuple(self._context.partial_image(name, its) for name, its in indexes.items())
            )
            await next_turn()

    async def publish_all_locally(self) -> None:
        """Replace the topics in this broker's cache by the topics of the context."""
        present, budget = {topic.name for topic in self._published_topics()}, CountBudget()
        for name in present:
            image = self._context.image(name)
            self._metadata.put_topics([image])
            await budget.step(len(image.partitions))
        self._metadata.remove_topics([name for name in self._metadata.topic_names if name not in present])

    def _published_topics(self) -> list[TopicRegistration]:
        return [topic for topic in self._context.topics if topic.name not in self._context.topics_to_be_deleted]

    def publish_deleted_topics(self, names: Collection[str]) -> None:
        """Publish that topics are being deleted."""
        self._metadata.remove_topics(names)
        if self._channel.others:
            self._send_update_metadata(self._channel.others, removed=tuple(self._context.image(name) for name in names))

    def _send_update_metadata(
        self, broker_ids: Collection[int], topics: tuple[TopicImage, ...] = (), removed: tuple[TopicImage, ...] = ()
    ) -> None:
        others = [one for one in broker_ids if one in self._channel.others]
        if others:
            self._channel.update_metadata(
                others, MetadataUpdate(tuple(self._context.brokers.values()), topics, removed)
            )
