"""Every API in every version, as asked by nobody known, by somebody without a right, and by a super user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.server.data_plane import RawClient
from tests.server.security.filled_requests import enough, request_of

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.security import security_of
from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ConnectionLostError, ErrorCode
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.schema import Message, fields_of
from barnabas.server.apis.table import SERVED
from barnabas.server.network import admission
from barnabas.testing import Broker

CONFIG = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root",
    "connection.failed.authentication.delay.ms": "0",
}
PASSWORDS = {"root": "r", "anna": "a"}
REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
FOR_STRANGERS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
OWN_TOKENS = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""For one's own tokens nobody needs a right; here nobody has any, as there is no key."""
TELLS_WHAT_MAY_BE_SEEN = OWN_TOKENS | {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
}
"""Nobody is refused these as a whole; what is left out of their answers other tests say."""
EMPTY_SAYS_IT = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in range(3)}
"""Their answers have no place for the error; clients know that an empty one is one."""
CELLS = [(key, version) for key, api in sorted(SERVED.items()) for version in range(api.lowest, api.highest + 1)]


def codes(message: Any) -> set[int]:
    """All error codes in an answer."""
    found: set[int] = set()
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                found |= codes(one)
    return found


@asynccontextmanager
async def serving() -> AsyncIterator[Broker]:
    async with asyncio.timeout(100), Broker(sasl=PASSWORDS, config=CONFIG) as broker:
        yield broker


async def answer(broker: Broker, user: str, key: ApiKey, version: int) -> Any:
    """What the user hears; None if the connection is closed instead."""
    options = ConnectionOptions(security=security_of(broker.client_settings(user, "PLAIN")))
    client = await BrokerConnection.open("127.0.0.1", broker.port, options)
    try:
        return await client.send(request_of(key, version), version)
    except ConnectionLostError:
        return None
    finally:
        client.close()


async def test_who_has_no_right_is_refused_in_every_version() -> None:
    """Where an answer has no place for the error, as in some first versions, the connection is closed as by Kafka."""
    async with serving() as broker:
        for key, version in CELLS:
            heard = await answer(broker, "anna", key, version)
            if key in TELLS_WHAT_MAY_BE_SEEN:
                assert heard is not None and not codes(heard) & REFUSED, (key.name, version)
            elif (key, version) in EMPTY_SAYS_IT:
                assert heard is not None and not heard.results
            else:
                # An id that the client may not know is one that nobody knows.
                expected = REFUSED | {ErrorCode.UNKNOWN_TOPIC_ID}
                assert heard is None or codes(heard) & expected, (key.name, version, heard)
                assert heard is None or not codes(heard) - expected - {0}, (key.name, version, heard)


async def test_a_super_user_is_refused_nothing() -> None:
    async with serving() as broker:
        for key, version in CELLS:
            heard = await answer(broker, "root", key, version)
            assert heard is None or not codes(heard) & REFUSED, (key.name, version, heard)


async def test_who_has_not_said_who_they_are_is_answered_nothing_but_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_UNAUTHENTICATED_CONNECTIONS", 10_000)
    async with serving() as broker:
        for key, version in CELLS:
            client = RawClient(*await asyncio.open_connection("127.0.0.1", broker.port))
            client.send(key, version, request_of(key, version))
            if key in FOR_STRANGERS:
                assert (await client.receive(key, version))[1] is not None
            else:
                assert await client.is_closed(), (key.name, version)
            client.writer.close()


async def test_a_wrong_password_opens_no_api() -> None:
    """Whatever is said after it is answered by the end of the connection."""
    async with serving() as broker:
        for key in sorted(SERVED):
            client = RawClient(*await asyncio.open_connection("127.0.0.1", broker.port))
            client.send(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            await client.receive(ApiKey.SASL_HANDSHAKE, 1)
            client.send(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0root\0wrong"))
            client.send(key, SERVED[key].highest, request_of(key, SERVED[key].highest))
            _, answer = await client.receive(ApiKey.SASL_AUTHENTICATE, 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.is_closed(), key.name
            client.writer.close()


async def test_who_has_just_the_rights_of_an_api_is_not_refused_it() -> None:
    guarded = [key for key in sorted(SERVED) if SERVED[key].acl_checks]
    passwords = PASSWORDS | {key.name: "x" for key in guarded}
    async with asyncio.timeout(100), Broker(sasl=passwords, config=CONFIG) as broker:
        acls = broker.server.state.security.acls
        assert acls is not None
        for key in guarded:
            await acls.create(enough(key))
        # Metadata makes topics that are not there, if the client lets it.
        create = AccessControlEntry("User:METADATA", "*", AclOperation.CREATE, AclPermissionType.ALLOW)
        # The topics of a group in DescribeShareGroupOffsets are checked one by one.
        describe = AccessControlEntry(
            "User:DESCRIBE_SHARE_GROUP_OFFSETS", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW
        )
        await acls.create([AclBinding(ResourcePattern(AclResourceType.TOPIC, "*"), one) for one in (create, describe)])
        for key in guarded:
            heard = await answer(broker, key.name, key, SERVED[key].highest)
            assert heard is None or not codes(heard) & REFUSED, (key.name, heard)
