"""Permissions of nodes: ZooKeeper's ACLs with the schemes world, ip and digest.

Source: ZooKeeperServer.checkACL, PrepRequestProcessor.fixupACL, DigestAuthenticationProvider and
IPAuthenticationProvider of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Sequence

from ...protocol.zookeeper.constants import Perms
from ...protocol.zookeeper.records import Acl, Id
from .metadata_store import StoreError

ANYONE = Id("world", "anyone")
OPEN_ACL: tuple[Acl, ...] = (Acl(Perms.ALL, ANYONE),)
MAX_ENTRIES = 256
"""The longest ACL, as it is looked through at each access. ZooKeeper has no bound."""


class NoAuthError(StoreError):
    """The session has no identity that may do this."""


class InvalidAclError(StoreError):
    """An ACL that is empty or malformed."""


def allows(acl: Sequence[Acl], perms: int, who: Sequence[Id]) -> bool:
    """Whether the ACL gives one of the identities in `who` one of the permissions."""
    return any(entry.perms & perms and _matches(entry.id, who) for entry in acl)


def _matches(wanted: Id, who: Sequence[Id]) -> bool:
    if wanted == ANYONE or wanted in who:
        return True
    return wanted.scheme == "ip" and any(one.scheme == "ip" and _is_within(one.id, wanted.id) for one in who)


def _is_within(address: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def checked_acl(path: str, acl: Sequence[Acl], who: Sequence[Id]) -> tuple[Acl, ...]:
    """Return an ACL in stored form: without duplicates, and with the session's identities in place of `auth`.

    Raises InvalidAclError.
    """
    kept: dict[Acl, None] = {}
    for entry in acl[: MAX_ENTRIES + 1]:
        if entry.id.scheme == "auth":
            # An address is not an identity.
            proved = [one for one in who if one.scheme != "ip"]
            if not proved:
                raise InvalidAclError(path)
            kept |= dict.fromkeys(Acl(entry.perms, one) for one in proved)
        elif _is_legal(entry.id):
            kept[entry] = None
        else:
            raise InvalidAclError(path)
    if not 0 < len(kept) <= MAX_ENTRIES:
        raise InvalidAclError(path)
    # A shared object, because nearly all nodes have this ACL.
    return OPEN_ACL if tuple(kept) == OPEN_ACL else tuple(kept)


def _is_legal(one: Id) -> bool:
    match one.scheme:
        case "world":
            return one == ANYONE
        case "digest":
            return one.id.count(":") == 1
        case "ip":
            try:
                ipaddress.ip_network(one.id, strict=False)
            except ValueError:
                return False
            return True
    return False


def digest_id(user_and_password: bytes) -> Id:
    """Return the digest id of `user:password`. Raises ValueError for anything else."""
    user, colon, _ = user_and_password.partition(b":")
    if not colon:
        raise ValueError("a digest is of user:password")
    # ZooKeeper's choice of hash, which existing ACLs contain.
    digest = base64.b64encode(hashlib.sha1(user_and_password, usedforsecurity=False).digest()).decode()
    return Id("digest", f"{user.decode()}:{digest}")


def without_digests(acl: Sequence[Acl]) -> list[Acl]:
    """Return an ACL without password hashes, for sessions that may not change it, because hashes can be cracked."""
    return [
        Acl(entry.perms, Id("digest", f"{entry.id.id.partition(':')[0]}:x")) if entry.id.scheme == "digest" else entry
        for entry in acl
    ]
