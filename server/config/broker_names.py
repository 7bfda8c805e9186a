"""The name of a broker as a resource that has a configuration: its id."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError

LONGEST_NUMBER = 64
"""Characters of a broker id: Java ignores leading zeros, and Python refuses to parse thousands of them."""


def parse_broker_id(name: str) -> int | None:
    """Number that a resource's name is, None if it is no whole number of 32 bits."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if len(name) > LONGEST_NUMBER or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(name)
    return number if -(2**31) <= number < 2**31 else None


def check_broker_name(name: str, broker_id: int) -> None:
    """Raise KafkaError INVALID_REQUEST unless `name` is the id of this broker: each changes only itself."""
    number = parse_broker_id(name)
    if number is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")
