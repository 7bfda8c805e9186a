"""Who is at the other end of a connection, and by which door they came in (Kafka's RequestChannel.Session)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from ...protocol.refused_before import RefusedBefore
    from ..config.listeners import ListenerConfig
    from .authentication import SaslAuthentication


class KafkaPrincipal(NamedTuple):
    """Who somebody is, as ACLs and quotas name them."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = KafkaPrincipal("User", "ANONYMOUS")
"""Whoever did not say who they are."""

UNKNOWN_SOFTWARE = ("unknown", "unknown")


@dataclass(slots=True)
class Session:
    """One connection's; an authentication changes its principal. Loop-thread only."""

    client_host: str
    """The client's address, "" where the transport has none."""
    listener: ListenerConfig
    """Its advertised address is the one to tell this client."""
    principal: KafkaPrincipal = ANONYMOUS
    is_by_token: bool = False
    """Whether the client was let in by a delegation token."""
    authentication: SaslAuthentication | None = None
    """How far that has come on a listener that asks for SASL; None on others."""
    client_port: int = 0
    software: tuple[str, str] = UNKNOWN_SOFTWARE
    """Name and version of the client's software, as it says itself (KIP-511)."""
    telemetry_client: UUID | None = None
    """As whom the client was told which metrics are wanted of it: on one connection there is one at a time."""
    refused_before: RefusedBefore | None = None
    """Of its produce requests, once there was one."""
