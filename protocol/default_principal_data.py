"""Kafka's DefaultPrincipalData: the principal of a client in an Envelope (KIP-590)."""

from __future__ import annotations

from .codec import encode_versioned
from .schema import boolean, message, string, wire


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    type: str = wire(string, "0+")
    name: str = wire(string, "0+")
    token_authenticated: bool = wire(boolean, "0+")


def encode_principal(kind: str, name: str, *, is_token_authenticated: bool) -> bytes:
    """Encode the principal of a client as Kafka's DefaultKafkaPrincipalBuilder does."""
    return encode_versioned(DefaultPrincipalData(type=kind, name=name, token_authenticated=is_token_authenticated), 0)
