"""The delegation tokens of a KRaft cluster, read as from a TokenStore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ..metadata.token_store import DelegationToken, TokenStore

if TYPE_CHECKING:
    from ..image.delegation_token_image import DelegationTokenData
    from .published_image import PublishedImage


class ImageTokenStore(TokenStore):
    """The tokens of the published image. Used on the loop's thread only.

    Only the controller creates, changes and removes tokens, so no method that writes is called.
    """

    def __init__(self, published: PublishedImage) -> None:
        self._published = published

    async def prepare(self) -> None:
        """Do nothing: the controllers keep the tokens."""

    async def ids(self) -> list[str]:
        """Return the ids of all tokens."""
        return list(self._published.image.delegation_tokens.tokens)

    async def get(self, token_id: str) -> DelegationToken | None:
        """Return a token; None if there is no token of this id."""
        data = self._published.image.delegation_tokens.tokens.get(token_id)
        return None if data is None else _token(token_id, data)

    async def all(self) -> AsyncIterator[DelegationToken]:
        """Yield all tokens."""
        for token_id, data in list(self._published.image.delegation_tokens.tokens.items()):
            yield _token(token_id, data)


def _token(token_id: str, data: DelegationTokenData) -> DelegationToken:
    return DelegationToken(
        token_id,
        data.owner,
        data.requester,
        data.renewers,
        data.issue_timestamp,
        data.max_timestamp,
        data.expiration_timestamp,
    )
