"""`kafka-console-producer` and `kafka-console-consumer` over Barnabas's clients."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from ....protocol.topic_partition import TopicPartition
from .. import client_settings
from ..session import run
from .kafka_tools import TOOLS, Options

POLL_MS = 60_000
_PRINTED = ("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key", "print.value")
_FORMATS = {*_PRINTED, "key.separator", "line.separator", "null.literal"}


def _properties(parser: Options, pairs: Sequence[str], known: set[str]) -> dict[str, str]:
    properties = client_settings.parse_settings(pairs)
    unknown = sorted(properties.keys() - known)
    if unknown:
        parser.error(f"--property {unknown[0]}: expected one of {', '.join(sorted(known))}")
    return properties


def _is_on(properties: Mapping[str, str], name: str, default: str = "false") -> bool:
    return properties.get(name, default).lower() == "true"


def producer(arguments: Sequence[str]) -> None:
    """Produce the lines of standard input."""
    parser = Options("kafka-console-producer", "Produce the lines of standard input.")
    parser.add_connection("--producer.config", servers=("--bootstrap-server", "--broker-list"))
    add = parser.add_argument
    add("--topic", required=True, metavar="NAME")
    add("--property", "--reader-property", dest="reader", action="append", default=[], metavar="KEY=VALUE")
    add("--producer-property", "--command-property", dest="client", action="append", default=[], metavar="KEY=VALUE")
    add("--request-required-acks", "--producer-acks", dest="acks", default="-1", metavar="ACKS")
    add("--compression-codec", nargs="?", const="gzip", metavar="CODEC")
    for name in ("--sync", "--timeout", "--batch-size", "--message-send-max-retries", "--request-timeout-ms"):
        add(name, **({"action": "store_true"} if name == "--sync" else {"metavar": "N"}), help="without effect")  # type: ignore[arg-type]
    options = parser.take(arguments)
    reader = _properties(parser, options.reader, {"parse.key", "key.separator", "ignore.error", "null.marker"})
    words = ["-b", options.bootstrap, "--acks", {"-1": "all"}.get(options.acks, options.acks)]
    if _is_on(reader, "parse.key"):
        words += ["--key-separator", reader.get("key.separator", "\t")]
    if options.compression_codec:
        words += ["--codec", options.compression_codec]
    if options.file:
        words += ["--command-config", options.file]
    for pair in options.client:
        words += ["-X", pair]
    from ..app import main

    main(["produce", *words, "--", options.topic])


def consumer(arguments: Sequence[str]) -> None:
    """Print the records of a topic."""
    parser = Options("kafka-console-consumer", "Print the records of a topic.")
    parser.add_connection("--consumer.config")
    add = parser.add_argument
    add("--topic", required=True, metavar="NAME")
    add("--from-beginning", action="store_true")
    add("--max-messages", type=int, metavar="N")
    add("--timeout-ms", type=int, metavar="MS", help="end if no record arrives for this time")
    add("--group", metavar="NAME")
    add("--partition", type=int, metavar="N")
    add("--offset", metavar="OFFSET", help="earliest, latest or a number; requires --partition")
    add("--isolation-level", choices=("read_uncommitted", "read_committed"), default="read_uncommitted")
    add("--property", "--formatter-property", dest="formatter", action="append", default=[], metavar="KEY=VALUE")
    add("--consumer-property", "--command-property", dest="client", action="append", default=[], metavar="KEY=VALUE")
    options = parser.take(arguments)
    client_settings.begin(client_settings.command_config.get(), options.client)
    if options.offset is not None and options.partition is None:
        parser.error("--offset requires --partition")
    if options.offset not in (None, "earliest", "latest") and not options.offset.isdecimal():
        parser.error(f"--offset {options.offset}: expected earliest, latest or a number")
    shown = _properties(parser, options.formatter, _FORMATS)
    run(_consume(options, shown))


async def _consume(options: Namespace, shown: Mapping[str, str]) -> None:
    from ....clients.consumer import Consumer

    settings = client_settings.client_arguments(Consumer)
    settings["isolation_level"] = options.isolation_level
    start = "earliest" if options.from_beginning or options.offset == "earliest" else "latest"
    settings.setdefault("auto_offset_reset", start)
    group = settings.pop("group_id", None) or options.group
    total, left = 0, options.max_messages
    async with Consumer(options.bootstrap, group_id=group, **settings) as consumer:
        if options.partition is not None:
            place = TopicPartition(options.topic, options.partition)
            consumer.assign([place])
            if options.offset is not None and options.offset.isdecimal():
                consumer.seek(place, int(options.offset))
        elif group is None:
            consumer.assign(TopicPartition(options.topic, one) for one in await consumer.partitions_for(options.topic))
        else:
            consumer.subscribe([options.topic])
        while left is None or left > 0:
            waiting = POLL_MS if options.timeout_ms is None else options.timeout_ms
            found = await consumer.getmany(timeout_ms=waiting, max_records=left)
            records = [record for batch in found.values() for record in batch]
            if not records and options.timeout_ms is not None:
                print(f"No record within {options.timeout_ms} ms.", file=sys.stderr)
                break
            for record in records:
                sys.stdout.buffer.write(_line(record, shown))
            sys.stdout.buffer.flush()
            total += len(records)
            left = None if left is None else left - len(records)
        if group is not None and total:
            await consumer.commit()
    print(f"Processed a total of {total} messages", file=sys.stderr)


def _line(record: Any, shown: Mapping[str, str]) -> bytes:
    null = shown.get("null.literal", "null").encode()
    parts: list[bytes] = []
    if _is_on(shown, "print.timestamp"):
        parts.append(f"CreateTime:{record.timestamp}".encode())
    if _is_on(shown, "print.partition"):
        parts.append(f"Partition:{record.partition}".encode())
    if _is_on(shown, "print.offset"):
        parts.append(f"Offset:{record.offset}".encode())
    if _is_on(shown, "print.headers"):
        headers = (f"{_text(name)}:".encode() + (null if value is None else value) for name, value in record.headers)
        parts.append(b",".join(headers) or b"NO_HEADERS")
    if _is_on(shown, "print.key"):
        parts.append(null if record.key is None else record.key)
    if _is_on(shown, "print.value", "true"):
        parts.append(null if record.value is None else record.value)
    separator = shown.get("key.separator", "\t").encode()
    return separator.join(parts) + shown.get("line.separator", "\n").encode()


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


TOOLS["kafka-console-producer"] = producer
TOOLS["kafka-console-consumer"] = consumer
