"""Selection of the common version of a request."""

from __future__ import annotations

from .apis import ApiKey
from .messages.api_versions import ApiVersionsResponse
from .schema import UNBOUNDED, Versions

LAST_VERSIONS_BY_NAME = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
"""The last versions with topic names; later ones have topic ids (KIP-516, KIP-848)."""


def negotiate(ours: Versions, theirs: Versions) -> int | None:
    """Return the highest version in both ranges, None if they do not overlap."""
    highest = min(ours.last, theirs.last)
    return highest if highest >= max(ours.first, theirs.first) else None


def last_version(api_key: ApiKey, *, by_name: bool) -> int:
    """Return the newest usable version, with topic names only, or with ids as well."""
    return LAST_VERSIONS_BY_NAME[api_key] if by_name else UNBOUNDED


def versions_told(response: ApiVersionsResponse) -> dict[int, Versions]:
    """Return the versions that a broker supports, by API key."""
    return {told.api_key: Versions(told.min_version, told.max_version) for told in response.api_keys}
