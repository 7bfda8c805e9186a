"""AlterUserScramCredentials (key 51, KIP-554): sets and removes SCRAM credentials of users.

Clients send the PBKDF2 hash of a password. The stored keys are derived from it (RFC 5802) and do not authenticate a
client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ....protocol.sasl_server import LONGEST_USER, MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential
from ...runtime.loop_sharing import CountBudget
from ...security.scram_credentials import ScramCredentials
from ..request_context import RequestContext

logger = room_logger("security")

USERS_PER_TURN = 20
"""Users whose credentials are changed, each after a read of all credentials of that user."""

MAX_CHANGES = 1000
"""Alterations of one request: each is a write of its own to the metadata store."""
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest, *, scram_credentials: ScramCredentials
) -> AlterUserScramCredentialsResponse:
    """Change all credentials of each user together, and each user independently. Raises KafkaError INVALID_REQUEST."""
    if len(request.deletions) + len(request.upsertions) > MAX_CHANGES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A request can change at most {MAX_CHANGES} credentials")
    changes: dict[str, list[Change]] = {}
    asked: list[Change] = [*request.deletions, *request.upsertions]
    for change in asked:
        changes.setdefault(change.name, []).append(change)
    results, budget = [], CountBudget(USERS_PER_TURN)
    for user, wanted in changes.items():
        await budget.step()
        result = AlterUserScramCredentialsResult(user=user, error_message=None)
        try:
            await scram_credentials.alter(user, _checked(user, wanted))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            logger.info("%s from %s changed credentials of user %s", ctx.session.principal, ctx.client_host, user)
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def _checked(user: str, wanted: Sequence[Change]) -> dict[str, ScramCredential | None]:
    """Return the new credentials of a user by mechanism, None for a credential to delete. Raise KafkaError."""
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(user) > LONGEST_USER:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username of more than {LONGEST_USER} characters")
    for change in wanted:
        _mechanism(change)
    if max(Counter(change.mechanism for change in wanted).values()) > 1:
        text = "A user credential cannot be altered twice in the same request"
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
    return {_mechanism(change): _credential(change) for change in wanted}


def _mechanism(change: Change) -> str:
    name = MECHANISMS.get(change.mechanism)
    if name is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return name


def _credential(change: Change) -> ScramCredential | None:
    if isinstance(change, ScramCredentialDeletion):
        return None
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salt or not change.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A salt and a salted password are needed")
    salt, salted = bytes(change.salt), bytes(change.salted_password)
    if len(salt) > LONGEST_USER or len(salted) > LONGEST_USER:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A salt or a salted password is too long")
    return ScramCredential.of_salted_password(_mechanism(change), salt, salted, change.iterations)
