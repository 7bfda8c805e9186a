"""Shows what the controller has decided: in this broker's own metadata cache, and to the others by UpdateMetadata."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from ...protocol.topic_partition import TopicPartition, indexes_by_topic
from ..metadata.metadata_cache import MetadataCache, TopicImage
from ..metadata.znodes import TopicRegistration
from ..runtime.turns import PARTITIONS_TOLD, Pace, next_turn
from .context import ControllerContext
from .replica_channel import MetadataUpdate, ReplicaChannel


class Announcer:
    """Tells of brokers first, then of topics, since a leader has to be known before it can be asked."""

    def __init__(self, context: ControllerContext, metadata: MetadataCache, channel: ReplicaChannel) -> None:
        self._context = context
        self._metadata = metadata
        self._channel = channel

    def show(self, partitions: Iterable[TopicPartition]) -> None:
        """Show partitions as the context has them. Those being deleted are not shown."""
        indexes = indexes_by_topic(one for one in partitions if one.topic not in self._context.doomed)
        self._metadata.put_topics([self._context.image(name) for name in indexes])
        if self._channel.others:
            images = tuple(self._context.partial_image(name, its_indexes) for name, its_indexes in indexes.items())
            self._tell(self._channel.others, images)

    def show_brokers(self) -> None:
        """Show the live brokers that the context has."""
        self._metadata.set_brokers(self._context.brokers)
        self._tell(self._channel.others)

    async def show_all(self, broker_ids: Collection[int]) -> None:
        """Tell these brokers everything, some partitions at a time: ten thousand would take a tenth of a second."""
        everything = ((topic.name, index) for topic in self._shown() for index in topic.assignment)
        while broker_ids and (some := list(islice(everything, PARTITIONS_TOLD))):
            indexes = indexes_by_topic(some)
            self._tell(broker_ids, tuple(self._context.partial_image(name, its) for name, its in indexes.items()))
            await next_turn()

    async def show_all_here(self) -> None:
        """Make this broker's own cache hold what the context has, and no other topic."""
        present, pace = {topic.name for topic in self._shown()}, Pace()
        for name in present:
            image = self._context.image(name)
            self._metadata.put_topics([image])
            await pace.step(len(image.partitions))
        self._metadata.remove_topics([name for name in self._metadata.topic_names if name not in present])

    def _shown(self) -> list[TopicRegistration]:
        return [topic for topic in self._context.topics if topic.name not in self._context.doomed]

    def remove(self, names: Collection[str]) -> None:
        """Show that these topics are served no longer."""
        self._metadata.remove_topics(names)
        if self._channel.others:
            self._tell(self._channel.others, removed=tuple(self._context.image(name) for name in names))

    def _tell(
        self, broker_ids: Collection[int], topics: tuple[TopicImage, ...] = (), removed: tuple[TopicImage, ...] = ()
    ) -> None:
        others = [one for one in broker_ids if one in self._channel.others]
        if others:
            self._channel.update_metadata(
                others, MetadataUpdate(tuple(self._context.brokers.values()), topics, removed)
            )
