"""Users of a cluster: their SCRAM credentials, quotas and ACLs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..protocol.errors import ErrorCode, KafkaError
from .admin import Admin, ScramCredentialInfo


class UserSummary(NamedTuple):
    """A user with a SCRAM credential, a quota or an ACL; `acls` is the number of ACLs for the principal."""

    name: str
    credentials: Sequence[ScramCredentialInfo]
    quotas: Mapping[str, float]
    acls: int


async def user_summaries(admin: Admin) -> list[UserSummary]:
    """Return a summary of each user, by name. Raises KafkaError."""
    credentials = await admin.describe_user_scram_credentials()
    quotas = {
        str(one.entity["user"]): one.values
        for one in await admin.describe_quotas()
        if set(one.entity) == {"user"} and one.entity["user"] is not None
    }
    acls = Counter[str]()
    try:
        acls.update(one.entry.principal.removeprefix("User:") for one in await admin.describe_acls())
    except KafkaError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:  # a cluster without an authorizer has no ACLs
            raise
    return [
        UserSummary(user, credentials.get(user, ()), quotas.get(user, {}), acls[user])
        for user in sorted({*credentials, *quotas, *acls})
    ]
