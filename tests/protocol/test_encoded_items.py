"""Items that are encoded one by one make the same message as all of them at once."""

from __future__ import annotations

import pytest

from barnabas.protocol.codec import LARGE_PIECE_BYTES, encode_item, encode_long_response, encode_response
from barnabas.protocol.encoded_items import PIECE_BYTES, EncodedItems
from barnabas.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
    EncodedDelegationTokens,
)


def token(number: int) -> DescribedDelegationToken:
    name = f"{number}{chr(0x1F600) * 1000}"
    return DescribedDelegationToken(
        principal_type="User",
        principal_name="eve",
        token_id=str(number),
        hmac=bytes(64),
        renewers=[DescribedDelegationTokenRenewer(principal_type="User", principal_name=name)],
    )


@pytest.mark.parametrize("count", [0, 1, 100, 1000])
@pytest.mark.parametrize("version", range(4))
def test_the_bytes_are_the_same(version: int, count: int) -> None:
    tokens = [token(number) for number in range(count)]
    whole = DescribeDelegationTokenResponse(error_code=3, tokens=tokens, throttle_time_ms=7)
    items = EncodedItems()
    for one in tokens:
        items.add(encode_item(one, version))
    told = EncodedDelegationTokens(error_code=3, tokens=items, throttle_time_ms=7)
    for encode in (encode_response, encode_long_response):
        assert b"".join(encode(told, version)) == b"".join(encode_response(whole, version))
    assert all(len(piece) <= PIECE_BYTES for piece in items.pieces)


def test_large_pieces_are_not_copied() -> None:
    items = EncodedItems()
    while len(items.pieces) < 3:
        items.add(bytes(LARGE_PIECE_BYTES))
    told = EncodedDelegationTokens(tokens=items)
    for encode in (encode_response, encode_long_response):
        parts = encode(told, 3)
        assert all(any(piece is part for part in parts) for piece in items.pieces)
