"""Envelopes: the request of a client with its principal, and the controller's response to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_request, decode_versioned, encode_response
from barnabas.protocol.default_principal_data import DefaultPrincipalData
from barnabas.protocol.errors import ErrorCode, KafkaError, RequestTimeoutError
from barnabas.protocol.headers import decode_request_header, encode_response_header
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.server.config.listeners import ListenerConfig
from barnabas.server.controller.forwarding_manager import (
    DECODED_IN_LANE_BYTES,
    ENCODED_IN_LANE_BYTES,
    MAX_FORWARDED_BYTES,
    REPEATED_BYTES,
    ForwardingManager,
)
from barnabas.server.security.session import KafkaPrincipal, Session

VERSION = 7


class Lanes:
    """Lanes whose jobs run immediately."""

    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, lane: str, job: Callable[[], Any]) -> Any:
        self.jobs += 1
        return job()


async def forward(
    send_request: Any, request: Any, *, client_id: str | None = None, size: int = 100, response_jobs: int = 0
) -> Any:
    lanes: Any = Lanes()
    manager = ForwardingManager(send_request, lambda: None, lanes)
    response = await manager.forward_request(session(), VERSION, request, client_id=client_id, size=size)
    assert lanes.jobs == (size > ENCODED_IN_LANE_BYTES) + response_jobs
    return response


class Controller:
    """A controller that keeps the Envelopes."""

    def __init__(self, response: EnvelopeResponse) -> None:
        self.response = response
        self.envelopes: list[EnvelopeRequest] = []

    async def send_request(self, request: Any, *, max_losses: int | None = None, attempts_ms: int | None = None) -> Any:
        self.max_losses, self.attempts_ms = max_losses, attempts_ms
        self.envelopes.append(request)
        return self.response


def session() -> Session:
    listener = ListenerConfig("PLAINTEXT", "127.0.0.1", 9092)
    return Session("10.1.2.3", listener, KafkaPrincipal("User", "anna"), is_by_token=True)


@pytest.mark.parametrize("size", [100, 1 << 20, 2 << 20])
async def test_the_controller_receives_the_request_its_header_and_the_principal_and_responds_to_the_client(
    size: int,
) -> None:
    topics = [CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    inner = b"".join(encode_response(CreateTopicsResponse(topics=topics), VERSION))
    data = encode_response_header(ApiKey.CREATE_TOPICS, VERSION, 0) + inner
    controller = Controller(EnvelopeResponse(response_data=data))
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=2)])
    response = await forward(controller.send_request, request, client_id="admin-1", size=size)
    assert response == CreateTopicsResponse(topics=topics)
    (envelope,) = controller.envelopes
    assert controller.max_losses == (1 if size > REPEATED_BYTES else None)
    header, start = decode_request_header(envelope.request_data, 0, len(envelope.request_data))
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.CREATE_TOPICS, VERSION, "admin-1")
    body = decode_request(ApiKey.CREATE_TOPICS, VERSION, envelope.request_data, start, len(envelope.request_data))
    assert body == request
    assert envelope.client_host_address == bytes((10, 1, 2, 3))
    principal = decode_versioned(DefaultPrincipalData, envelope.request_principal or b"")
    assert principal == DefaultPrincipalData(type="User", name="anna", token_authenticated=True)


@pytest.mark.parametrize(("timeout_ms", "attempts_ms"), [(5000, 5000), (0, None)])
async def test_a_request_is_sent_to_the_controller_within_its_timeout(timeout_ms: int, attempts_ms: int | None) -> None:
    controller = Controller(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(KafkaError):
        await forward(controller.send_request, CreateTopicsRequest(topics=[], timeout_ms=timeout_ms))
    assert controller.attempts_ms == attempts_ms


async def test_a_large_response_of_the_controller_is_decoded_in_a_lane() -> None:
    topics = [CreatableTopicResult(name=f"topic-{number:08}") for number in range(2000)]
    inner = b"".join(encode_response(CreateTopicsResponse(topics=topics), VERSION))
    assert len(inner) > DECODED_IN_LANE_BYTES
    data = encode_response_header(ApiKey.CREATE_TOPICS, VERSION, 0) + inner
    controller = Controller(EnvelopeResponse(response_data=data))
    response = await forward(controller.send_request, CreateTopicsRequest(topics=[]), response_jobs=1)
    assert response == CreateTopicsResponse(topics=topics)


@pytest.mark.parametrize(
    ("refusal", "reported"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),
        # The broker was refused, not the client.
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_refused_envelope_is_an_error_of_the_broker(refusal: ErrorCode, reported: ErrorCode) -> None:
    controller = Controller(EnvelopeResponse(error_code=refusal))
    with pytest.raises(KafkaError) as error:
        await forward(controller.send_request, CreateTopicsRequest(topics=[]))
    assert error.value.code is reported


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (RequestTimeoutError("no response"), ErrorCode.REQUEST_TIMED_OUT),
        # A Java client takes an authentication error for its own, and gives up.
        (KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_failed_login_of_the_broker_is_not_an_error_of_the_client(
    failure: KafkaError, reported: ErrorCode
) -> None:
    async def send_request(request: Any, **_: Any) -> Any:
        raise failure

    with pytest.raises(KafkaError) as error:
        await forward(send_request, CreateTopicsRequest(topics=[]))
    assert error.value.code is reported


async def test_a_very_large_request_is_not_forwarded() -> None:
    controller = Controller(EnvelopeResponse())
    with pytest.raises(KafkaError) as error:
        await forward(controller.send_request, CreateTopicsRequest(topics=[]), size=MAX_FORWARDED_BYTES + 1)
    assert error.value.code is ErrorCode.INVALID_REQUEST
    assert controller.envelopes == []
