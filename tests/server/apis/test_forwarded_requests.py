"""Requests that a broker of a KRaft cluster forwards: what it checks itself, and what reaches the controller."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from tests.server.handled import handled

from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.schema import Versions
from barnabas.server.apis.api_version_manager import ApiVersionManager
from barnabas.server.apis.handlers import forward, forward_alter_configs, forward_delegation_token
from barnabas.server.apis.table import FORWARDED, SERVED_IN_KRAFT
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.config_repository import ConfigRepository
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.config.listeners import ListenerConfig
from barnabas.server.kraft.image_config_store import ImageConfigStore
from barnabas.server.kraft.published_image import PublishedImage
from barnabas.server.metadata.metadata_cache import MetadataCache
from barnabas.server.security.session import ANONYMOUS, KafkaPrincipal, Session

TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
BROKER_ID = 3
LEVEL = "barnabas.apis"


class Controller:
    """A forwarding manager that keeps the requests, and a controller that accepts all changes."""

    def __init__(self) -> None:
        self.forwarded: list[Any] = []
        self.error: KafkaError | None = None
        self.throttle_time_ms = 0

    async def forward_request(
        self, session: Session, version: int, request: Any, *, client_id: str | None, size: int
    ) -> Any:
        self.forwarded.append(request)
        if self.error is not None:
            raise self.error
        if isinstance(request, CreateTopicsRequest):
            return CreateTopicsResponse(throttle_time_ms=self.throttle_time_ms)
        module: Any = legacy if isinstance(request, legacy.AlterConfigsRequest) else incremental
        answers = [
            module.AlterConfigsResourceResponse(resource_type=one.resource_type, resource_name=one.resource_name)
            for one in request.resources
        ]
        is_legacy = module is legacy
        response = legacy.AlterConfigsResponse if is_legacy else incremental.IncrementalAlterConfigsResponse
        return response(responses=answers[::-1])

    @property
    def resources(self) -> list[tuple[int, str]]:
        return [(one.resource_type, one.resource_name) for request in self.forwarded for one in request.resources]


class Client:
    """A client of a broker, with or without ALTER_CONFIGS on the cluster."""

    def __init__(self, *, is_authorized: bool = True, listener: str = "PLAINTEXT", is_by_token: bool = False) -> None:
        config = BrokerConfig({"process.roles": "broker", "node.id": str(BROKER_ID)})
        dynamic_config = DynamicConfig(config)
        self.controller = Controller()
        repository = ConfigRepository(
            BROKER_ID, dynamic_config, ImageConfigStore(PublishedImage()), MetadataCache("cluster")
        )
        principal = ANONYMOUS if listener == "PLAINTEXT" else KafkaPrincipal("User", "anna")
        one = ListenerConfig(listener, "127.0.0.1", 9092, security_protocol=listener)
        self.is_authorized = is_authorized
        self.context = SimpleNamespace(
            broker=SimpleNamespace(config_repository=repository, forwarding_manager=self.controller),
            session=Session("10.1.2.3", one, principal, is_by_token=is_by_token),
            listener=one,
            api_version=1,
            client_id="admin",
            is_authorized=self._authorize,
            size=100,
            close=self._close,
            throttle=lambda seconds: self.throttled.append(seconds),
        )
        self.is_closed = False
        self.throttled: list[float] = []

    def _close(self) -> None:
        self.is_closed = True

    def _authorize(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        assert (operation, resource_type, name) == (
            AclOperation.ALTER_CONFIGS,
            AclResourceType.CLUSTER,
            "kafka-cluster",
        )
        return self.is_authorized

    async def edit(self, *resources: tuple[int, str, str, str | None]) -> list[ErrorCode]:
        """Set a value of each resource, and return the errors."""
        request = incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[incremental.AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)],
                )
                for kind, name, key, value in resources
            ]
        )
        response = await handled(forward_alter_configs, self.context, request)
        assert [(one.resource_type, one.resource_name) for one in response.responses] == [
            (kind, name) for kind, name, _, _ in resources
        ]
        return [ErrorCode(one.error_code) for one in response.responses]

    async def replace(self, kind: int, name: str, key: str, value: str) -> ErrorCode:
        configs = [legacy.AlterableConfig(name=key, value=value)]
        resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = legacy.AlterConfigsRequest(resources=[resource])
        (response,) = (await handled(forward_alter_configs, self.context, request)).responses
        return ErrorCode(response.error_code)


@pytest.fixture(autouse=True)
def level() -> Any:
    """Restore the level of the logger that the tests change."""
    changed = logging.getLogger(LEVEL)
    before = changed.level
    yield changed
    changed.setLevel(before)


async def test_levels_of_loggers_require_an_acl(level: logging.Logger) -> None:
    client, before = Client(is_authorized=False), level.level
    errors = await client.edit((LOGGER, str(BROKER_ID), LEVEL, "ERROR"), (TOPIC, "t", "retention.ms", "5"))
    assert errors == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE]
    assert level.level == before
    assert client.controller.resources == [(TOPIC, "t")], "the controller checks the ACLs of the other resources"
    allowed = Client()
    assert await allowed.edit((LOGGER, str(BROKER_ID), LEVEL, "ERROR")) == [ErrorCode.NONE]
    assert level.level == logging.ERROR
    assert allowed.controller.forwarded == []


async def test_a_resource_that_is_named_twice_is_changed_nowhere(level: logging.Logger) -> None:
    client, before = Client(), level.level
    one, other = (LOGGER, str(BROKER_ID), LEVEL, "ERROR"), (TOPIC, "t", "retention.ms", "5")
    errors = await client.edit(one, other, (TOPIC, "u", "retention.ms", "5"), one, other)
    wrong = ErrorCode.INVALID_REQUEST
    assert errors == [wrong, wrong, ErrorCode.NONE, wrong, wrong]
    assert level.level == before
    assert client.controller.resources == [(TOPIC, "u")]


@pytest.mark.parametrize(
    ("key", "value"), [("broker.id", "4"), ("log.cleaner.threads", "none"), ("num.io.threads", "-1")]
)
async def test_settings_of_brokers_are_checked_before_they_are_forwarded(key: str, value: str) -> None:
    client = Client()
    errors = await client.edit((BROKER, str(BROKER_ID), key, value), (TOPIC, "t", "retention.ms", "5"))
    assert errors == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert await client.replace(BROKER, str(BROKER_ID), key, value) is ErrorCode.INVALID_REQUEST
    assert await client.edit((BROKER, "4", "log.cleaner.threads", "2")) == [ErrorCode.INVALID_REQUEST]
    assert client.controller.resources == [(TOPIC, "t")]


async def test_legal_settings_of_brokers_are_forwarded_and_passwords_need_no_secret() -> None:
    client = Client()
    password = "listener.name.plaintext.ssl.key.password"
    changes = [(BROKER, "", "log.cleaner.threads", "2"), (BROKER, str(BROKER_ID), password, "p")]
    assert await client.edit(*changes) == [ErrorCode.NONE, ErrorCode.NONE]
    assert await client.replace(BROKER, "", "log.cleaner.threads", "2") is ErrorCode.NONE
    assert client.controller.resources == [(BROKER, ""), (BROKER, str(BROKER_ID)), (BROKER, "")]
    assert client.controller.forwarded[0].resources[1].configs[0].value == "p"


async def test_the_controller_refuses_settings_of_brokers_without_an_acl() -> None:
    client = Client(is_authorized=False)
    assert await client.edit((BROKER, "", "log.cleaner.threads", "none")) == [ErrorCode.NONE]
    assert client.controller.resources == [(BROKER, "")], "no file of the broker is examined"


@pytest.mark.parametrize("key", [38, 39, 40])
def test_requests_for_tokens_are_checked_before_they_are_forwarded(key: int) -> None:
    assert SERVED_IN_KRAFT[ApiKey(key)].handler == "forward_delegation_token"


@pytest.mark.parametrize(("listener", "is_by_token"), [("PLAINTEXT", False), ("SASL_SSL", True)])
async def test_tokens_require_an_authentication_without_a_token(listener: str, is_by_token: bool) -> None:
    client = Client(listener=listener, is_by_token=is_by_token)
    with pytest.raises(KafkaError) as error:
        await handled(forward_delegation_token, client.context, CreateDelegationTokenRequest())
    assert error.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert client.controller.forwarded == []


async def test_a_client_with_a_version_that_the_controller_lacks_negotiates_again() -> None:
    client = Client()
    client.controller.error = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    assert await handled(forward, client.context, CreateTopicsRequest()) is None
    assert client.is_closed
    again = Client()
    again.controller.error = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    assert await handled(forward_alter_configs, again.context, request) is None
    assert again.is_closed


async def test_a_client_over_a_quota_of_the_controller_is_throttled_by_the_broker() -> None:
    client = Client()
    await handled(forward, client.context, CreateTopicsRequest())
    assert client.throttled == []
    client.controller.throttle_time_ms = 1500
    response = await handled(forward, client.context, CreateTopicsRequest())
    assert response.throttle_time_ms == 1500
    assert client.throttled == [1.5]


def test_only_versions_of_the_controller_are_advertised_for_forwarded_requests() -> None:
    features: Any = SimpleNamespace(epoch=0, level=lambda name: 0)
    versions: dict[int, Versions] | None = None
    manager = ApiVersionManager(
        SERVED_IN_KRAFT, features, forwarded=FORWARDED, controller_api_versions=lambda: versions
    )

    def advertised() -> dict[int, tuple[int, int]]:
        rows = manager.response(supports_level_zero=True).api_keys
        return {one.api_key: (one.min_version, one.max_version) for one in rows}

    first = advertised()
    assert first[ApiKey.CREATE_TOPICS] == (2, 7), "older ones are refused by the controllers of Kafka 4"
    assert first[ApiKey.ADD_RAFT_VOTER] == (0, 1)
    versions = {key: Versions(0, 9) for key in FORWARDED if key is not ApiKey.UNREGISTER_CONTROLLER}
    versions[ApiKey.ADD_RAFT_VOTER] = Versions(0, 0)
    second = advertised()
    assert ApiKey.UNREGISTER_CONTROLLER not in second
    assert second[ApiKey.ADD_RAFT_VOTER] == (0, 0)
    assert second[ApiKey.FETCH] == first[ApiKey.FETCH]
    versions = None
    assert advertised() == first
