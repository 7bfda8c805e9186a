"""The settings of a broker in a container, from variables with the names that the images of Kafka give them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ....common.properties import parse_properties
from ..start import ENVIRONMENT, environment_properties
from .jaas import read_jaas_section
from .sasl_users import VARIABLES as SASL_VARIABLES
from .sasl_users import sasl_users

if TYPE_CHECKING:
    from .scram_argument import ScramLogin

SECRETS = "/etc/kafka/secrets"
DEFAULT_DATA = "/var/lib/barnabas"
DATA_VOLUMES = {"/var/lib/kafka/data": "/var/lib/kafka/data", "/bitnami/kafka": "/bitnami/kafka/data"}
"""Mount points at which the images of Kafka keep their data, and the log directory in each."""
HEALTH_PORT = "9644"
CONSOLE_ADDRESS = "0.0.0.0:8080"
KAFKA, BITNAMI = "KAFKA_", "KAFKA_CFG_"
CLUSTER_IDS = ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID")

NO_SETTINGS = frozenset(
    {
        "KAFKA_BASE_DIR",
        "KAFKA_CLUSTER_ID",
        "KAFKA_CONF_DIR",
        "KAFKA_DAEMON_GROUP",
        "KAFKA_DAEMON_USER",
        "KAFKA_DATA_DIR",
        "KAFKA_DEBUG",
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_EXTRA_FLAGS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPT",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_KRAFT_CLUSTER_ID",
        "KAFKA_LOG4J_CMD",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_MOUNTED_CONF_DIR",
        "KAFKA_REST_BOOTSTRAP_SERVERS",
        "KAFKA_SKIP_KRAFT_STORAGE_INIT",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
        "KAFKA_VOLUME_DIR",
    }
)
"""Variables of a Java process, or of a start script, that are not settings and need no warning."""
OWN = "BARNABAS_"
OWN_VARIABLES = frozenset(
    {
        "BARNABAS_BOOTSTRAP_SERVER",
        "BARNABAS_CERTS_PASSWORD",
        "BARNABAS_COMMAND_CONFIG",
        "BARNABAS_CONSOLE",
        "BARNABAS_CONSOLE_TOKEN",
        "BARNABAS_CONTAINER_ROOT",
        "BARNABAS_LOG_FORMAT",
        "BARNABAS_LOG_LEVEL",
        "BARNABAS_SCHEMA_REGISTRY",
        "BARNABAS_SCHEMA_REGISTRY_LISTEN",
    }
)
"""Variables of the commands in the image that are not settings of a broker."""
STORES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
}
CREDENTIALS = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}
"""Files in the folder of secrets that contain one password each."""
OPTIONS = "KAFKA_OPTS"
_LOGIN_CONFIG = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:(\d+))?")
_ADDRESS = re.compile(r"([^:/,\s]+)://(\[[^\]]*\]|[^:,]*):(\d+)")


@dataclass(slots=True)
class ContainerHost:
    """The container as the translation sees it; tests pass their own."""

    read_text: Callable[[str], str | None]
    """The text of a file, None if there is none. Raises OSError."""
    is_mount: Callable[[str], bool]
    answers: Callable[[str, int], bool]
    """Whether a server accepts connections at this host and port, perhaps after the start of a coordinator that the
    container runs."""


@dataclass(slots=True)
class ContainerSettings:
    """The settings of a broker and of its services, from the variables of a container."""

    properties: dict[str, str]
    cluster_id: str | None = None
    console: str | None = None
    schema_registry: str | None = None
    is_compatible: bool = True
    """Whether the container stands for one of Kafka's images, with the lines of its log."""
    logins: list[ScramLogin] = field(default_factory=list)
    """Users to store in new log directories."""
    client: dict[str, str] = field(default_factory=dict)
    """Settings of a client in the container, for the tools of bitnami's image."""
    warnings: list[str] = field(default_factory=list)


def container_settings(
    environment: Mapping[str, str], base: str, machine: ContainerHost, *, base_name: str = "server.properties"
) -> ContainerSettings:
    """Translate the variables of a container; `base` is the text of the properties file that they override.

    Barnabas's own variables, `BARNABAS_CONFIG_`, override all others. Raises OSError and ValueError with the name of
    the variable.
    """
    try:
        found = ContainerSettings(parse_properties(base))
    except ValueError as error:
        raise ValueError(f"{base_name}: {error}") from None
    if (
        found.properties.get("log.dirs") == DEFAULT_DATA
    ):  # of the image's own file: a volume that is mounted is preferred
        found.properties["log.dirs"] = _log_dir(machine)
    found.warnings += _unknown_own(environment)
    given = dict(_kafka_properties(environment, found.warnings))
    found.properties.update(given)
    for key, value in _secrets(environment, machine):
        found.properties.setdefault(key, value)
    found.cluster_id = _cluster_id(environment)
    _derive_listeners(found.properties, given, environment)
    _drop_absent_zookeeper(found, machine)
    _add_jaas(environment, found, machine)
    _add_users(environment, found, machine)
    found.properties.update(environment_properties(environment))
    for name, value in (
        ("allow.insecure.listeners", "true"),  # the ports that a container publishes are the border
        ("health.port", HEALTH_PORT),
    ):
        found.properties.setdefault(name, value)
    if not {"log.dirs", "log.dir"} & found.properties.keys():
        found.properties["log.dirs"] = _log_dir(machine)
    found.console = _address(environment.get("BARNABAS_CONSOLE", ""), CONSOLE_ADDRESS)
    if found.console is not None:
        found.properties.setdefault("metrics.listeners", "127.0.0.1:0")
    found.schema_registry = _address(environment.get("BARNABAS_SCHEMA_REGISTRY_LISTEN", ""), "0.0.0.0:8081")
    return found


def has_kafka_variables(environment: Mapping[str, str]) -> bool:
    """Return whether a variable is a setting of a broker with a name of Kafka's images."""
    return any(_is_setting(name) or name in CLUSTER_IDS for name in environment)


def _is_setting(name: str) -> bool:
    return (
        name.startswith(KAFKA)
        and name not in NO_SETTINGS
        and name not in STORES
        and name not in CREDENTIALS
        and name not in SASL_VARIABLES
        and name != OPTIONS
    )


def _kafka_properties(environment: Mapping[str, str], warnings: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the settings. A warning names unknown settings, which are not passed on. KAFKA_CFG_ overrides KAFKA_."""
    is_unknown: Any = import_module("barnabas.server.config.startup_warnings").is_unknown
    unknown = []
    for name, value in sorted(environment.items(), key=lambda item: item[0].startswith(BITNAMI)):
        if not _is_setting(name):
            continue
        prefix = BITNAMI if name.startswith(BITNAMI) else KAFKA
        ((key, text),) = environment_properties({f"{ENVIRONMENT}{name.removeprefix(prefix)}": value}).items()
        if is_unknown(key):
            unknown.append(f"{name} ({key})")
        elif text or prefix == KAFKA:
            yield key, text
    if unknown:
        warnings.append(f"Variables without a known setting, not passed on: {', '.join(sorted(unknown))}")


def _unknown_own(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning if a variable of Barnabas has no meaning, such as a setting without the prefix of settings."""
    own = {name for name in environment if name.startswith(OWN) and not name.startswith(ENVIRONMENT)}
    unknown = own - OWN_VARIABLES
    if unknown:
        yield f"Unknown variables, ignored: {', '.join(sorted(unknown))}. Names of settings begin with {ENVIRONMENT}"


def _cluster_id(environment: Mapping[str, str]) -> str | None:
    for name in CLUSTER_IDS:
        value = environment.get(name, "").strip()
        if value:
            if not re.fullmatch(r"[!-~]{1,249}", value):
                raise ValueError(f"{name}={value!r}: expected printable characters without blanks")
            return value
    return None


def _derive_listeners(properties: dict[str, str], given: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Set the listeners that the images of Kafka derive.

    With advertised addresses only, the listeners have the same ports on all interfaces. With neither, clients on the
    host reach the broker at localhost:9092; with KAFKA_CFG_ variables, other containers reach it at its host name.
    """
    if "listeners" in properties:
        return
    advertised = properties.get("advertised.listeners", "").strip()
    if advertised:
        addresses = _ADDRESS.findall(advertised)
        if len(addresses) != len([one for one in advertised.split(",") if one.strip()]):
            raise ValueError(f"KAFKA_ADVERTISED_LISTENERS={advertised}: expected NAME://HOST:PORT, separated by commas")
        properties["listeners"] = ",".join(f"{name}://0.0.0.0:{port}" for name, _, port in addresses)
        return
    name = given.get("inter.broker.listener.name", "PLAINTEXT")
    if any(variable.startswith(BITNAMI) for variable in environment):
        properties["listeners"] = f"{name}://:9092"
    else:
        properties["listeners"] = f"{name}://0.0.0.0:9092"
        properties["advertised.listeners"] = f"{name}://localhost:9092"


def _drop_absent_zookeeper(found: ContainerSettings, machine: ContainerHost) -> None:
    """Remove an ensemble on the loopback interface that does not answer: test libraries name one without need."""
    connect = found.properties.get("zookeeper.connect", "")
    addresses = [one.strip() for one in connect.partition("/")[0].split(",") if one.strip()]
    matches = [_LOOPBACK.fullmatch(address) for address in addresses]
    if not matches or not all(matches):
        return
    if not any(one and machine.answers(one[1].strip("[]"), int(one[4] or 2181)) for one in matches):
        del found.properties["zookeeper.connect"]
        found.warnings.append(
            f"KAFKA_ZOOKEEPER_CONNECT={connect}: no server answers, the broker is a standalone broker"
        )


def _secrets(environment: Mapping[str, str], machine: ContainerHost) -> Iterator[tuple[str, str]]:
    """Yield locations and passwords of the key stores in the folder of secrets. Raises ValueError."""
    for variable, key in STORES.items():
        if name := environment.get(variable):
            yield key, f"{SECRETS}/{name}"
            if name.endswith((".pfx", ".p12", ".pem")):
                yield key.replace("location", "type"), "PEM" if name.endswith(".pem") else "PKCS12"
    for variable, key in CREDENTIALS.items():
        if name := environment.get(variable):
            text = machine.read_text(f"{SECRETS}/{name}")
            if text is None:
                raise ValueError(f"{variable}={name}: no file {SECRETS}/{name}")
            yield key, text.strip()


def _add_jaas(environment: Mapping[str, str], found: ContainerSettings, machine: ContainerHost) -> None:
    """Take the users of `-Djava.security.auth.login.config=FILE`. Raises ValueError for a file that is not there."""
    options = environment.get(OPTIONS, "")
    match = _LOGIN_CONFIG.search(options)
    if match is None:
        return
    path = match[1].strip("\"'")
    text = machine.read_text(path)
    if text is None:
        raise ValueError(f"{OPTIONS}: no file {path}")
    entries = read_jaas_section(text, "KafkaServer")
    if not entries:
        found.warnings.append(f"{OPTIONS}: {path} has no section KafkaServer with a login module for SASL")
    for name, protocol in _protocols(found.properties):
        if protocol.upper().startswith("SASL"):
            for mechanism, entry in entries.items():
                key = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
                found.properties.setdefault(key, entry)


def _add_users(environment: Mapping[str, str], found: ContainerSettings, machine: ContainerHost) -> None:
    """Take the users of bitnami's variables, whose settings the properties override."""
    is_bitnami = any(variable.startswith(BITNAMI) for variable in environment)
    listeners = list(_protocols(found.properties))
    users = sasl_users(environment, found.properties, listeners, machine.read_text, are_required=is_bitnami)
    found.properties = {**users.properties, **found.properties}
    found.logins, found.client = users.logins, users.client
    found.warnings += users.warnings


def _protocols(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield listeners and their security protocols."""
    pairs = (one.partition(":") for one in properties.get("listener.security.protocol.map", "").split(","))
    mapped = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    for name, _, _ in _ADDRESS.findall(properties.get("listeners", "")):
        yield name, mapped.get(name, name)


def _log_dir(machine: ContainerHost) -> str:
    """Return the log directory: a volume where an image of Kafka has one, if it is mounted."""
    for volume, log_dir in DATA_VOLUMES.items():
        if machine.is_mount(volume) or machine.is_mount(log_dir) or machine.is_mount(volume.rpartition("/")[0]):
            return log_dir
    return DEFAULT_DATA


def _address(value: str, default: str) -> str | None:
    """Return the address of a service that a variable switches on: 1, or HOST:PORT."""
    lowered = value.strip().lower()
    if lowered in ("", "0", "false", "no", "off"):
        return None
    return default if lowered in ("1", "true", "yes", "on") else value.strip()
