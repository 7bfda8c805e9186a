"""Every command that lists names of clients, with names that contain markup, escape sequences and line breaks.

In pipes, as JSON, and on a terminal.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.config.config_client import ConfigClient
from tests.server_process import wait_until
from tests.tools.cli.running import Run, run_command

from barnabas import Broker
from barnabas.common.printable_text import printable
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.messages import alter_client_quotas as quotas
from barnabas.protocol.messages import create_acls as acls
from barnabas.protocol.messages import describe_share_group_offsets as share_offsets
from barnabas.protocol.messages import incremental_alter_configs as configs
from barnabas.protocol.messages import offset_commit as commit
from barnabas.protocol.messages import streams_group_heartbeat as streams
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

HOSTILE = "[/x][bold red]鍵\nevil\tStable\r\x1b[2J\x1b]0;evil\x07\u202e\u2066\u200b\u2028\x85\x9b1m\x00"
TOPIC = "flights"
SHARE_MEMBER = "m" * 22
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.streams.initial.rebalance.delay.ms": "0",
}
COMMAND = [sys.executable, "-c", "import sys; from barnabas.tools.cli import main; sys.exit(main())"]
LISTINGS = [
    ["group", "list"],
    ["group", "describe"],
    ["group", "lag"],
    ["group", "lag", "--partitions"],
    ["share-group", "list"],
    ["share-group", "describe"],
    ["share-group", "describe", "--members"],
    ["share-group", "describe", "--state"],
    ["streams-group", "list"],
    ["streams-group", "describe"],
    ["streams-group", "describe", "--members", "--verbose"],
    ["streams-group", "describe", "--state"],
    ["streams-group", "describe", "--topology"],
    ["transactions", "list"],
    ["transactions", "describe", HOSTILE.replace("\x00", "")],
    ["acl", "list"],
    ["quota", "list"],
    ["config", "describe", "group", HOSTILE.replace("\x00", "")],
    ["config", "describe", "topic", TOPIC],
    ["topic", "list"],
    ["topic", "describe"],
    ["broker", "list"],
    ["broker", "log-dirs"],
    ["top", "-c", "1", "-i", "0.1"],
]
NAMED = LISTINGS[:17]
"""Those that list at least one hostile name."""
PLAIN_HEADINGS = (["group", "describe"], ["topic", "describe"])
"""Commands with a line of text above each table."""


def name(kind: str = "") -> str:
    """A hostile name that can be an argument of a command, which has no NUL."""
    return kind + HOSTILE.replace("\x00", "")


class Client(ConfigClient):
    """A client with a hostile client id."""

    def served(self, key: ApiKey, version: int, request: object) -> object:
        """Send the request until its coordinator is loaded."""
        answer = self.call(key, version, request)

        def is_served() -> bool:
            nonlocal answer
            if getattr(answer, "error_code", 0) in (14, 15, 16):
                answer = self.call(key, version, request)
            return getattr(answer, "error_code", 0) not in (14, 15, 16)

        wait_until(is_served, timeout_s=60, interval_s=0.05, what=f"the coordinator for {key.name}")
        assert not getattr(answer, "error_code", 0), answer
        return answer


def populate(client: Client) -> None:
    """Create groups of all types, a transactional id, ACLs, quotas and settings with hostile names."""
    for kind in (0, 1):
        client.call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key="x", key_type=kind))
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=name("consumer"),
        member_id=HOSTILE,
        instance_id=HOSTILE,
        rack_id=HOSTILE,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    client.served(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, consumer)
    share = ShareGroupHeartbeatRequest(
        group_id=name("share"), member_id=SHARE_MEMBER, rack_id=HOSTILE, subscribed_topic_names=[TOPIC]
    )
    client.served(ApiKey.SHARE_GROUP_HEARTBEAT, 1, share)
    described = share_offsets.DescribeShareGroupOffsetsRequest(
        groups=[share_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=name("share"), topics=None)]
    )

    def has_offsets() -> bool:
        (group,) = client.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, described).groups
        return bool(group.topics)

    wait_until(has_offsets, timeout_s=60, what="the start offset of the share group")
    subtopology = streams.Subtopology(subtopology_id=HOSTILE, source_topics=[TOPIC])
    application = streams.StreamsGroupHeartbeatRequest(
        group_id=name("streams"),
        member_id=HOSTILE,
        instance_id=HOSTILE,
        rack_id=HOSTILE,
        process_id=HOSTILE,
        rebalance_timeout_ms=60_000,
        topology=streams.Topology(epoch=0, subtopologies=[subtopology]),
        user_endpoint=streams.Endpoint(host=HOSTILE, port=1),
        client_tags=[streams.KeyValue(key=HOSTILE, value=HOSTILE)],
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    client.served(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, application)
    partition = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=HOSTILE)
    topics = [commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    client.call(ApiKey.OFFSET_COMMIT, 8, commit.OffsetCommitRequest(group_id=name("classic"), topics=topics))
    init = InitProducerIdRequest(transactional_id=name(), transaction_timeout_ms=60_000)
    client.served(ApiKey.INIT_PRODUCER_ID, 5, init)
    rule = acls.AclCreation(
        resource_type=AclResourceType.GROUP,
        resource_name=HOSTILE,
        principal=f"User:{HOSTILE}",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    (made,) = client.call(ApiKey.CREATE_ACLS, 3, acls.CreateAclsRequest(creations=[rule])).results
    assert not made.error_code, made
    entity = [quotas.EntityData(entity_type=one, entity_name=name()) for one in ("user", "client-id")]
    entry = quotas.EntryData(entity=entity, ops=[quotas.OpData(key="request_percentage", value=9.0, remove=False)])
    (altered,) = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, quotas.AlterClientQuotasRequest(entries=[entry])).entries
    assert not altered.error_code, altered
    change = configs.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    resource = configs.AlterConfigsResource(
        resource_type=ConfigResourceType.GROUP, resource_name=name(), configs=[change]
    )
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    (changed,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert not changed.error_code, changed


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker({TOPIC: 1}, config=SETTINGS) as running, closing(Client(running.bootstrap, HOSTILE)) as client:
        populate(client)
        yield running


@pytest.fixture
def run(broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", broker.bootstrap)
    return lambda *arguments: run_command(capfd, list(arguments))


@pytest.mark.parametrize("command", LISTINGS, ids=lambda words: " ".join(map(printable, words[:3])))
def test_a_pipe_has_one_line_for_each_row(run: Run, command: list[str]) -> None:
    status, out, err = run(*command)
    assert (status, err) == (0, "")
    lines = out.split("\n")
    assert lines.pop() == ""
    assert all(line.replace("\t", "").isprintable() for line in lines)
    if command[0] == "top":
        (document,) = map(json.loads, lines)
        names = {one["group"] for one in document["groups"]}
        assert {name(kind) for kind in ("classic", "consumer", "streams")} <= names
    elif command not in PLAIN_HEADINGS:
        assert len({line.count("\t") for line in lines}) == 1
    if command in NAMED:
        assert "\\nevil\\tStable\\r\\x1b[2J" in out
        assert "[/x][bold red]鍵" in out


@pytest.mark.parametrize(
    "command", [one for one in LISTINGS if one[0] != "top"], ids=lambda words: " ".join(map(printable, words[:3]))
)
def test_json_has_the_names_as_they_are(run: Run, command: list[str]) -> None:
    status, out, err = run(*command, "--json")
    assert (status, err) == (0, "")
    assert out.removesuffix("\n").isprintable()
    document = json.loads(out)
    if command in NAMED:
        assert any(HOSTILE.removesuffix("\x00") in text for text in strings(document))


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def on_a_terminal(command: list[str], bootstrap: str) -> tuple[int, str]:
    """Run a command on a terminal of 400 columns; returns its status and everything that it wrote there."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "BARNABAS_BOOTSTRAP_SERVER": bootstrap, "COLUMNS": "400", "LINES": "60"}
    environment |= {"TERM": "xterm-256color"}
    process = subprocess.Popen([*COMMAND, *command], stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    written = b""
    deadline = time.monotonic() + 90
    try:
        while time.monotonic() < deadline:
            if not select.select([leader], [], [], 0.5)[0]:
                continue
            try:
                part = os.read(leader, 65_536)
            except OSError:  # the last process has closed the terminal
                break
            if not part:
                break
            written += part
        return process.wait(30), written.decode()
    finally:
        process.kill()
        process.wait()
        os.close(leader)


OWN_SEQUENCES = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?(?:25|1049)[lh]|\x1b\[(?:\d+;\d+)?H|\r")
"""Colours, cursor, the alternate screen, and the start of a line: the sequences of tables and of `top`."""


@pytest.mark.parametrize("command", LISTINGS, ids=lambda words: " ".join(map(printable, words[:3])))
def test_a_terminal_receives_no_sequence_of_a_name(broker: Broker, command: list[str]) -> None:
    status, text = on_a_terminal(command, broker.bootstrap)
    assert status == 0, text
    shown = OWN_SEQUENCES.sub("", text)
    assert shown.replace("\n", "").isprintable(), ascii(shown)
    if command in NAMED or command[0] == "top":
        # A column may be narrower than a name: it is folded at spaces.
        assert "[/x][bold" in shown, shown


def test_results_and_errors_are_one_line(run: Run) -> None:
    for command, status in (
        (["quota", "set", "request_percentage=9", "--user", name()], 0),
        (["quota", "remove", "request_percentage", "--user", name()], 0),
        (["config", "alter", "group", name(), "--set", "consumer.session.timeout.ms=50001"], 0),
        (["config", "alter", "group", name(), "--set", "consumer.session.timeout.ms=1"], 1),
        (["group", "delete", name("consumer"), name("gone")], 1),
        (["share-group", "delete", name("gone"), name("share")], 1),
        (["streams-group", "delete", name("gone"), name("streams")], 1),
        (["group", "describe", name("gone")], 1),
        (["share-group", "describe", name("gone")], 1),
        (["streams-group", "describe", name("gone")], 1),
        (["transactions", "describe", name("gone")], 1),
        (["group", "remove-members", name("consumer"), "--instance", name("gone")], 1),
        (["group", "remove-members", name("share")], 2),
        (["topic", "describe", name()], 1),
        (["group", "reset-offsets", name("gone"), "--all-topics", "--to-latest"], 2),
        (["consume", TOPIC, "-G", name("share"), "-c", "1"], 1),
    ):
        found, out, err = run(*command)
        assert found == status, (command, out, err)
        assert (out + err).replace("\n", "").isprintable(), command
        begins = [line.partition(" ")[0] for line in (out + err).splitlines()]
        assert set(begins) <= {"barnabas:", "altered", "deleted"}, out + err


def test_a_dump_has_one_line_for_each_record(run: Run, tmp_path: Path) -> None:
    with Broker({TOPIC: 1}, data_dir=tmp_path) as broker:
        broker.produce(TOPIC, [(HOSTILE.encode(), f"{HOSTILE}\n| offset: 99 forged".encode())])
    status, out, _ = run("dump-log", str(tmp_path / f"{TOPIC}-0"), "--print-data-log")
    assert status == 0
    assert all(line.isprintable() for line in out.split("\n"))
    assert next(line for line in out.split("\n") if "offset: 99 forged" in line).startswith("| offset: 0 ")
