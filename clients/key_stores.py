"""Keys and certificates as Kafka's settings name them, read into a TLS context: for clients and for brokers.

PEM files and text (KIP-651) need nothing but the standard library. PKCS12 stores, which is what Java's keytool has made
for years whatever the file is called, are read by `cryptography` (`pip install barnabas[tls]`), those with ciphers of
old, too; a store in Java's own old format by `java_key_store.py`. One of the kind JCEKS is refused with the command
that converts it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from .host import private_folder
from .java_key_store import MAGIC as JKS_MAGIC
from .java_key_store import JavaKeyStore, read_jks

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_CONVERT = "keytool -importkeystore -srckeystore {} -destkeystore store.p12 -deststoretype PKCS12"


def load_trust(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    """Have the context trust what `ssl.truststore.*` names; False if that is nothing. Raises ValueError, OSError."""
    text = settings.get("ssl.truststore.certificates")
    location = settings.get("ssl.truststore.location")
    if text:
        context.load_verify_locations(cadata=_joined(text))
    elif not location:
        return False
    elif _is_pem(settings, "truststore", location):
        context.load_verify_locations(cafile=location)
    else:
        certificates = _trusted(location, settings.get("ssl.truststore.password"))
        context.load_verify_locations(cadata=certificates)
    return True


def load_key(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    """Have the context show what `ssl.keystore.*` names; False if that is nothing. Raises ValueError, OSError."""
    chain, location = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.location")
    password = settings.get("ssl.key.password")
    if chain:
        _load_text(context, _joined(settings.get("ssl.keystore.key") or "") + "\n" + _joined(chain), password)
    elif not location:
        return False
    elif _is_pem(settings, "keystore", location):
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(location, password=password or "")
    else:
        key, certificates = _own_key(location, settings.get("ssl.keystore.password"), password)
        if not key:
            raise ValueError(f"ssl.keystore.location: {location} holds no private key")
        _load_text(context, key + certificates, None)
    return True


def _is_pem(settings: Mapping[str, str], role: str, location: str) -> bool:
    """What the file is, whatever `ssl.*.type` says: Java, too, takes PKCS12 where it was told JKS, and back."""
    begin = Path(location).read_bytes()[:4]
    if begin == _JCEKS_MAGIC:
        advice = _CONVERT.format(location)
        raise ValueError(f"ssl.{role}.location: {location} is a JCEKS store; convert it: {advice}")
    if begin == JKS_MAGIC:
        return False
    return settings.get(f"ssl.{role}.type", "").upper() == "PEM" or begin[:1] != b"\x30"


def _trusted(location: str, password: str | None) -> str:
    """The certificates of a trust store that is not PEM, as PEM."""
    store = _jks(location, password)
    if store is None:
        return _pkcs12(location, password)[1]
    # As Java does it: whoever has a key here is trusted, too, whatever that key's password is.
    return "".join([*store.trusted, *(one for key in store.keys for one in key.chain[:1])])


def _own_key(location: str, password: str | None, key_password: str | None) -> tuple[str, str]:
    """The first private key, empty if there is none, and its certificates of a store that is not PEM, as PEM."""
    store, key_password = _jks(location, password), key_password or password
    if store is None:
        return _pkcs12(location, password)
    if not store.keys or not key_password:
        return "", ""
    try:
        return store.keys[0].reveal(key_password), "".join(store.keys[0].chain)
    except ValueError as error:
        raise ValueError(f"{location}: {error}") from error


def _jks(location: str, password: str | None) -> JavaKeyStore | None:
    """What a store of Java's old format holds; None if it is another's."""
    data = Path(location).read_bytes()
    if data[: len(JKS_MAGIC)] != JKS_MAGIC:
        return None
    try:
        return read_jks(data, password or None)
    except ValueError as error:
        raise ValueError(f"{location}: {error}") from error


def _pkcs12(location: str, password: str | None) -> tuple[str, str]:
    """The private key, empty if there is none, and the certificates of a store, as PEM."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ValueError(f"{location} is a PKCS12 store: pip install 'barnabas[tls]', or give PEM files") from None
    store = pkcs12.load_pkcs12(Path(location).read_bytes(), password.encode() if password else None)
    found = [one.certificate for one in (store.cert, *store.additional_certs) if one is not None]
    certificates = "".join(one.public_bytes(Encoding.PEM).decode() for one in found)
    if store.key is None:
        return "", certificates
    return store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), certificates


def _joined(text: str) -> str:
    """PEM that a properties file has on one line, its line breaks as blanks or as backslash and n."""
    lines = text.replace("\\n", "\n")
    for word in ("-----BEGIN ", "-----END "):
        lines = lines.replace(f" {word}", f"\n{word}")
    return lines.replace("----- ", "-----\n")


def _load_text(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    # The standard library reads keys from files only.
    file = private_folder("barnabas-tls-") / "key.pem"
    try:
        file.touch(mode=0o600)
        file.write_text(pem)
        context.load_cert_chain(str(file), password=password or "")
    finally:
        file.unlink(missing_ok=True)
        file.parent.rmdir()
