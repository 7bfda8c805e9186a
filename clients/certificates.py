"""Certificates for tests and trials: a certificate authority and its certificates (`pip install barnabas[tls]`).

Keys use the curve P-256, whose handshakes cost a tenth of RSA's. Files are PEM in Kafka's form (KIP-651): the private
key, then the certificate and the authority's certificate.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .host import now_ms

DAYS = 30
_BEFORE = timedelta(hours=1)
"""Validity before the present time, because the clocks of machines differ."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key with its certificate, and the certificate of the authority that signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def pem(self) -> str:
        """Return key and certificates, for `ssl.keystore.location`."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return (key + self.certificate.public_bytes(Encoding.PEM) + self.authority.public_bytes(Encoding.PEM)).decode()

    def write(self, path: Path) -> None:
        """Write a PEM file that only this user can read."""
        path.touch(mode=0o600)
        path.write_text(self.pem())

    def write_pkcs12(self, path: Path, password: str) -> None:
        """Write a PKCS12 store that only this user can read."""
        encryption = BestAvailableEncryption(password.encode())
        path.touch(mode=0o600)
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, [self.authority], encryption)
        )


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority; its key is in memory only."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str, days: int = DAYS) -> Authority:
        """Create an authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        owner = _owner(name)
        builder = _builder(owner, owner, key.public_key(), days)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return cls(key, builder.add_extension(key_id, critical=False).sign(key, hashes.SHA256()))

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = DAYS) -> Identity:
        """Issue a certificate for a broker with these host names and addresses, or without names for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_owner(name), self.certificate.subject, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer_id, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
            builder = builder.add_extension(names, critical=False)
        return Identity(key, builder.sign(self.key, hashes.SHA256()), self.certificate)

    def write(self, path: Path) -> None:
        """Write the certificate, without the key, as a PEM file for `ssl.truststore.location`."""
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))


def _owner(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    owner: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms() / 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(owner)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=days))
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
