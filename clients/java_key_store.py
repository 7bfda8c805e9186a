"""Reader of JKS, Java's old key store format and keytool's default up to Java 8.

    u4 FEEDFEED, u4 version, u4 entries; then a SHA-1 of password, two words and all preceding bytes
    entry:        u4 1 (key) or 2 (certificate), alias, u8 time
    key:          u4 size, EncryptedPrivateKeyInfo; u4 certificates, each as below: the chain
    certificate:  type (from version 2 on), u4 size, X.509 in DER

Texts are u2 size and UTF-8. A key is PKCS #8, XORed with a chain of SHA-1 of its password, and is followed by a SHA-1
of both. Written by keytool only. Source: sun.security.provider.JavaKeyStore and KeyProtector.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from typing import NamedTuple

MAGIC = b"\xfe\xed\xfe\xed"
_VERSIONS = (1, 2)
_KEY, _CERTIFICATE = 1, 2
_WORDS = b"Mighty Aphrodite"
_PROTECTION = bytes.fromhex("060a2b060104012a02110101")
"""OID 1.3.6.1.4.1.42.2.17.1.1, in DER."""
_DIGEST_BYTES = 20
_LINE = 64


class ProtectedKey(NamedTuple):
    """A key encrypted with its password."""

    alias: str
    protected: bytes
    chain: list[str]
    """The certificate chain in PEM, starting with the key's own certificate."""

    def reveal(self, password: str) -> str:
        """Decrypt the key and return it in PEM. Raises ValueError."""
        return _pem("PRIVATE KEY", _revealed(self.protected, password, self.alias))


class JavaKeyStore(NamedTuple):
    """The contents of a store; certificates in PEM."""

    keys: list[ProtectedKey]
    trusted: list[str]


def read_jks(data: bytes, password: str | None) -> JavaKeyStore:
    """Parse a store. Without a password its integrity is not verified. Raises ValueError."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_encoded(password) + _WORDS + body).digest()  # noqa: S324 - required by the format
        if not hmac.compare_digest(expected, digest):
            raise ValueError("the password is wrong, or the store is damaged")
    try:
        return _read(_Reader(body))
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"the store is damaged: {error}") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, kind: str) -> int:
        (found,) = struct.unpack_from(f">{kind}", self._data, self._position)
        self._position += struct.calcsize(f">{kind}")
        return int(found)

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise struct.error(
                f"the store is truncated: {size} bytes expected at {self._position} of {len(self._data)}"
            )
        found = self._data[self._position : end]
        self._position = end
        return found

    def certificate(self, version: int) -> str:
        if version > 1:
            self.take(self.number("H"))
        return _pem("CERTIFICATE", self.take(self.number("I")))


def _read(reader: _Reader) -> JavaKeyStore:
    magic, version, count = reader.take(len(MAGIC)), reader.number("I"), reader.number("I")
    if magic != MAGIC or version not in _VERSIONS:
        raise ValueError(f"the store has version {version}; expected 1 or 2")
    keys, trusted = list[ProtectedKey](), list[str]()
    for _ in range(count):
        tag = reader.number("I")
        alias = reader.take(reader.number("H")).decode()
        reader.number("Q")
        if tag == _CERTIFICATE:
            trusted.append(reader.certificate(version))
        elif tag == _KEY:
            protected = reader.take(reader.number("I"))
            certificates = [reader.certificate(version) for _ in range(reader.number("I"))]
            keys.append(ProtectedKey(alias, protected, certificates))
        else:
            raise ValueError(f"the store is damaged: unknown kind {tag} of an entry")
    return JavaKeyStore(keys, trusted)


def _revealed(protected: bytes, password: str, alias: str) -> bytes:
    """Return the key in PKCS #8."""
    where = protected.find(_PROTECTION)
    if where < 0:
        raise ValueError(f"the key {alias} is not protected with the algorithm of JKS")
    try:
        content = _octets(protected, where + len(_PROTECTION))
    except IndexError:
        raise ValueError(f"the store is damaged at the key {alias}") from None
    salt, hidden, digest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    secret, link, stream = _encoded(password), salt, bytearray()
    while len(stream) < len(hidden):
        link = hashlib.sha1(secret + link).digest()  # noqa: S324 - required by the format
        stream += link
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), digest):  # noqa: S324 - required by the format
        raise ValueError(f"the password of the key {alias} is wrong")
    return key


def _octets(data: bytes, start: int) -> bytes:
    """Return the OCTET STRING after the algorithm, whose parameters are NULL or missing."""
    if data[start : start + 2] == b"\x05\x00":
        start += 2
    size, start = data[start + 1], start + 2
    if size & 0x80:
        width = size & 0x7F
        size, start = int.from_bytes(data[start : start + width], "big"), start + width
    return data[start : start + size]


def _encoded(password: str) -> bytes:
    return password.encode("utf-16-be")


def _pem(what: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join([f"-----BEGIN {what}-----", *lines, f"-----END {what}-----", ""])
