"""Kafka's command-line tools, as far as health checks and init containers use them, over Barnabas's clients.

Output has Kafka's form. An option that is not here ends with status 1 and its name, as do Kafka's tools.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from .... import __version__
from ....protocol.apis import API_MESSAGES, ApiKey
from ....protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.negotiation import negotiate
from ....protocol.schema import Versions
from ....protocol.special_timestamps import EARLIEST, LATEST
from ....protocol.topic_partition import TopicPartition
from .. import client_settings
from ..session import run, say

if TYPE_CHECKING:
    from ....clients.admin import ConfigResource

ENTITIES = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "groups": ConfigResourceType.GROUP,
}


class Options(argparse.ArgumentParser):
    """The options of one tool. An error ends with status 1, the status of Kafka's tools."""

    def __init__(self, tool: str, description: str) -> None:
        super().__init__(prog=tool, description=description, allow_abbrev=False)
        self.add_argument("--version", action="version", version=f"{__version__} (Barnabas)")

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: {message}. See {self.prog} --help\n")

    def add_connection(
        self, *files: str, servers: Sequence[str] = ("--bootstrap-server",), is_required: bool = True
    ) -> None:
        """Add the address of the cluster and the file with the settings of the client."""
        self.add_argument(
            *servers, dest="bootstrap", metavar="HOST:PORT", required=is_required, help="bootstrap servers"
        )
        self.add_argument("--command-config", *files, dest="file", metavar="FILE", help="settings of the client")

    def take(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse; the settings of the file apply to the clients of this process."""
        options = self.parse_args(arguments)
        if getattr(options, "file", None):
            client_settings.begin(Path(options.file), [])
        return options


def main(tool: str, arguments: Sequence[str]) -> int:
    """Run a tool by Kafka's name, such as `kafka-topics`; return the exit status."""
    try:
        TOOLS[tool](arguments)
    except typer.Exit as error:
        return error.exit_code
    except typer.BadParameter as error:
        print(f"{tool}: {error}", file=sys.stderr)
        return 1
    return 0


def topics(arguments: Sequence[str]) -> None:
    """Create, list, describe, alter and delete topics."""
    parser = Options("kafka-topics", "Create, list, describe, alter and delete topics.")
    parser.add_connection()
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("list", "create", "describe", "delete", "alter"):
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--partitions", type=int, default=-1, metavar="N")
    parser.add_argument("--replication-factor", type=int, default=-1, metavar="N")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--if-not-exists", action="store_true")
    parser.add_argument("--if-exists", action="store_true")
    parser.add_argument("--exclude-internal", action="store_true")
    options = parser.take(arguments)
    if options.topic is None and options.action in ("create", "delete", "alter"):
        parser.error(f"--{options.action} requires --topic")
    if options.action == "alter" and options.partitions < 1:
        parser.error("--alter requires --partitions")
    run({"list": _list_topics, "describe": _describe_topics}.get(options.action, _change_topic)(options))


async def _list_topics(options: argparse.Namespace) -> None:
    async with client_settings.admin_of(options.bootstrap) as admin:
        for topic in sorted(await admin.describe_topics(), key=lambda one: one.name):
            if not (options.exclude_internal and topic.is_internal) and options.topic in (None, topic.name):
                say(topic.name)


async def _describe_topics(options: argparse.Namespace) -> None:
    from ....clients.admin import ConfigResource

    async with client_settings.admin_of(options.bootstrap) as admin:
        found = await admin.describe_topics(None if options.topic is None else options.topic.split(","))
        for topic in found:
            if topic.error is not ErrorCode.NONE:
                if options.if_exists and topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                raise KafkaError(topic.error, f"topic {topic.name!r}")
            resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
            entries = (await admin.describe_configs([resource]))[resource]
            configs = ",".join(f"{one.name}={one.value}" for one in entries if one.source is ConfigSource.TOPIC)
            partitions = sorted(topic.partitions.values(), key=lambda one: one.index)
            count, factor = len(partitions), len(partitions[0].replicas)
            say(f"Topic: {topic.name} PartitionCount: {count} ReplicationFactor: {factor} Configs: {configs}")
            for one in partitions:
                replicas, isr = (",".join(map(str, ids)) for ids in (one.replicas, one.in_sync_replicas))
                leader = one.leader_id if one.leader_id >= 0 else "none"
                say(f" Topic: {topic.name} Partition: {one.index} Leader: {leader} Replicas: {replicas} Isr: {isr}")


async def _change_topic(options: argparse.Namespace) -> None:
    from ....clients.admin import NewTopic, raise_first

    name = options.topic
    async with client_settings.admin_of(options.bootstrap) as admin:
        accepted = None
        if options.action == "create":
            configs = client_settings.parse_settings(options.config)
            outcome = await admin.create_topics(
                [NewTopic(name, options.partitions, options.replication_factor, configs)]
            )
            accepted = ErrorCode.TOPIC_ALREADY_EXISTS if options.if_not_exists else None
        elif options.action == "delete":
            outcome = await admin.delete_topics([name])
            accepted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if options.if_exists else None
        else:
            outcome = await admin.create_partitions({name: options.partitions})
        error = outcome[name]
        if error is None or error.code is not accepted:
            raise_first(outcome)
        if error is None and options.action == "create":
            say(f"Created topic {name}.")


def api_versions(arguments: Sequence[str]) -> None:
    """Show the versions of each API that the brokers and this client support."""
    parser = Options("kafka-broker-api-versions", "Show the versions of the APIs of each broker.")
    parser.add_connection()
    options = parser.take(arguments)

    async def work() -> None:
        async with client_settings.admin_of(options.bootstrap) as admin:
            for broker in (await admin.describe_cluster()).brokers:
                rack = broker.rack or "null"
                say(f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {rack} isFenced: false) -> (")
                print(",\n".join(map(_api_line, (await admin.api_versions(broker.node_id)).items())))
                print(")")

    run(work())


def _api_line(api: tuple[int, Versions]) -> str:
    """Return a line in the format of Kafka's NodeApiVersions."""
    key, offered = api
    if key not in API_MESSAGES:
        return f"\tUNKNOWN({key}): {offered.first} to {offered.last}"
    name = "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    usable = negotiate(API_MESSAGES[ApiKey(key)].versions, offered)
    return f"\t{name}({key}): {offered.first} to {offered.last} [usable: {'none' if usable is None else usable}]"


def configs(arguments: Sequence[str]) -> None:
    """Describe and alter settings of topics, brokers and groups, and SCRAM credentials and quotas of users."""
    parser = Options("kafka-configs", "Describe and alter settings of topics, brokers, groups and users.")
    parser.add_connection(is_required=False)
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="for SCRAM credentials, also without a broker")
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("describe", "alter"):
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    kinds = (*ENTITIES, "users")
    parser.add_argument("--entity-type", choices=kinds)
    parser.add_argument("--entity-name", metavar="NAME")
    for kind in kinds:
        parser.add_argument(f"--{kind.removesuffix('s')}", metavar="NAME")
    parser.add_argument("--add-config", metavar="KEY=VALUE,…")
    parser.add_argument("--delete-config", metavar="KEY,…")
    parser.add_argument("--all", action="store_true")
    options = parser.take(arguments)
    named = [(kind, name) for kind in kinds if (name := getattr(options, kind.removesuffix("s"))) is not None]
    kind, name = named[0] if named else (options.entity_type, options.entity_name)
    is_listing = kind == "users" and options.action == "describe"
    if kind is None or (name is None and not is_listing):
        parser.error("expected --entity-type and --entity-name")
    if (options.bootstrap is None) is (options.zookeeper is None):
        parser.error("expected --bootstrap-server or --zookeeper")
    if options.zookeeper is not None and (kind != "users" or options.action != "alter"):
        parser.error("--zookeeper requires --alter --entity-type users")
    changes = client_settings.parse_settings(_split(options.add_config or ""))
    removed = [key for key in (options.delete_config or "").split(",") if key]
    if options.action == "alter" and not (changes or removed):
        parser.error("--alter requires --add-config or --delete-config")
    if kind != "users":
        run(_configs(options, kind, name, changes, removed))
        return
    from . import user_configs

    if is_listing:
        run(user_configs.describe_users(options.bootstrap, name))
        return
    wanted = user_configs.changes_of(name, changes, removed)
    if options.zookeeper is None:
        run(user_configs.alter_user(options.bootstrap, name, wanted))
    else:
        user_configs.alter_user_in_zookeeper(options.zookeeper, name, wanted)
    say(f"Completed updating config for user {name}.")


def _split(assignments: str) -> list[str]:
    """Split `k=v,k=[a,b]` at the commas outside brackets."""
    parts, depth = [""], 0
    for character in assignments:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        elif character not in "[]":
            parts[-1] += character
    return [part for part in parts if part]


async def _configs(
    options: argparse.Namespace, kind: str, name: str, changes: dict[str, str], removed: list[str]
) -> None:
    from ....clients.admin import ConfigChange, ConfigResource

    resource: ConfigResource = ConfigResource(ENTITIES[kind], name)
    async with client_settings.admin_of(options.bootstrap) as admin:
        if options.action == "alter":
            wanted = [ConfigChange(key, value) for key, value in changes.items()]
            wanted += [ConfigChange(key, None, ConfigOperation.DELETE) for key in removed]
            await admin.alter_configs({resource: wanted})
            say(f"Completed updating config for {kind.removesuffix('s')} {name}.")
            return
        entries = (await admin.describe_configs([resource]))[resource]
        say(f"{'All' if options.all else 'Dynamic'} configs for {kind.removesuffix('s')} {name} are:")
        dynamic = (
            ConfigSource.TOPIC,
            ConfigSource.GROUP,
            ConfigSource.DYNAMIC_BROKER,
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
        )
        for entry in entries:
            if options.all or entry.source in dynamic:
                say(f"  {entry.name}={entry.value} sensitive={str(entry.is_sensitive).lower()}")


def groups(arguments: Sequence[str]) -> None:
    """List, describe and delete consumer groups."""
    parser = Options("kafka-consumer-groups", "List, describe and delete consumer groups.")
    parser.add_connection()
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("list", "describe", "delete"):
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    parser.add_argument("--group", action="append", default=[], metavar="NAME")
    parser.add_argument("--all-groups", action="store_true")
    options = parser.take(arguments)
    if options.action != "list" and not (options.group or options.all_groups):
        parser.error(f"--{options.action} requires --group or --all-groups")
    run(_groups(options))


async def _groups(options: argparse.Namespace) -> None:
    from ....clients.admin import raise_first

    async with client_settings.admin_of(options.bootstrap) as admin:
        names = options.group
        if options.action == "list" or options.all_groups:
            names = sorted(one.group_id for one in await admin.list_groups(types=("classic", "consumer")))
        if options.action == "list":
            for name in names:
                say(name)
        elif options.action == "delete":
            raise_first(await admin.delete_groups(names))
            say(f"Deletion of requested consumer groups ({', '.join(repr(one) for one in names)}) was successful.")
        else:
            columns = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
            say(columns)
            for one in await admin.group_lag(names):
                cells = (one.group_id, one.partition.topic, one.partition.partition, one.committed, one.end, one.lag)
                member = (one.member_id, one.host, one.client_id)
                say(" ".join("-" if cell is None else str(cell) for cell in (*cells, *member)))


def get_offsets(arguments: Sequence[str]) -> None:
    """Show offsets as TOPIC:PARTITION:OFFSET."""
    parser = Options("kafka-get-offsets", "Show offsets as TOPIC:PARTITION:OFFSET.")
    parser.add_connection(servers=("--bootstrap-server", "--broker-list"))
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--time", default="latest", metavar="TIME", help="earliest, latest, -1, -2 or milliseconds")
    options = parser.take(arguments)
    special = {"latest": LATEST, "earliest": EARLIEST, "-1": LATEST, "-2": EARLIEST}
    if options.time not in special and not options.time.isdecimal():
        parser.error(f"--time {options.time}: expected earliest, latest or milliseconds")
    at = special[options.time] if options.time in special else int(options.time)

    async def work() -> None:
        async with client_settings.admin_of(options.bootstrap) as admin:
            found = await admin.describe_topics(None if options.topic is None else [options.topic])
            places = []
            for topic in found:
                if topic.error is not ErrorCode.NONE:
                    raise KafkaError(topic.error, f"topic {topic.name!r}")
                places += [TopicPartition(topic.name, index) for index in sorted(topic.partitions)]
            offsets = await admin.list_offsets(dict.fromkeys(places, at))
            for place in places:
                say(f"{place.topic}:{place.partition}:{getattr(offsets[place], 'offset', offsets[place])}")

    run(work())


TOOLS: dict[str, Callable[[Sequence[str]], None]] = {
    "kafka-topics": topics,
    "kafka-broker-api-versions": api_versions,
    "kafka-configs": configs,
    "kafka-consumer-groups": groups,
    "kafka-get-offsets": get_offsets,
}
