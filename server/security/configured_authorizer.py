"""Which authorizer `authorizer.class.name` asks for.

The names of Kafka's own stand for ours, which keeps its rules where Kafka up to 3.9 does. Any other is looked for
among the entry points `barnabas.authorizers` of installed packages: what it leads to is called with the settings of
the broker and gives an `Authorizer`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from ..config.keys.validators import ConfigError
from .acl_authorizer import AclAuthorizer

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..metadata.acl_store import AclStore
    from .authorizer import Authorizer

KEY = "authorizer.class.name"
KAFKAS_OWN = (
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
ENTRY_POINTS = "barnabas.authorizers"


def configured_authorizer(config: BrokerConfig, store: AclStore, loop: asyncio.AbstractEventLoop) -> Authorizer | None:
    """None where everybody may do everything. Raises ConfigError: a broker never runs without the one it is to have."""
    name = config.authorizer_class_name
    if not name:
        return None
    if name in KAFKAS_OWN:
        allow = str(config.get("allow.everyone.if.no.acl.found") or "false").strip().lower()
        if allow not in ("true", "false"):
            raise ConfigError("allow.everyone.if.no.acl.found", allow, "Expected value to be either true or false")
        return AclAuthorizer(store, loop, super_users=super_users(config), allow_if_no_acl=allow == "true")
    from importlib.metadata import entry_points  # loads much that a broker needs for nothing else

    for entry_point in entry_points(group=ENTRY_POINTS, name=name):
        return cast("Authorizer", entry_point.load()(dict(config.static)))
    raise ConfigError(KEY, name, f"no installed package has an entry point of that name in {ENTRY_POINTS}")


def super_users(config: BrokerConfig) -> frozenset[str]:
    """Who may do everything. Raises ConfigError."""
    text = str(config.get("super.users") or "")
    users = frozenset(part.strip() for part in text.split(";") if part.strip())
    for user in users:
        kind, separator, name = user.partition(":")
        if not (kind and separator and name):
            raise ConfigError("super.users", text, f"expected a list like User:anna;User:ben, but got {user}")
    return users
