"""The port that decides who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...protocol.acls import AclOperation, AclResourceType
    from .session import Session


class Authorizer(Protocol):
    """Who may do what (Kafka's Authorizer, KIP-504). Loop-thread only; asked for every resource of a request."""

    def authorize(self, session: Session, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Whether the client of the session may do that to the resource. Must not wait."""

    def authorize_some(self, session: Session, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether there may be any resource of the type to which the client may do that (KIP-679). Must not wait."""
