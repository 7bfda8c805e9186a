"""`barnabas topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ...clients.admin import (
    BROKER_DEFAULT,
    HIGH_WATERMARK,
    Admin,
    ConfigChange,
    ConfigResource,
    NewTopic,
    Outcome,
    raise_first,
)
from ...clients.cluster import TopicInfo
from ...clients.errors import UnsupportedVersionError
from ...common.uuid_text import uuid_text
from ...protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from . import completion
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, parse_settings
from .session import (
    Bootstrap,
    Json,
    Row,
    Yes,
    ask_first,
    print_json,
    print_rows,
    readable_size,
    run,
    say,
    warn,
)

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(help="The topic.", autocompletion=completion.topics)]
Names = Annotated[list[str], typer.Argument(help="The topics.", autocompletion=completion.topics)]
Sizes = Mapping[tuple[int, TopicPartition], int]
"""Bytes by broker and partition."""
Config = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Topic setting; may be repeated.")
]


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(help="The topics.")],
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", help="Partitions; -1: the broker's default.")
    ] = BROKER_DEFAULT,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", help="Replicas of each partition; -1: the broker's default.")
    ] = BROKER_DEFAULT,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if a topic exists.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Create topics."""
    configs = parse_settings(config or ())
    topics = [NewTopic(name, partitions, replication_factor, configs) for name in names]

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            return await admin.create_topics(topics)

    _report(run(work()), "created", ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None, as_json=json)


@app.command("list")
def list_topics(
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List topics."""

    async def work() -> list[TopicInfo]:
        async with admin_of(bootstrap) as admin:
            return await admin.describe_topics()

    topics = [topic for topic in run(work()) if internal or not topic.is_internal]
    print_rows(
        [
            {
                "topic": topic.name,
                "partitions": len(topic.partitions),
                "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
            }
            for topic in topics
        ],
        as_json=json,
    )


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(help="Topics; all by default.", autocompletion=completion.topics)
    ] = None,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show partitions, leaders, replicas, bytes on disk, and settings that differ from the broker's."""

    async def work() -> tuple[list[TopicInfo], dict[str, dict[str, str | None]], Sizes]:
        async with admin_of(bootstrap) as admin:
            topics = await admin.describe_topics(names)
            for topic in topics:
                if topic.error is not ErrorCode.NONE:
                    raise KafkaError(topic.error, f"topic {topic.name!r}")
            resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
            try:
                entries = await admin.describe_configs(resources) if resources else {}
            except UnsupportedVersionError:
                entries = {}  # brokers before 0.11 do not return settings; the partitions are useful without them
            own_configs = {
                resource.name: {e.name: e.value for e in own if e.source is ConfigSource.TOPIC}
                for resource, own in entries.items()
            }
            return topics, own_configs, await _sizes(admin)

    topics, configs, sizes = run(work())
    if json:
        print_json([_described(topic, configs.get(topic.name, {}), sizes) for topic in topics])
        return
    for topic in topics:
        own = " ".join(f"{key}={value}" for key, value in configs.get(topic.name, {}).items())
        rows = _partition_rows(topic, sizes)
        told = [row["bytes"] for row in rows if isinstance(row["bytes"], int)]
        size = f"  {readable_size(sum(told))}" if told else ""
        say(f"topic {topic.name}  id {uuid_text(topic.topic_id)}{size}  {own}".rstrip())
        print_rows(rows)


async def _sizes(admin: Admin) -> Sizes:
    """Return the bytes of each replica by broker; nothing before 1.0 or without permission."""
    try:
        dirs = await admin.describe_log_dirs()
    except KafkaError:
        return {}
    return {(one.broker_id, tp): size for one in dirs for tp, size in one.sizes.items()}


@app.command()
def alter(
    name: Name,
    *,
    partitions: Annotated[int | None, typer.Option("--partitions", help="New total number of partitions.")] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            "--delete",
            "-d",
            metavar="KEY",
            help="Remove a topic setting, so that the broker's setting applies.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions to a topic, or change its settings."""
    changes = [ConfigChange(key, value) for key, value in parse_settings(config or ()).items()]
    changes += [ConfigChange(key, None, ConfigOperation.DELETE) for key in delete_config or ()]
    if partitions is None and not changes:
        raise typer.BadParameter("no change given: use --partitions, --config or --delete-config")

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            if changes:
                raise_first(await admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, name): changes}))
            if partitions is not None:
                raise_first(await admin.create_partitions({name: partitions}))

    run(work())
    say(f"altered topic {name}")


@app.command()
def delete(
    names: Names,
    *,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if a topic does not exist.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete topics with all their records."""
    ask_first(f"delete {', '.join(names)} and all records?", yes=yes)

    async def work() -> dict[str, Outcome]:
        async with admin_of(bootstrap) as admin:
            return await admin.delete_topics(names)

    _report(run(work()), "deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None, as_json=json)


@app.command()
def delete_records(
    name: Name,
    *,
    before: Annotated[int, typer.Option(help="First offset to keep; -1 deletes all records.")] = HIGH_WATERMARK,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete the records of a topic before an offset, or all records."""
    which = "all records" if before == HIGH_WATERMARK else f"the records before offset {before}"
    ask_first(f"delete {which} of {name}?", yes=yes)

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            partitions = await admin.partitions_of(name, partition)
            outcomes = await admin.delete_records(dict.fromkeys(partitions, before))
            raise_first({tp: o if isinstance(o, KafkaError) else None for tp, o in outcomes.items()})
            return [{"partition": tp.partition, "log start offset": outcomes[tp]} for tp in partitions]

    print_rows(run(work()), as_json=json)


def _report(outcomes: dict[str, Outcome], verb: str, fine: ErrorCode | None, *, as_json: bool) -> None:
    """Print one line for each topic; the first error that is not accepted ends the command."""
    errors = {name: error for name, error in outcomes.items() if error is not None and error.code is not fine}
    if as_json:
        print_json([{"topic": name, "error": str(errors[name]) if name in errors else None} for name in outcomes])
    else:
        for name in sorted(outcomes.keys() - errors.keys()):
            say(f"{verb} topic {name}" if outcomes[name] is None else f"topic {name}: {outcomes[name]}")
    for name, error in errors.items():
        warn(f"topic {name}: {error}")
    if errors:
        raise typer.Exit(1)


def _partition_rows(topic: TopicInfo, sizes: Sizes) -> Sequence[Row]:
    return [
        {
            "partition": p.index,
            "leader": p.leader_id,
            "epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "in sync": list(p.in_sync_replicas),
            "bytes": sizes.get((p.leader_id, TopicPartition(topic.name, p.index))),
        }
        for _, p in sorted(topic.partitions.items())
    ]


def _described(topic: TopicInfo, configs: dict[str, str | None], sizes: Sizes) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "configs": configs,
        "partitions": list(_partition_rows(topic, sizes)),
    }
