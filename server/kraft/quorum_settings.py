"""The settings of a broker for the controllers of its KRaft cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.keys.validators import ConfigError
from ..config.listeners import ListenerConfig, parse_protocol_map
from ..raft.broker_lifecycle_manager import LifecycleConfig
from ..raft.kafka_raft_log import MetadataLogConfig
from ..raft.observer_state import QuorumConfig, parse_bootstrap_servers

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig


def quorum_config(config: BrokerConfig) -> QuorumConfig:
    """Return the settings of the observer. Raises ConfigError without the addresses of controllers."""
    for key, addresses in (
        ("controller.quorum.bootstrap.servers", config.controller_quorum_bootstrap_servers),
        ("controller.quorum.voters", config.controller_quorum_voters),
    ):
        if addresses:
            try:
                servers = parse_bootstrap_servers(addresses)
            except ValueError as error:
                raise ConfigError(key, ",".join(addresses), str(error)) from None
            return QuorumConfig(
                servers,
                listener=controller_listener(config).name,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
                fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
                fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
            )
    reason = "a broker of a KRaft cluster requires the addresses of its controllers"
    raise ConfigError("controller.quorum.bootstrap.servers", "", reason)


def controller_listener(config: BrokerConfig) -> ListenerConfig:
    """Return the listener on which controllers are reached: its name and security protocol. Raises ConfigError."""
    key = "controller.listener.names"
    names = config.controller_listener_names
    if not names:
        raise ConfigError(key, "", "a broker of a KRaft cluster requires the name of the listener of its controllers")
    name = names[0].upper()
    protocols = parse_protocol_map(str(config.get("listener.security.protocol.map")))
    # Without a map of its own a file may name the listener CONTROLLER, which then is PLAINTEXT, as in Kafka.
    is_mapped = "listener.security.protocol.map" in config.static
    protocol = protocols.get(name) if is_mapped else protocols.get(name, "PLAINTEXT")
    if protocol is None:
        raise ConfigError(key, names[0], "listener.security.protocol.map has no security protocol of it")
    return ListenerConfig(name, "", 0, protocol)


def metadata_log_config(config: BrokerConfig) -> MetadataLogConfig:
    """Return the settings of the replica of the metadata log."""
    return MetadataLogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
    )


def metadata_log_dir(config: BrokerConfig) -> str:
    """Return the log directory with the replica of the metadata log. Raises ConfigError."""
    directory = config.metadata_log_dir
    if directory is None:
        return config.log_dirs[0]
    if directory not in config.log_dirs:
        raise ConfigError("metadata.log.dir", directory, "Barnabas requires one of the directories in log.dirs")
    return directory


def lifecycle_config(config: BrokerConfig) -> LifecycleConfig:
    """Return the times of registrations and heartbeats."""
    return LifecycleConfig(
        heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
        initial_registration_timeout_ms=config.initial_broker_registration_timeout_ms,
        directory_failure_timeout_ms=config.log_dir_failure_timeout_ms,
    )


def session_timeout_ms(config: BrokerConfig) -> int:
    """Return the time without a heartbeat after which the controller fences the broker."""
    return config.broker_session_timeout_ms
