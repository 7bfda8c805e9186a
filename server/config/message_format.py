"""The rule of Kafka 3 for `message.format.version` (KIP-724)."""

from __future__ import annotations

from ...storage.log_config import magic_of

INTER_BROKER_PROTOCOL = "inter.broker.protocol.version"
_SINCE_V2_ONLY = (3, 0)
_LAST_BEFORE = "3.0-IV0"


def heeds_message_format(inter_broker_protocol_version: str) -> bool:
    """Whether `message.format.version` decides how records are stored: below version 3.0 of the protocol."""
    release = inter_broker_protocol_version.partition("-")[0].split(".")
    return tuple(map(int, release[:2])) < _SINCE_V2_ONLY or inter_broker_protocol_version == _LAST_BEFORE


def needed_protocol(inter_broker_protocol_version: str, message_format_version: str) -> str | None:
    """Return the first release whose brokers read this format, if the protocol is of an older release."""
    magic = magic_of(message_format_version)
    return ("0.8.0", "0.10.0", "0.11.0")[magic] if magic_of(inter_broker_protocol_version) < magic else None


def ignored_format(key: str, value: str, of: str = "") -> str:
    """Return a log line for an ignored message format."""
    return f"{key}={value}{of} is ignored: it counts only while {INTER_BROKER_PROTOCOL} is below 3.0"
