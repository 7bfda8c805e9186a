"""The authorizer of a broker: its interface, and the implementation that `authorizer.class.name` selects.

The class names of Kafka's authorizers select `AclAuthorizer`. Any other name is looked up among the entry points
`barnabas.authorizers` of installed packages: the entry point is called with the settings of the broker and returns an
`Authorizer`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from ..config.keys.validators import ConfigError
from .acl_authorizer import AclAuthorizer

if TYPE_CHECKING:
    from ...protocol.acls import AclOperation, AclResourceType
    from ..config.broker_config import BrokerConfig
    from ..metadata.acl_store import AclStore
    from .session import Session

KEY = "authorizer.class.name"
KAFKA_AUTHORIZERS = (
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
ENTRY_POINTS = "barnabas.authorizers"


class Authorizer(Protocol):
    """The interface of authorizers (Kafka's Authorizer, KIP-504), called on the loop's thread for each resource.

    A Protocol because packages of others implement it.
    """

    def authorize(self, session: Session, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Return whether the client of the session may do the operation on the resource. Must not block."""

    def authorize_some(self, session: Session, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the client may do the operation on any resource of the type (KIP-679). Must not block."""


def create_authorizer(
    config: BrokerConfig, store: AclStore | None, loop: asyncio.AbstractEventLoop
) -> Authorizer | None:
    """Return the configured authorizer, None without one. Raises ConfigError if it is not available.

    `store` is None in a KRaft cluster.
    """
    name = config.authorizer_class_name
    if not name:
        return None
    if name in KAFKA_AUTHORIZERS:
        allow = str(config.get("allow.everyone.if.no.acl.found") or "false").strip().lower()
        if allow not in ("true", "false"):
            raise ConfigError("allow.everyone.if.no.acl.found", allow, "Expected value to be either true or false")
        return AclAuthorizer(store, loop, super_users=super_users(config), allow_if_no_acl=allow == "true")
    from importlib.metadata import entry_points  # many modules that a broker without it need not load

    for entry_point in entry_points(group=ENTRY_POINTS, name=name):
        return cast("Authorizer", entry_point.load()(dict(config.static)))
    raise ConfigError(KEY, name, f"no installed package has an entry point of that name in {ENTRY_POINTS}")


def super_users(config: BrokerConfig) -> frozenset[str]:
    """Return the principals for which every operation is allowed. Raises ConfigError."""
    text = str(config.get("super.users") or "")
    users = frozenset(part.strip() for part in text.split(";") if part.strip())
    for user in users:
        kind, separator, name = user.partition(":")
        if not (kind and separator and name):
            raise ConfigError("super.users", text, f"expected a list like User:anna;User:ben, but got {user}")
    return users
