"""The log of who was denied what, and of changes of rules: one line each, whatever names are in them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.security import Security
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.server.runtime.log_limit import LINES
from barnabas.testing import Broker

PATIENCE = 60
FORGED = "\n2026-01-01 INFO barnabas.authorizer: User:root from 10.0.0.1 created the rule x\x1b[2K\u202e"
EVE = f"eve{FORGED}"
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
}


async def connect(broker: Broker, user: str) -> BrokerConnection:
    options = ConnectionOptions(security=Security(None, "SCRAM-SHA-256", user, "secret"))
    return await BrokerConnection.open("127.0.0.1", broker.port, options)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "barnabas.authorizer"]


async def test_denials_are_told_in_one_line_each_twenty_a_minute_of_a_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    async with asyncio.timeout(PATIENCE), Broker(sasl={"root": "secret"}, config=CONFIG) as broker:
        await broker.server.state.security.set_passwords({EVE: "secret", "ben": "secret"})
        for user, attempts in ((EVE, 2 * LINES), ("ben", 1)):
            client = await connect(broker, user)
            for number in range(attempts):
                names = [f"{number}{FORGED}"]
                answer = await client.send(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 5)
                assert answer.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            client.close()
    *told, last = lines(caplog)
    assert len(told) == LINES
    assert last.startswith("principal User:ben from 127.0.0.1 was denied DELETE on TOPIC 0")
    assert told[0].startswith("principal User:eve\\n2026-01-01 INFO") and "was denied" in told[0]
    assert all(line.isprintable() for line in told)


async def test_who_changes_rules_is_told_with_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    rule = AclCreation(
        resource_type=AclResourceType.GROUP,
        resource_name=f"g{FORGED}",
        principal="User:anna",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    every = DeleteAclsFilter(
        resource_type_filter=AclResourceType.ANY,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        pattern_type_filter=1,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )
    async with asyncio.timeout(PATIENCE), Broker(sasl={"root": "secret"}, config=CONFIG) as broker:
        root = await connect(broker, "root")
        created = await root.send(CreateAclsRequest(creations=[rule]), 3)
        deleted = await root.send(DeleteAclsRequest(filters=[every]), 3)
        assert (created.results[0].error_code, deleted.filter_results[0].error_code) == (0, 0)
        root.close()
    made, gone = lines(caplog)
    pattern = "ResourcePattern(resourceType=GROUP, name=g\\n2026-01-01"
    entry = "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)"
    assert made.isprintable() and gone.isprintable()
    assert made.startswith("User:root from 127.0.0.1 created 1 ACLs for ") and pattern in made and made.endswith(entry)
    assert gone.startswith("User:root from 127.0.0.1 deleted 1 ACLs") and pattern in gone and entry in gone
