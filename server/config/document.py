"""The page of all configuration keys: `python -m barnabas.server.config.document > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .deviations import DEVIATIONS
from .keys.catalogue import BROKER_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS, synonyms
from .keys.cluster_keys import CLUSTER_KEYS
from .keys.coordinator_keys import COORDINATOR_KEYS
from .keys.definition import ConfigKey
from .keys.log_keys import LOG_KEYS
from .keys.network_keys import NETWORK_KEYS
from .keys.own_keys import OWN_KEYS
from .keys.quorum_keys import KRAFT_NAMES, QUORUM_KEYS, ZOOKEEPER_NAMES
from .keys.remote_keys import REMOTE_KEYS
from .keys.security_keys import SECURITY_KEYS
from .sentences import BROKER_SENTENCES, TOPIC_SENTENCES

INTRODUCTION = """\
# Configuration

*Written from the tables in `server/config` by `python -m barnabas.server.config.document`; a test holds it to them.*

`barnabas start server.properties` takes a configuration of Apache Kafka as it is: the format is Java's, and all
{broker_count} broker keys and {topic_count} topic keys of Kafka 3.9 and 4.1 are known, checked by Kafka's rules and
described to clients. What has an effect is listed first; the rest is accepted so that files need no editing. A key
that nobody knows is kept, named once in the log, and otherwise passed over, as in Kafka.

**What wins.** A topic's own setting wins over the broker's. There a value that was set at run time for this broker
wins over one for all brokers, that over the file, that over the default. Where a setting exists in several units,
milliseconds win over minutes over hours; a value set at run time replaces the file's in every unit.

**Listeners.** Without `listeners` the broker can be reached from its own machine only. A file that says
`listeners=PLAINTEXT://:9092`, where no host means all interfaces as in Kafka, needs `allow.insecure.listeners=true`
beside it: the broker refuses to start with a listener that other machines reach and that asks nobody who they are. With
the setting it starts, and the log warns each time. A listener on all interfaces that advertises nothing advertises the
name of the machine. Port 0 is any free port; it is printed. What listeners ask of clients, certificates and passwords,
is told in [security.md](security.md).

**ZooKeeper and KRaft.** With `zookeeper.connect` a broker is one of a cluster ([cluster.md](cluster.md)); without it,
it is alone. There is no quorum to join: of a KRaft configuration `node.id` is the broker's id, the listeners named in
`controller.listener.names` are left out, and the keys that only a quorum needs are named in one line of the log. A file
for a controller alone is refused.

**Durability.** With `acks.all.durability=disk` a record sent with acks=all counts as written once it is on the disk;
all appends that wait share one `fdatasync`. `page-cache` is what Kafka does: the operating system writes it later.

**Changes at run time.** Topic settings, and broker settings marked *per broker* or *cluster-wide*, take effect at once
and survive a restart. Loggers can be set to other levels until the process ends.
"""


QUOTAS = """\
## Client quotas

Set with `kafka-configs --alter --entity-type users|clients|ips` or AlterClientQuotas, they hold from the next request
on and survive a restart. Of a client's quotas the closest counts, in Kafka's order: user and client id, user and
default client, user, default user and client id, both defaults, default user, client id, default client. Whoever does
not say who they are is the user `ANONYMOUS`.

| quota | for | bounds |
|--|--|--|
| `producer_byte_rate` | users, clients | bytes per second of Produce requests |
| `consumer_byte_rate` | users, clients | bytes per second of records in Fetch answers |
| `request_percentage` | users, clients | percent of one thread's time; here one does everything, so 100 is all of it |
| `controller_mutation_rate` | users, clients | partitions created and deleted per second |
| `connection_creation_rate` | ips | new connections per second from one address; four of the broker's own machine go |

A client over its quota is answered at once, a fetch without records, and told in the answer how long to wait; its next
request is not looked at before. A change of topics over its quota is refused with THROTTLING_QUOTA_EXCEEDED where the
request's version knows that. A connection over its quota is closed after a while.
"""

LIMITS = """\
## Limits that Apache Kafka does not have

They keep one client, whoever it is, from keeping all others waiting or from filling the memory. Honest clients come
nowhere near them.

| what | limit | beyond it |
|--|--|--|
| structs, strings and numbers in the lists of one request | 50000 | the connection is closed |
| the same of LeaderAndIsr and UpdateMetadata, between brokers | 700000 | the connection is closed |
| the same of StopReplica, between brokers | 100000 | the connection is closed |
| partitions of one Produce request | 20000 | the connection is closed |
| bytes of one request without records | 8 MiB | the connection is closed |
| members that one LeaveGroup lets go | 20000 | INVALID_REQUEST |
| protocols of one JoinGroup, and bytes of their metadata | 1000, 1 MiB | INVALID_REQUEST |
| topics of one ConsumerGroupHeartbeat | 20000 | INVALID_REQUEST |
| settings in one DescribeConfigs answer | 200000 | POLICY_VIOLATION for each that is left |
| answers that describe groups, offsets or transactions | 32 MiB | COORDINATOR_LOAD_IN_PROGRESS for each that is left |
| groups made by one client id, one address; one more per 500 characters | 20000, 200000 | GROUP_MAX_SIZE_REACHED |
| bytes converted for one Fetch of an old version | 4 MiB | the rest comes with the next Fetch |
| half-received requests of more than 64 KB, together | `queued.max.request.bytes`, or 256 MiB | the next one waits |
| seconds without a byte of such a request, while others wait | 3 | the connection is closed |
| answers that a client does not take | 30 seconds | the connection is closed |
| series that one client pushes, and all together | 1000, 20000 | left out; the address with most loses a client |
| a compressed batch, opened | see `max.message.bytes` | MESSAGE_TOO_LARGE |

Work that takes long even so is done in short turns, or on a thread beside the one that serves everybody.
"""

_TIMES: tuple[tuple[int, str], ...] = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_SIZES: tuple[tuple[int, str], ...] = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def render() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    own = {key.name for key in OWN_KEYS}
    broker_count = sum(1 for name in BROKER_KEYS if name not in own)
    yield INTRODUCTION.format(broker_count=broker_count, topic_count=len(TOPIC_KEYS))
    yield "## Keys of our own\n"
    yield from _table(OWN_KEYS, BROKER_SENTENCES)
    yield "\n## Broker keys that have an effect\n"
    honoured = (key for name, key in BROKER_KEYS.items() if name in BROKER_SENTENCES and name not in own)
    yield from _table(honoured, BROKER_SENTENCES)
    yield "\n## Topic keys that have an effect\n"
    yield from _topic_table()
    yield f"\n{QUOTAS}"
    yield LIMITS
    yield "## Where a key is not what Apache Kafka has\n"
    yield from _deviations()
    yield "\n## Keys that are accepted without effect\n"
    yield from _without_effect()


def _table(keys: Iterable[ConfigKey], sentences: Mapping[str, str]) -> Iterator[str]:
    yield "| key | type | default | allowed | changes | what it does |"
    yield "|--|--|--|--|--|--|"
    for key in keys:
        mode = key.update_mode.value.replace("read-only", "at start").replace("-", " ", 1)
        cells = (f"`{key.name}`", key.type.name.lower(), _default(key), _allowed(key), mode, sentences[key.name])
        yield _row(cells)


def _topic_table() -> Iterator[str]:
    yield "| key | type | default | allowed | broker key | what it does |"
    yield "|--|--|--|--|--|--|"
    for name, sentence in TOPIC_SENTENCES.items():
        key = TOPIC_KEYS[name]
        broker = (
            ", ".join(f"`{synonym}`" for synonym in synonyms(TOPIC_SYNONYMS[name])) if name in TOPIC_SYNONYMS else ""
        )
        yield _row((f"`{name}`", key.type.name.lower(), _default(key), _allowed(key), broker, sentence))


def _deviations() -> Iterator[str]:
    yield "| key | what | here | why |"
    yield "|--|--|--|--|"
    for deviation in DEVIATIONS:
        what = {"validator": "allowed", "mode": "changes"}.get(deviation.what, deviation.what)
        value = f"`{deviation.ours}`" if deviation.ours else "not set"
        yield _row((f"`{deviation.key}`", what, value, deviation.reason))


def _without_effect() -> Iterator[str]:
    rest = {name for name in BROKER_KEYS if name not in BROKER_SENTENCES}
    areas = (
        ("Topic keys", [name for name in TOPIC_KEYS if name not in TOPIC_SENTENCES]),
        ("Logs", _named(LOG_KEYS)),
        ("Network and quotas", _named(NETWORK_KEYS)),
        ("Cluster", _named(CLUSTER_KEYS)),
        ("Groups, transactions, share groups", _named(COORDINATOR_KEYS)),
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
    """The value in the largest unit that divides it, if it is not in it already."""
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
