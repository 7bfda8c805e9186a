"""A random history of a KRaft cluster as records, and images of it."""

import random
from typing import Any
from uuid import UUID

from barnabas.protocol import metadata_records as r
from barnabas.server.image.metadata_delta import MetadataDelta
from barnabas.server.image.metadata_image import EMPTY_IMAGE, MetadataImage
from barnabas.server.image.metadata_provenance import MetadataProvenance

BROKERS = range(4)


async def image_after(records: list[Any], image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    """The image after records, as one delta."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return await delta.apply(MetadataProvenance(len(records), 1, 1))


class History:
    """Valid records in a random order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topics: dict[UUID, tuple[str, int]] = {}
        self.brokers: dict[int, int] = {}
        self.acls: list[UUID] = []

    def uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    def next(self) -> Any:
        """The next record."""
        return self.rng.choice(
            (
                self.topic, self.topic, self.partition, self.partition, self.change, self.change, self.remove_topic,
                self.clear_elr, self.config, self.broker, self.broker_change, self.fence, self.unregister,
                self.controller, self.feature, self.quota, self.producer_ids, self.acl, self.remove_acl, self.scram,
                self.token, r.NoOpRecord,
            )
        )()  # fmt: skip

    def replicas(self) -> list[int]:
        return self.rng.sample(BROKERS, self.rng.randint(1, 3))

    def topic(self) -> Any:
        used = {name for name, _ in self.topics.values()}
        free = [name for name in ("a", "b", "c", "d", "e") if name not in used]
        if not free:
            return self.partition()
        topic_id, name = self.uuid(), self.rng.choice(free)
        self.topics[topic_id] = (name, 0)
        return r.TopicRecord(name=name, topic_id=topic_id)

    def partition(self) -> Any:
        if not self.topics:
            return self.topic()
        topic_id = self.rng.choice(list(self.topics))
        name, count = self.topics[topic_id]
        self.topics[topic_id] = (name, count + 1)
        replicas = self.replicas()
        return r.PartitionRecord(
            partition_id=count,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas[:1],
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[self.uuid() for _ in replicas],
            eligible_leader_replicas=replicas[1:] or None,
        )

    def change(self) -> Any:
        topic_id = next((one for one, (_, count) in self.topics.items() if count), None)
        if topic_id is None:
            return self.partition()
        replicas = self.rng.choice((None, self.replicas()))
        return r.PartitionChangeRecord(
            partition_id=self.rng.randrange(self.topics[topic_id][1]),
            topic_id=topic_id,
            replicas=replicas,
            directories=None if replicas is None else [self.uuid() for _ in replicas],
            isr=self.rng.choice((None, self.replicas())),
            leader=self.rng.choice((-2, -1, 0, 1)),
            leader_recovery_state=self.rng.choice((-1, 0, 1)),
            last_known_elr=self.rng.choice((None, [1])),
        )

    def remove_topic(self) -> Any:
        if not self.topics or self.rng.random() < 0.5:
            return self.topic()
        topic_id = self.rng.choice(list(self.topics))
        del self.topics[topic_id]
        return r.RemoveTopicRecord(topic_id=topic_id)

    def clear_elr(self) -> Any:
        return r.ClearElrRecord(topic_name=self.rng.choice([name for name, _ in self.topics.values()] or [""]))

    def config(self) -> Any:
        resource_type, name = self.rng.choice([(2, name) for name, _ in self.topics.values()] + [(4, ""), (4, "1")])
        value = self.rng.choice((None, "1", "2"))
        return r.ConfigRecord(resource_type=resource_type, resource_name=name, name=self.rng.choice("xyz"), value=value)

    def broker(self) -> Any:
        broker_id = self.rng.choice(BROKERS)
        self.brokers[broker_id] = epoch = self.rng.randrange(1000)
        return r.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=self.uuid(),
            broker_epoch=epoch,
            end_points=[r.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
            features=[r.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=33)],
            rack=self.rng.choice((None, "r")),
            log_dirs=[self.uuid()],
            cordoned_log_dirs=self.rng.choice((None, [], [self.uuid()])),
        )

    def a_broker(self) -> int | None:
        return self.rng.choice(list(self.brokers)) if self.brokers else None

    def broker_change(self) -> Any:
        if (broker_id := self.a_broker()) is None:
            return self.broker()
        return r.BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=self.brokers[broker_id],
            fenced=self.rng.choice((-1, 0, 1)),
            in_controlled_shutdown=self.rng.choice((0, 1)),
            log_dirs=self.rng.choice(([], [self.uuid()])),
            cordoned_log_dirs=self.rng.choice((None, [self.uuid()])),
        )

    def fence(self) -> Any:
        if (broker_id := self.a_broker()) is None:
            return self.broker()
        cls = self.rng.choice((r.FenceBrokerRecord, r.UnfenceBrokerRecord))
        return cls(id=broker_id, epoch=self.brokers[broker_id])

    def unregister(self) -> Any:
        if (broker_id := self.a_broker()) is None:
            return self.broker()
        return r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=self.brokers.pop(broker_id))

    def controller(self) -> Any:
        if self.rng.random() < 0.3:
            return r.UnregisterControllerRecord(controller_id=self.rng.choice((5, 6)))
        return r.RegisterControllerRecord(
            controller_id=self.rng.choice((5, 6)),
            incarnation_id=self.uuid(),
            end_points=[r.ControllerEndpoint(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
            features=[r.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)],
        )

    def feature(self) -> Any:
        name, levels = self.rng.choice((("group.version", (0, 1)), ("metadata.version", (30, 33))))
        return r.FeatureLevelRecord(name=name, feature_level=self.rng.choice(levels))

    def quota(self) -> Any:
        entity = [r.EntityData(entity_type="user", entity_name=self.rng.choice((None, "u")))]
        if self.rng.random() < 0.5:
            entity.insert(0, r.EntityData(entity_type="client-id", entity_name="c"))
        self.rng.shuffle(entity)
        return r.ClientQuotaRecord(
            entity=entity, key=self.rng.choice("xy"), value=self.rng.random(), remove=self.rng.random() < 0.4
        )

    def producer_ids(self) -> Any:
        return r.ProducerIdsRecord(broker_id=1, next_producer_id=self.rng.randrange(5) * 1000)

    def acl(self) -> Any:
        self.acls.append(self.uuid())
        return r.AccessControlEntryRecord(
            id=self.acls[-1],
            resource_type=self.rng.choice((2, 3)),
            resource_name="n",
            pattern_type=self.rng.choice((3, 4)),
            principal="User:a",
            host="*",
            operation=3,
            permission_type=self.rng.choice((2, 3)),
        )

    def remove_acl(self) -> Any:
        if not self.acls:
            return self.acl()
        return r.RemoveAccessControlEntryRecord(id=self.acls.pop(self.rng.randrange(len(self.acls))))

    def scram(self) -> Any:
        name, mechanism = self.rng.choice("uv"), self.rng.choice((1, 2))
        if self.rng.random() < 0.4:
            return r.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        return r.UserScramCredentialRecord(
            name=name,
            mechanism=mechanism,
            salt=self.rng.randbytes(4),
            stored_key=b"k",
            server_key=b"s",
            iterations=4096,
        )

    def token(self) -> Any:
        token_id = self.rng.choice("pq")
        if self.rng.random() < 0.4:
            return r.RemoveDelegationTokenRecord(token_id=token_id)
        return r.DelegationTokenRecord(
            owner="User:a",
            requester="User:b",
            renewers=["User:c"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=self.rng.randrange(9),
            token_id=token_id,
        )
