"""The client of a connection and its authentication (Kafka's RequestChannel.Session)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from ...protocol.sequence_gap_guard import SequenceGapGuard
    from ..config.listeners import ListenerConfig
    from .sasl_server_authenticator import SaslServerAuthenticator


class KafkaPrincipal(NamedTuple):
    """The identity of a client in ACLs and quotas (Kafka's KafkaPrincipal)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = KafkaPrincipal("User", "ANONYMOUS")
"""A client without authentication."""

UNKNOWN_SOFTWARE = ("unknown", "unknown")


@dataclass(slots=True)
class Session:
    """The session of one connection. An authentication changes its principal. Used on the loop's thread only."""

    client_host: str
    """The client's address, "" for a transport without addresses."""
    listener: ListenerConfig
    """The listener of the connection; responses contain its advertised addresses."""
    principal: KafkaPrincipal = ANONYMOUS
    is_by_token: bool = False
    """Whether the client authenticated with a delegation token."""
    authentication: SaslServerAuthenticator | None = None
    """The state of the authentication on a SASL listener; None on others."""
    client_port: int = 0
    software: tuple[str, str] = UNKNOWN_SOFTWARE
    """Name and version of the client's software, from its ApiVersions request (KIP-511)."""
    telemetry_client: UUID | None = None
    """The client instance id of the last GetTelemetrySubscriptions response on this connection (KIP-714)."""
    sequence_gap_guard: SequenceGapGuard | None = None
    """The guard of its produce requests, created for the first one."""
