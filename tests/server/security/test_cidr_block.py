"""Hosts of ACLs as CIDR blocks: Apache Kafka is the oracle of what is valid and of what a block contains."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.protocol.acl_bindings import AccessControlEntry, AclBindingFilter, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_acls import AclCreation
from barnabas.server.apis.acl_messages import to_acl_binding
from barnabas.server.security.acl_index import AclIndex
from barnabas.server.security.cidr_block import address_of, block_of, parse_cidr_block

BLOCKS = (
    "10.0.0.0/8", "10.1.2.3/8", "1.2.3.4/32", "1.2.3.4/31", "0.0.0.0/0", "1.2.3.4/33", "300.1.1.1/8", "1.2.3/8", "/",
    "1.2.3.4/", "1.2.3.4/ 8", "1.2.3.4/24/2", "01.2.3.4/08", "1.2.3.4/032", "1.2.3.4/-1", "1.2.3.4/255.0.0.0", "a/8",
    "::/0", "::1/64", "::1/128", "2001:db8::/32", "2001:db8::/129", "::ffff:1.2.3.4/96", "fe80::1%eth0/10",
    "[::1]/64", "::1/", "::1/x", "x:/3", "1:2:3:4:5:6:7/64",
)  # fmt: skip
HOSTS = ("10.1.2.3", "11.0.0.1", "1.2.3.4", "1.2.3.5", "1.2.3.6", "::1", "2001:db8::5", "2001:db9::5", "fe80::7%eth0")


@pytest.mark.java
def test_blocks_are_read_as_in_kafka() -> None:
    classpath = jars("org.apache.kafka:kafka-clients:4.4.0")
    classes = compile_java(Path(__file__).parent / "cidr_oracle", classpath)
    pairs = [(block, host) for block in BLOCKS for host in HOSTS]
    lines = "\n".join(f"{block}\t{host}" for block, host in pairs)
    printed = run_java("PrintCidr", [classes, *classpath], stdin=lines)
    assert printed.returncode == 0, printed.stderr
    ours = []
    for block, host in pairs:
        try:
            parse_cidr_block(block)
            verdict = "valid"
        except ValueError as error:
            verdict = str(error)
        network = block_of(block)
        is_inside = network is not None and address_of(host) in network
        ours.append(f"{verdict}\t{'true' if is_inside else 'false'}")
    assert dict(zip(pairs, ours, strict=True)) == dict(zip(pairs, printed.stdout.splitlines(), strict=True))


def creation(host: str) -> AclCreation:
    return AclCreation(
        resource_type=AclResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host=host,
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )


def test_an_acl_with_an_invalid_block_is_rejected() -> None:
    assert to_acl_binding(creation("10.1.0.0/16")).entry.host == "10.1.0.0/16"
    for host, reason in (
        ("10.1.0.0/40", "Invalid CIDR notation '10.1.0.0/40': Value [40] not in range [0,32]"),
        ("a/b", "Invalid CIDR notation 'a/b': Could not parse [a/b]"),
        ("", "Host pattern cannot be null or empty"),
    ):
        with pytest.raises(KafkaError) as refused:
            to_acl_binding(creation(host))
        assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, reason)


def test_a_block_applies_to_its_addresses_and_a_filter_selects_its_text() -> None:
    index, pattern = AclIndex(), ResourcePattern(AclResourceType.TOPIC, "t")
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    entries = [
        AccessControlEntry("User:a", "10.0.0.0/8", AclOperation.READ, allow),
        AccessControlEntry("User:a", "10.9.0.0/16", AclOperation.READ, deny),
        AccessControlEntry("User:*", "2001:db8::/32", AclOperation.ALL, allow),
        AccessControlEntry("User:a", "not/a block", AclOperation.ALL, allow),
    ]
    index.replace(pattern, entries)

    def decide(principal: str, host: str) -> bool | None:
        return index.decide(principal, host, AclOperation.READ, AclResourceType.TOPIC, "t")

    assert decide("User:a", "10.1.2.3") is True
    assert decide("User:a", "::ffff:10.1.2.3") is True
    assert decide("User:a", "10.9.2.3") is False
    assert decide("User:a", "11.1.2.3") is False
    assert decide("User:b", "10.1.2.3") is False
    assert decide("User:b", "2001:0db8::1") is True
    assert decide("User:a", "somewhere") is False
    assert index.allows_some("User:b", "2001:db8::1", AclOperation.READ, AclResourceType.TOPIC) is True
    found = [one.entry for some in index.selected(AclBindingFilter(host="10.0.0.0/8")) for one in some]
    assert found == entries[:1]
    assert [one for some in index.selected(AclBindingFilter(host="10.1.2.3")) for one in some] == []
    index.replace(pattern, ())
    assert decide("User:a", "10.1.2.3") is None
