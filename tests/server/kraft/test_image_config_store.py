"""Settings, quotas, credentials and tokens of a metadata image, read as from a metadata tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from tests.server.config.test_password_encoder import PORTS
from tests.server.image.metadata_history import image_after

from barnabas.protocol import metadata_records as r
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.sasl_server import new_credentials
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.kraft.image_config_store import ImageConfigStore
from barnabas.server.kraft.image_features import ImageFeatures
from barnabas.server.kraft.image_token_store import ImageTokenStore
from barnabas.server.kraft.image_topics import local_topics
from barnabas.server.kraft.published_image import PublishedImage
from barnabas.server.metadata.scram_store import ScramStore
from barnabas.server.quotas.stored_quotas import stored_quotas
from barnabas.server.security.delegation_token_manager import DelegationTokenManager

BROKER_ID = 2


async def published(*records: Any) -> PublishedImage:
    result = PublishedImage()
    result.image = await image_after(list(records))
    return result


def setting(kind: ConfigResourceType, resource: str, name: str, value: str) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


async def test_a_broker_loads_the_settings_of_its_own_and_of_all_brokers_topics_and_groups() -> None:
    image = await published(
        setting(ConfigResourceType.TOPIC, "t", "retention.ms", "5000"),
        setting(ConfigResourceType.BROKER, "", "log.retention.ms", "7000"),
        setting(ConfigResourceType.BROKER, str(BROKER_ID), "log.cleaner.threads", "2"),
        setting(ConfigResourceType.BROKER, "3", "log.cleaner.threads", "1"),
        setting(ConfigResourceType.GROUP, "a/b", "consumer.session.timeout.ms", "50000"),
    )
    dynamic_config = DynamicConfig(BrokerConfig({"process.roles": "broker", "node.id": str(BROKER_ID)}))
    await dynamic_config.load(ImageConfigStore(image), BROKER_ID)
    assert dynamic_config.topic_log_config("t").retention_ms == 5000
    assert dynamic_config.topic_log_config("other").retention_ms == 7000
    assert dynamic_config.config.log_cleaner_threads == 2
    assert dynamic_config.named_config(ConfigResourceType.GROUP, "a/b") == {"consumer.session.timeout.ms": "50000"}


def quota(entity: list[r.EntityData]) -> r.ClientQuotaRecord:
    return r.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1000.0, remove=False)


async def test_quotas_of_users_and_clients_and_credentials_are_found() -> None:
    credential = new_credentials("secret", b"salt")["SCRAM-SHA-512"]
    anna, default_client = (
        r.EntityData(entity_type=kind, entity_name=name) for kind, name in (("user", "anna/1"), ("client-id", None))
    )
    image = await published(
        quota([anna]),
        quota([anna, default_client]),
        quota([default_client]),
        r.UserScramCredentialRecord(
            name="ben",
            mechanism=2,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        ),
    )
    store = ImageConfigStore(image)
    found = [(dict(entity), limits) async for entity, limits in stored_quotas(store) if limits]
    assert sorted(found, key=repr) == sorted(
        (
            ({"user": "anna/1"}, {"producer_byte_rate": 1000.0}),
            ({"client-id": None, "user": "anna/1"}, {"producer_byte_rate": 1000.0}),
            ({"client-id": None}, {"producer_byte_rate": 1000.0}),
        ),
        key=repr,
    )
    scram = ScramStore(store)
    assert await scram.credential("ben", "SCRAM-SHA-512") == credential
    assert await scram.credential("ben", "SCRAM-SHA-256") is None
    assert await scram.credential("anna/1", "SCRAM-SHA-512") is None
    users = await scram.users()
    assert sorted(users) == ["anna/1", "ben"]
    assert await scram.iterations(users["ben"]) == {"SCRAM-SHA-512": credential.iterations}


async def test_the_time_to_list_quotas_grows_with_their_number_alone() -> None:
    count = 0

    class Counted(dict[Any, Any]):
        """The entities of an image; counts the entities that are read."""

        def __iter__(self) -> Any:
            nonlocal count
            count += len(self)
            return super().__iter__()

        def items(self) -> Any:
            nonlocal count
            count += len(self)
            return super().items()

    image = await published(
        *(
            quota(
                [
                    r.EntityData(entity_type="user", entity_name=f"u{user}"),
                    r.EntityData(entity_type="client-id", entity_name=f"c{client}"),
                ]
            )
            for user in range(20)
            for client in range(3)
        )
    )
    quotas = image.image.client_quotas
    image.image = replace(image.image, client_quotas=replace(quotas, entities=Counted(quotas.entities)))
    assert len([entity async for entity, limits in stored_quotas(ImageConfigStore(image)) if limits]) == 60
    assert count <= 3 * 60


async def test_tokens_and_features_are_those_of_the_image() -> None:
    image = await published(
        r.DelegationTokenRecord(
            owner="User:anna",
            requester="User:ben",
            renewers=["User:carl"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="token",
        ),
        r.FeatureLevelRecord(name="metadata.version", feature_level=33),
        r.FeatureLevelRecord(name="share.version", feature_level=1),
    )
    tokens = ImageTokenStore(image)
    token = await tokens.get("token")
    assert token is not None
    assert (token.owner, token.requester, token.renewers) == ("User:anna", "User:ben", ("User:carl",))
    assert (token.issue_ms, token.expiry_ms, token.max_ms) == (1, 2, 3)
    assert [one async for one in tokens.all()] == [token]
    assert await tokens.get("other") is None
    features = ImageFeatures(image)
    assert (features.level("metadata.version"), features.level("share.version")) == (33, 1)
    assert features.level("streams.version") == 0


async def test_expired_tokens_are_left_to_the_controllers() -> None:
    image = await published(r.DelegationTokenRecord(owner="User:anna", requester="User:anna", token_id="token"))
    config = BrokerConfig({"process.roles": "broker", "node.id": "2", "delegation.token.secret.key": "key"})
    manager = DelegationTokenManager(config, ImageTokenStore(image), PORTS)
    await manager.sweep()
    assert await ImageTokenStore(image).ids() == ["token"]


async def test_only_partitions_with_a_replica_on_the_broker_are_local() -> None:
    topic_id = UUID(int=1000)
    image = await published(
        r.TopicRecord(name="t", topic_id=topic_id),
        r.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2], isr=[1], leader=1),
        r.PartitionRecord(partition_id=1, topic_id=topic_id, replicas=[1, 3], isr=[1], leader=1),
    )
    found = local_topics(image.image, BROKER_ID)
    assert {name: dict(topic.assignment) for name, topic in found.items()} == {"t": {0: (1, 2)}}
    assert local_topics(image.image, 4) == {}
