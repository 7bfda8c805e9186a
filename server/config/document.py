"""The page of all configuration keys: `python -m barnabas.server.config.document > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .keys.catalogue import (
    BROKER_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    group_documentation,
    synonyms,
)
from .keys.cluster_keys import CLUSTER_KEYS
from .keys.coordinator_keys import COORDINATOR_KEYS
from .keys.definition import ConfigKey
from .keys.group_type_keys import SHARE_KEYS, STREAMS_KEYS
from .keys.log_keys import LOG_KEYS
from .keys.network_keys import NETWORK_KEYS
from .keys.own_keys import OWN_KEYS
from .keys.quorum_keys import KRAFT_NAMES, QUORUM_KEYS, ZOOKEEPER_NAMES
from .keys.remote_keys import REMOTE_KEYS
from .keys.security_keys import SECURITY_KEYS


class Deviation(NamedTuple):
    """A property of a key that deliberately differs from Apache Kafka 4.4, or an older release for keys that 4.4 lacks.

    `what` is default, allowed values (validator), update mode or required.
    """

    resource: str
    key: str
    what: str
    ours: str
    reason: str


_IN_KRAFT = "With `process.roles=broker` Kafka's default holds"
_ONE_BROKER = (
    f"one broker is the usual cluster, and the number of replicas cannot exceed the number of brokers. {_IN_KRAFT}"
)
_FUTURE = "as in every release before 4.0, records of clients with a fast clock are accepted"
_SMALL_SEGMENTS = "as in every release before 4.0; existing log directories and tests have small segments"
_NO_BATCH_FITS = "no batch fits into a smaller segment, so the topic would reject every record"
_BOUNDED = "a flood reaches a limit of the broker before it reaches a limit of the machine"
_BOUND_ONCE = "sockets are bound once, at start"
_NOT_ONLY_KRAFT = "as up to 3.9: not every configuration is for a KRaft quorum"
_FEW_PARTITIONS = (
    "the usual cluster is one broker, where more partitions only cause more files and more syncs of the disk. "
    f"{_IN_KRAFT}"
)
_LONG_MAX = str(2**63 - 1)

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "broker",
        "listeners",
        "default",
        "PLAINTEXT://127.0.0.1:9092",
        "prevents accidental connections from other machines",
    ),
    Deviation("broker", "listeners", "mode", "read-only", _BOUND_ONCE),
    Deviation("broker", "listener.security.protocol.map", "mode", "read-only", _BOUND_ONCE),
    Deviation(
        "broker", "log.dir", "default", "barnabas-data", "a directory below the working directory survives a reboot"
    ),
    Deviation("broker", "node.id", "default", "-1", _NOT_ONLY_KRAFT),
    Deviation("broker", "process.roles", "default", "", _NOT_ONLY_KRAFT),
    Deviation("broker", "max.connections", "default", "20000", _BOUNDED),
    Deviation("broker", "max.connections.per.ip", "default", "1000", _BOUNDED),
    Deviation("broker", "group.max.size", "default", "1000", _BOUNDED),
    Deviation("broker", "log.segment.bytes", "validator", "[14,...]", _SMALL_SEGMENTS),
    Deviation("topic", "segment.bytes", "validator", "[14,...]", _SMALL_SEGMENTS),
    Deviation("topic", "internal.segment.bytes", "validator", "[100,...]", _NO_BATCH_FITS),
    Deviation("broker", "log.message.timestamp.after.max.ms", "default", _LONG_MAX, _FUTURE),
    Deviation("topic", "message.timestamp.after.max.ms", "default", _LONG_MAX, _FUTURE),
    Deviation("broker", "offsets.topic.num.partitions", "default", "8", _FEW_PARTITIONS),
    Deviation("broker", "offsets.topic.replication.factor", "default", "1", _ONE_BROKER),
    Deviation("broker", "share.coordinator.state.topic.min.isr", "default", "1", _ONE_BROKER),
    Deviation("broker", "share.coordinator.state.topic.replication.factor", "default", "1", _ONE_BROKER),
    Deviation("broker", "transaction.state.log.min.isr", "default", "1", _ONE_BROKER),
    Deviation("broker", "transaction.state.log.replication.factor", "default", "1", _ONE_BROKER),
)

INTRODUCTION = """\
# Configuration

*Generated from the tables in `server/config` by `python -m barnabas.server.config.document`; a test compares them.*

`barnabas start server.properties` reads an unchanged configuration of Apache Kafka: the format is Java's, and all
{broker_count} broker keys and {topic_count} topic keys of Kafka 3.9 to 4.4 are supported, validated by Kafka's rules
and described to clients. Keys with an effect are listed first; the others are accepted so that files need no changes.
An unknown key is kept, logged once, and otherwise ignored, as in Kafka.

**Precedence.** A topic's own setting overrides the broker's. For the broker, a value that was set at run time for this
broker overrides a value for all brokers, which overrides the file, which overrides the default. If a setting exists in
several units, milliseconds override minutes, and minutes hours; a value set at run time replaces the file's value in
every unit.

**Listeners.** Without `listeners` the broker can be reached from its own machine only. A file with
`listeners=PLAINTEXT://:9092`, where no host means all interfaces as in Kafka, also needs
`allow.insecure.listeners=true`: without it the broker does not start with a listener that other machines can reach
without authentication; with it the broker logs a warning at each start. A listener on all interfaces without an
advertised address advertises the host name of the machine. Port 0 selects any free port, which is printed.
[security.md](security.md) describes authentication, certificates and passwords.

**ZooKeeper and KRaft.** A broker with `zookeeper.connect` is a member of a cluster ([cluster.md](cluster.md)), a broker
with `process.roles=broker` a member of a KRaft cluster whose controllers are Apache Kafka's ([kraft.md](kraft.md));
otherwise it is a standalone broker. Barnabas has no controllers of a KRaft cluster: with
`process.roles=broker,controller` it is a standalone broker whose id is `node.id`, the listeners in
`controller.listener.names` are omitted, and the keys for a quorum are logged in one line. A file for a controller only
is rejected.

**Variables.** The values of a file may contain variables, which Kafka's built-in config providers replace when the
broker starts. `config.providers` names the providers, `config.providers.<name>.class` is the class of a provider below
`org.apache.kafka.common.config.provider`, and `config.providers.<name>.param.*` are its parameters:

| class | variable | parameter |
|--|--|--|
| `FileConfigProvider` | `${{<name>:/path/of/file.properties:key}}` | `allowed.paths`: absolute paths, with commas |
| `DirectoryConfigProvider` | `${{<name>:/path/of/directory:file name}}` | `allowed.paths` |
| `EnvVarConfigProvider` | `${{<name>:VARIABLE}}` | `allowlist.pattern`: a regular expression for whole names |

A variable without a value remains as it is. The broker does not start with another class, or if a file cannot be read.
Clients see the replaced values in DescribeConfigs, except passwords. Settings of brokers that are set at run time may
have variables of these providers, too. They are stored with their variables, and the sources are read again at each
change and start. As in Kafka, a value that is not text requires `config.providers`, with the names of providers, among
the settings of the same resource. Unlike in Kafka, only the file can define providers: otherwise any client that may
alter settings could read the files of the machine.

**Durability.** With `acks.all.durability=disk` a record sent with acks=all is acknowledged when it is on disk; all
waiting appends share one `fdatasync`. `page-cache` is Kafka's behaviour: the operating system writes it later.

**Changes at run time.** Topic settings, and broker settings marked *per broker* or *cluster-wide*, take effect
immediately and survive a restart. Levels of loggers can be changed until the process ends.
"""


QUOTAS = """\
## Client quotas

Quotas are set with `kafka-configs --alter --entity-type users|clients|ips` or AlterClientQuotas, apply from the next
request on, and survive a restart. The most specific quota of a client applies, in Kafka's order: user and client id,
user and default client, user, default user and client id, both defaults, default user, client id, default client. The
user of a connection without authentication is `ANONYMOUS`.

| quota | for | limit |
|--|--|--|
| `producer_byte_rate` | users, clients | bytes per second of Produce requests |
| `consumer_byte_rate` | users, clients | bytes per second of records in Fetch responses |
| `request_percentage` | users, clients | percent of one thread's time; one thread handles all requests, so 100 is all |
| `controller_mutation_rate` | users, clients | partitions created and deleted per second |
| `connection_creation_rate` | ips | new connections per second of one address, except four of the broker's machine |

A client over its quota receives its response immediately, for a fetch without records, with a throttle time; its next
request is not read before that time has passed. A change of topics over its quota is rejected with
THROTTLING_QUOTA_EXCEEDED if the version of the request supports this error. A connection over its quota is closed
after a delay.
"""

LIMITS = """\
## Limits that Apache Kafka does not have

These limits prevent that one client delays all others or fills the memory. Ordinary clients do not reach them.

| object | limit | beyond the limit |
|--|--|--|
| structs, strings and numbers in the lists of one request | 50000 | the connection is closed |
| the same for LeaderAndIsr and UpdateMetadata between brokers | 700000 | the connection is closed |
| the same for StopReplica between brokers | 100000 | the connection is closed |
| unknown tagged fields of one struct in a request (10000 in Kafka) | 64 | the connection is closed |
| partitions of one Produce request | 20000 | the connection is closed |
| bytes of one request without records | 8 MiB | the connection is closed |
| members in one LeaveGroup | 20000 | INVALID_REQUEST |
| protocols of one JoinGroup, and bytes of their metadata | 1000, 1 MiB | INVALID_REQUEST |
| topics of one ConsumerGroupHeartbeat or ShareGroupHeartbeat | 20000 | INVALID_REQUEST |
| partitions in the share sessions of all members | 100000 | SHARE_SESSION_LIMIT_REACHED |
| topics and subtopologies of one streams topology | 5000, 1000 | STREAMS_INVALID_TOPOLOGY |
| tasks of one streams topology, with standby tasks | 50000 | STREAMS_INVALID_TOPOLOGY |
| task offsets that a member of a streams group reports | 20000 | INVALID_REQUEST |
| settings in one DescribeConfigs response | 200000 | POLICY_VIOLATION for each remaining resource |
| responses that describe groups, offsets or transactions | 32 MiB | COORDINATOR_LOAD_IN_PROGRESS for each other entry |
| groups created by one client id, one address; one more per 500 characters | 20000, 200000 | GROUP_MAX_SIZE_REACHED |
| offsets written by OffsetCommit 0: one client id, one address, all | 20000, 40000, 100000 | GROUP_MAX_SIZE_REACHED |
| bytes of the group id in OffsetCommit 0 | 1000 | INVALID_GROUP_ID |
| decompressed bytes converted for one Fetch of an old version | 4 MiB | or one batch; the rest with the next Fetch |
| requests of more than 64 KB until handled, together | `queued.max.request.bytes`, or 256 MiB | the next waits |
| decoded requests of more than 32 KB until their response is received, together | 256 MiB | the next waits |
| share of one address in either of these limits, if others wait | half | the next waits, except its first |
| default of either of these limits | a quarter of the control group's memory limit | as above |
| seconds without a byte of a request that uses these limits, while others wait | 3 | the connection is closed |
| responses that a client does not receive | 30 seconds | the connection is closed |
| series pushed by one client, and by all together | 1000, 20000 | omitted; the address with most loses a client |
| a compressed batch, decompressed | see `max.message.bytes` | MESSAGE_TOO_LARGE |
| blocks of a compressed batch, beyond 1000 | one for each 32 bytes that they hold | INVALID_RECORD |
| compressed bytes of a gzip batch, beyond 32 KiB | eight for each decompressed byte | INVALID_RECORD |

Long work within these limits runs in short slices, or on another thread than the event loop.
"""

_TIMES: tuple[tuple[int, str], ...] = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_SIZES: tuple[tuple[int, str], ...] = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def render() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    own = {key.name for key in OWN_KEYS}
    broker_count = sum(1 for name in BROKER_KEYS if name not in own)
    yield INTRODUCTION.format(broker_count=broker_count, topic_count=len(TOPIC_KEYS))
    yield "## Keys that only Barnabas has\n"
    yield from _table(OWN_KEYS)
    yield "\n## Broker keys that have an effect\n"
    yield from _table(key for name, key in BROKER_KEYS.items() if key.doc is not None and name not in own)
    yield "\n## Topic keys that have an effect\n"
    yield from _topic_table()
    yield f"\n{QUOTAS}"
    yield LIMITS
    yield "## Group keys\n"
    yield from _group_table()
    yield "\n## Differences from Apache Kafka\n"
    yield from _deviations()
    yield "\n## Keys that are accepted without effect\n"
    yield from _without_effect()


def _table(keys: Iterable[ConfigKey]) -> Iterator[str]:
    yield "| key | type | default | allowed | changes | description |"
    yield "|--|--|--|--|--|--|"
    for key in keys:
        mode = key.update_mode.value.replace("read-only", "at start").replace("-", " ", 1)
        cells = (f"`{key.name}`", key.type.name.lower(), _default(key), _allowed(key), mode, key.documentation)
        yield _row(cells)


def _topic_table() -> Iterator[str]:
    yield "| key | type | default | allowed | broker key | description |"
    yield "|--|--|--|--|--|--|"
    for name, key in TOPIC_KEYS.items():
        if key.doc is None:
            continue
        broker = (
            ", ".join(f"`{synonym}`" for synonym in synonyms(TOPIC_SYNONYMS[name])) if name in TOPIC_SYNONYMS else ""
        )
        yield _row((f"`{name}`", key.type.name.lower(), _default(key), _allowed(key), broker, key.doc))


def _group_table() -> Iterator[str]:
    yield "| key | type | default | allowed | broker key | description |"
    yield "|--|--|--|--|--|--|"
    for name, key in GROUP_KEYS.items():
        doc = group_documentation(name)
        if doc is None:
            continue
        broker = f"`{GROUP_SYNONYMS[name]}`" if name in GROUP_SYNONYMS else ""
        yield _row((f"`{name}`", key.type.name.lower(), _default(key), _allowed(key), broker, doc))


def _deviations() -> Iterator[str]:
    yield "| key | property | Barnabas | reason |"
    yield "|--|--|--|--|"
    for deviation in DEVIATIONS:
        what = {"validator": "allowed", "mode": "changes"}.get(deviation.what, deviation.what)
        value = f"`{deviation.ours}`" if deviation.ours else "not set"
        yield _row((f"`{deviation.key}`", what, value, deviation.reason))


def _without_effect() -> Iterator[str]:
    rest = {name for name, key in BROKER_KEYS.items() if key.doc is None}
    areas = (
        ("Topic keys", [name for name, key in TOPIC_KEYS.items() if key.doc is None]),
        ("Logs", _named(LOG_KEYS)),
        ("Network and quotas", _named(NETWORK_KEYS)),
        ("Cluster", _named(CLUSTER_KEYS)),
        ("Groups, transactions", _named((*COORDINATOR_KEYS, *SHARE_KEYS, *STREAMS_KEYS))),
        ("Security", _named(SECURITY_KEYS)),
        ("KRaft", KRAFT_NAMES),
        ("ZooKeeper", ZOOKEEPER_NAMES),
        ("Other control keys", _named(QUORUM_KEYS) - KRAFT_NAMES - ZOOKEEPER_NAMES),
        ("Tiered storage", _named(REMOTE_KEYS)),
    )
    for title, names in areas:
        unused = sorted(name for name in names if name in rest or title == "Topic keys")
        yield f"**{title}.** {', '.join(f'`{name}`' for name in unused)}.\n"


def _named(keys: Iterable[ConfigKey]) -> set[str]:
    return {key.name for key in keys}


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(key: ConfigKey) -> str:
    if key.default is None:
        return "not set"
    text = key.format(key.default)
    if not text:
        return "empty"
    if isinstance(key.default, int) and not isinstance(key.default, bool) and key.default > 0:
        return f"{text}{_readable(key.name, key.default)}"
    return f"`{text}`" if isinstance(key.default, str | tuple) else text


def _readable(name: str, value: int) -> str:
    """Return the value in the largest unit that divides it, or nothing if it already has that unit."""
    if value == (1 << 63) - 1:
        return " (no limit)"
    if name.endswith(".ms"):
        units = _TIMES
    elif name.endswith(("bytes", "buffer.size", "bytes.per.second")):
        units = _SIZES
    else:
        return ""
    factor, unit = next((entry for entry in units if value >= entry[0] and value % entry[0] == 0), (0, ""))
    if not factor:
        return ""
    count = value // factor
    return f" ({count} {unit}{'s' if count > 1 and unit.islower() else ''})"


def _allowed(key: ConfigKey) -> str:
    return "" if key.validator is None else str(key.validator)


if __name__ == "__main__":
    print(render(), end="")
