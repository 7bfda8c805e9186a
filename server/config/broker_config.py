"""The broker's configuration: a Kafka `server.properties`, checked and typed, with dynamic changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, cast

from ...common.properties import parse_properties
from .checks import ALL_LOG_DIRS, check_together, parse_overrides
from .keys.catalogue import BROKER_KEYS, TOPIC_SYNONYMS, UNIT_CHAINS, synonyms
from .keys.definition import ConfigValue, format_value
from .keys.validators import ConfigError
from .listeners import ListenerConfig, is_loopback, parse_addresses, parse_listeners, parse_protocol_map
from .message_format import heeds_message_format
from .settings import Settings
from .startup_warnings import startup_warnings

if TYPE_CHECKING:
    from .config_transformer import ConfigTransformer

_LISTENER_PREFIX = "listener.name."
_FALLBACK_BROKER_ID = 1
_METADATA_FILE = "metadata.sqlite"

_KRAFT_DEFAULTS = MappingProxyType(
    {
        "offsets.topic.num.partitions": "50",
        "offsets.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
        "share.coordinator.state.topic.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.replication.factor": "3",
    }
)

_DEFAULTS_BY_ATTRIBUTE = MappingProxyType({key.attribute: key.default for key in BROKER_KEYS.values()})


class BrokerConfig(Settings):
    """Every setting of one broker, as attributes in snake case: `config.log_segment_bytes`.

    One object for the life of a broker: settings that may change at run time are changed in place (by
    DynamicConfig), so read an attribute where it is used instead of keeping its value. Attributes hold the effective
    value (`log_retention_ms` is right even if the file has only `log.retention.hours`); `get` returns a key's own
    value. Later layers win: built-in default, file, cluster-wide dynamic value, this broker's dynamic value.

    Raises ConfigError for values that Kafka rejects, with its messages; unknown keys are kept and listed in `notices`.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.static: Mapping[str, str] = MappingProxyType(_with_derived(properties or {}))
        self.cluster_overrides: Mapping[str, str] = MappingProxyType({})
        self.broker_overrides: Mapping[str, str] = MappingProxyType({})
        """The dynamic layers as they are stored, with variables."""
        self.transformer: ConfigTransformer | None = None
        """The config providers of the file, which replace variables in dynamic values, too (KIP-421)."""
        self._dynamic_layers: tuple[Mapping[str, str], ...] = ()
        """The dynamic layers without variables, that of this broker first."""
        self._values: dict[str, ConfigValue] = {}
        self._of_listeners: dict[tuple[str, str], ConfigValue] = {}
        """A cache for connections, by listener and key. A new dict replaces an outdated one, because another thread may
        be about to fill the old one.
        """
        self.__dict__.update(_DEFAULTS_BY_ATTRIBUTE)
        values = self._parse(self.static)
        check_together(self._typed(values))
        self.is_kraft = self._checked_roles(values.get("process.roles")) == ("broker",)
        """Whether this broker belongs to a KRaft cluster. With both roles it is a standalone broker."""
        self._replace_values(values)
        self._check_open_listeners()
        self._check_early_start_listeners()
        self.startup_warnings: tuple[str, ...] = startup_warnings(
            self.static, [one for one in self.listeners if not (one.is_loopback or self.authenticates(one))]
        )

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], environment: Mapping[str, str] = MappingProxyType({})
    ) -> Self:
        """Return the configuration that a properties file with these keys and values describes.

        `environment` has the variables for Kafka's EnvVarConfigProvider. Raises ConfigError.
        """
        if "config.providers" not in properties:
            return cls(properties)
        # Imported only if it is used: few files have variables.
        from .config_transformer import new_config_transformer

        transformer = new_config_transformer(properties, environment)
        config = cls(transformer.transform(properties))
        config.transformer = transformer
        return config

    @classmethod
    def from_file(cls, path: str | Path, environment: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Read a `server.properties`. Raises OSError, PropertiesError, ConfigError."""
        return cls.from_properties(parse_properties(Path(path).read_text(encoding="iso-8859-1")), environment)

    def get(self, name: str) -> ConfigValue:
        """Typed value of one key, its default if it is not set; of an unknown key the text, or None if not set."""
        if name in self._values:
            return self._values[name]
        key = BROKER_KEYS.get(name)
        return key.default if key is not None else self.static.get(name)

    def listener_value(self, listener: str, name: str) -> ConfigValue:
        """Value of a key that `listener.name.<listener>.<key>` may set for one listener alone."""
        known = self._of_listeners
        if (listener, name) in known:
            return known[listener, name]
        text = self.free_value(f"{_LISTENER_PREFIX}{listener.lower()}.{name}")
        value = known[listener, name] = self.get(name) if text is None else BROKER_KEYS[name].parse(text)
        return value

    def free_value(self, name: str) -> str | None:
        """Return the text of a key outside Kafka's list, such as a listener's JAAS strings."""
        text = self.dynamic_value(name)
        return self.static.get(name) if text is None else text

    def dynamic_value(self, name: str) -> str | None:
        """Return the text of a dynamic setting, without variables; None if the key is set in no dynamic layer."""
        for layer in self._dynamic_layers:
            if name in layer:
                return layer[name]
        return None

    def resolve(self, layer: Mapping[str, str]) -> Mapping[str, str]:
        """Return a dynamic layer with the values of its variables. Raises ConfigError."""
        return layer if self.transformer is None else self.transformer.transform(layer)

    def is_cordoned(self, log_dir: str) -> bool:
        """Return whether a log directory, with its path as in `log_dirs`, gets no new partitions (KIP-1066)."""
        cordoned = self.cordoned_log_dirs or ()
        return ALL_LOG_DIRS in cordoned or log_dir in {str(Path(one).absolute()) for one in cordoned}

    @property
    def are_all_log_dirs_cordoned(self) -> bool:
        """Whether no log directory gets new partitions."""
        return all(map(self.is_cordoned, self.log_dirs))

    def authenticates(self, listener: ListenerConfig) -> bool:
        """Return whether every client of the listener is authenticated."""
        if listener.security_protocol == "SSL":
            return self.listener_value(listener.name, "ssl.client.auth") == "required"
        return listener.security_protocol.startswith("SASL_")

    def creation_rate(self, listener: str) -> int | None:
        """Return the limit of new connections per second of one listener; None if it has none (KIP-402)."""
        name = "max.connection.creation.rate"
        text = self.free_value(f"{_LISTENER_PREFIX}{listener.lower()}.{name}")
        return None if text is None else cast(int, BROKER_KEYS[name].parse(text))

    def connections_allowed(self, host: str) -> int | None:
        """Return the limit for connections from one address; None for no limit, the default for this machine."""
        limit = self.max_connections_per_ip_overrides.get(host)
        if limit is None and not is_loopback(host):
            limit = self.max_connections_per_ip
        return limit

    def listener_connections_allowed(self, listener: str) -> int:
        """Return the limit for connections to one listener (KIP-402)."""
        limit = self.listener_value(listener, "max.connections")
        assert isinstance(limit, int)
        return limit

    @property
    def inter_broker_listener(self) -> ListenerConfig:
        """The listener where brokers reach each other. Raises ConfigError if there is none."""
        key, name = "inter.broker.listener.name", self.inter_broker_listener_name
        if name and "security.inter.broker.protocol" in self.static:
            raise ConfigError(key, name, "cannot be combined with security.inter.broker.protocol")
        return self._listener_named(key, name or self.security_inter_broker_protocol)

    @property
    def control_plane_listener(self) -> ListenerConfig | None:
        """The listener for the controller's requests; None if brokers use one listener for everything.

        Raises ConfigError.
        """
        key, name = "control.plane.listener.name", self.control_plane_listener_name
        if not name:
            return None
        found = self._listener_named(key, name)
        if found.name == self.inter_broker_listener.name:
            raise ConfigError(key, name, "must differ from inter.broker.listener.name")
        return found

    def _listener_named(self, key: str, name: str) -> ListenerConfig:
        found = next((one for one in self.listeners if one.name == name.upper()), None)
        if found is None:
            reason = f"it must be the name of a listener: {', '.join(one.name for one in self.listeners)}"
            raise ConfigError(key, name, reason)
        return found

    def effective_properties(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
        """Raw values that would hold with these dynamic layers over the file, variables replaced. Raises ConfigError.

        A dynamic value replaces the same setting in other units: `log.retention.ms` replaces a `log.retention.hours`
        of the file regardless of the precedence of units (Kafka: DynamicBrokerConfig).
        """
        return self._merged(self.resolve(cluster), self.resolve(broker))

    def _merged(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
        merged = dict(self.static)
        for layer in (cluster, broker):
            for name in layer:
                for synonym in synonyms(name):
                    merged.pop(synonym, None)
            merged.update(layer)
        return merged

    def check_overrides(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Raise ConfigError if the broker could not run with these dynamic layers."""
        values = self._parse(self.effective_properties(cluster, broker))
        check_together(self._typed(values))

    def apply_overrides(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> frozenset[str]:
        """Replace both dynamic layers and return the keys whose value is another now.

        Raises ConfigError, and then nothing has changed.
        """
        layers = self.resolve(broker), self.resolve(cluster)
        values = self._parse(self._merged(layers[1], layers[0]))
        check_together(self._typed(values))
        before = self._values
        self._dynamic_layers = layers
        self.cluster_overrides = MappingProxyType(dict(cluster))
        self.broker_overrides = MappingProxyType(dict(broker))
        self._replace_values(values)
        return frozenset(
            name
            for name in before.keys() | values.keys()
            if self._or_default(before, name) != self._or_default(values, name)
        )

    def with_overrides(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """Return a copy with these dynamic layers. Raises ConfigError."""
        candidate = copy(self)
        candidate.apply_overrides(cluster, broker)
        return candidate

    def settle(self, name: str, raw: str) -> None:
        """Store the value that the machine determined for a setting."""
        self.static = MappingProxyType({**self.static, name: raw})
        self._replace_values({**self._values, name: BROKER_KEYS[name].parse(raw)})

    @property
    def heeds_message_format(self) -> bool:
        """Whether `message.format.version`, of a topic or of all, decides how records are stored."""
        return heeds_message_format(self.inter_broker_protocol_version)

    def topic_defaults(self) -> dict[str, str]:
        """Return the text of every topic key with a broker key as its default, for topics without own settings."""
        defaults = {}
        for topic_key, broker_key in TOPIC_SYNONYMS.items():
            value = self._in_first_unit(broker_key) if broker_key in UNIT_CHAINS else self.get(broker_key)
            text = format_value(BROKER_KEYS[broker_key].type, value)
            if text is not None:
                defaults[topic_key] = text
        return defaults

    @staticmethod
    def _parse(properties: Mapping[str, str]) -> dict[str, ConfigValue]:
        return {name: BROKER_KEYS[name].parse(raw) for name, raw in properties.items() if name in BROKER_KEYS}

    @staticmethod
    def _or_default(values: Mapping[str, ConfigValue], name: str) -> ConfigValue:
        return values[name] if name in values else BROKER_KEYS[name].default

    @classmethod
    def _typed(cls, values: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
        return {name: cls._or_default(values, name) for name in BROKER_KEYS}

    def _replace_values(self, values: dict[str, ConfigValue]) -> None:
        for name in self._values.keys() - values.keys():
            setattr(self, BROKER_KEYS[name].attribute, BROKER_KEYS[name].default)
        self._values = values
        self._of_listeners = {}
        for name, value in values.items():
            setattr(self, BROKER_KEYS[name].attribute, value)
        self._derive()

    def _derive(self) -> None:
        """Set the attributes whose value follows from several keys."""
        for name in UNIT_CHAINS:
            setattr(self, BROKER_KEYS[name].attribute, self._in_first_unit(name))
        self.listeners = self._parse_listeners()
        self.coordinator_addresses = self._parse_coordinator_listeners()
        overrides = str(self.get("max.connections.per.ip.overrides"))
        self.max_connections_per_ip_overrides: Mapping[str, int] = parse_overrides(overrides)
        self.metrics_addresses = parse_addresses("metrics.listeners", self.metrics_listeners or "")
        endpoint = self.metrics_otlp_endpoint
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ConfigError("metrics.otlp.endpoint", endpoint, "must be a URL that begins with http:// or https://")
        self.is_measured = bool(self.metrics_addresses or endpoint)
        """Whether metrics are exported or served."""
        self.log_dirs = self._parse_log_dirs()
        self.configured_broker_id = self._parse_broker_id()
        self.broker_id = _FALLBACK_BROKER_ID if self.configured_broker_id is None else self.configured_broker_id
        store = self.get("metadata.store.path")
        self.metadata_store_path = str(store) if store else f"{self.log_dirs[0].rstrip('/')}/{_METADATA_FILE}"

    def _in_first_unit(self, name: str) -> int:
        """Value of a setting that several keys give in several units, in the unit of the first: milliseconds."""
        chain = UNIT_CHAINS[name]
        for member, factor in chain:
            value = self._values.get(member)
            if value is not None:
                assert isinstance(value, int)
                return value if value < 0 else value * factor
        member, factor = chain[-1]
        default = BROKER_KEYS[member].default
        assert isinstance(default, int)
        return default * factor

    def _parse_listeners(self) -> list[ListenerConfig]:
        protocols = parse_protocol_map(str(self.get("listener.security.protocol.map")))
        advertised = self.get("advertised.listeners")
        return parse_listeners(
            _joined(self.get("listeners")),
            None if advertised is None else _joined(advertised),
            protocols,
            left_out=self._controller_listeners(),
        )

    @staticmethod
    def _checked_roles(roles: ConfigValue) -> tuple[str, ...]:
        found = cast("tuple[str, ...]", roles or ())
        if found and "broker" not in found:
            reason = "a controller of a KRaft quorum is not supported. Add the role broker"
            raise ConfigError("process.roles", roles, reason)
        return found

    def _check_open_listeners(self) -> None:
        for listener in self.listeners:
            self.creation_rate(listener.name)
            if not (self.allow_insecure_listeners or listener.is_loopback or self.authenticates(listener)):
                reason = (
                    f"listener {listener.name} is reachable from other machines without authentication. Bind it to "
                    "127.0.0.1, authenticate its clients (SASL, or SSL with ssl.client.auth=required), or set "
                    "allow.insecure.listeners=true"
                )
                raise ConfigError("listeners", self.get("listeners"), reason)

    def _check_early_start_listeners(self) -> None:
        """Raise ConfigError for an unknown listener, as Kafka. The names have no other effect on a broker.

        A broker accepts clients on all listeners after it has the ACLs of the metadata, as Kafka's with the
        StandardAuthorizer: BrokerServer enables the processing of requests after it was unfenced.
        """
        key = "early.start.listeners"
        names = self.early_start_listeners
        known = {one.name for one in self.listeners} | set(self._controller_listeners())
        for name in names or ():
            if name.upper() not in known:
                reason = f"{name} is not contained in listeners or controller.listener.names"
                raise ConfigError(key, ",".join(names or ()), reason)

    def _parse_coordinator_listeners(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports at which the metadata store is served."""
        key = "coordinator.listeners"
        addresses = parse_addresses(key, self.coordinator_listeners or "")
        for host, _ in addresses:
            if not (self.coordinator_allow_remote or is_loopback(host)):
                reason = f"{host or 'every address'} is open to other machines and coordinator.allow.remote is false"
                raise ConfigError(key, self.get(key), reason)
        if addresses and self.get("zookeeper.connect"):
            raise ConfigError(
                key, self.get(key), "a broker with zookeeper.connect has no metadata store of its own to serve"
            )
        return addresses

    def _controller_listeners(self) -> Collection[str]:
        names = cast("tuple[str, ...] | None", self.get("controller.listener.names"))
        return {name.upper() for name in names or ()}

    def _parse_log_dirs(self) -> list[str]:
        key = "log.dirs" if self.get("log.dirs") else "log.dir"
        directories = cast("tuple[str, ...]", self.get(key))
        # Clients receive these paths from DescribeLogDirs and send them in AlterReplicaLogDirs, so they must not be
        # relative. Links are kept, as in Kafka's File.getAbsolutePath.
        return [str(Path(directory).absolute()) for directory in directories]

    def _parse_broker_id(self) -> int | None:
        ids = {number for key in ("broker.id", "node.id") if isinstance(number := self._values.get(key), int)}
        ids.discard(-1)
        if len(ids) > 1:
            raise ConfigError("node.id", self.get("node.id"), f"must equal broker.id, which is {self.get('broker.id')}")
        return ids.pop() if ids else None


def _joined(value: ConfigValue) -> str:
    return ",".join(cast("tuple[str, ...]", value))


def _with_derived(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties, and the properties that follow from them.

    The broker's id has its older and its newer name, as in Kafka. A broker of a KRaft cluster, whose other brokers may
    be Kafka's, creates the internal topics with Kafka's defaults.
    """
    derived = dict(properties)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in properties:
            derived.setdefault(other, properties[name])
    if properties.get("process.roles", "").strip() == "broker":
        derived = {**_KRAFT_DEFAULTS, **derived}
    return derived
