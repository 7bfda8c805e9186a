"""Who is at the other end of a connection, and by which door they came in (Kafka's RequestChannel.Session)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
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
