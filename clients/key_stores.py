"""Keys and certificates of Kafka's settings, loaded into a TLS context, for clients and brokers.

PEM files and text (KIP-651) need the standard library only. PKCS12 stores, keytool's default for years under any file
name, are read with `cryptography` (`pip install barnabas[tls]`), including old ciphers; JKS stores by
`java_key_store.py`. The error for a JCEKS store contains the command that converts it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from .host import private_folder
from .java_key_store import MAGIC as JKS_MAGIC
from .java_key_store import JavaKeyStore, read_jks

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
MAX_STORE_BYTES = 16 << 20
"""A file of trusted certificates has some hundred KB. A larger file, or an endless device, is not read."""
_CONVERT = "keytool -importkeystore -srckeystore {} -destkeystore store.p12 -deststoretype PKCS12"


def load_trust(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    """Load the trust store of `ssl.truststore.*`; return False if none is set. Raises ValueError, OSError."""
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
    """Load the key store of `ssl.keystore.*`; return False if none is set. Raises ValueError, OSError."""
    chain, location = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.location")
    password = settings.get("ssl.key.password")
    if chain:
        _load_text(context, _joined(settings.get("ssl.keystore.key") or "") + "\n" + _joined(chain), password)
    elif not location:
        return False
    elif _is_pem(settings, "keystore", location):
        # Without a password OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(location, password=password or "")
    else:
        key, certificates = _own_key(location, settings.get("ssl.keystore.password"), password)
        if not key:
            raise ValueError(f"ssl.keystore.location: {location} has no private key")
        _load_text(context, key + certificates, None)
    return True


def _is_pem(settings: Mapping[str, str], role: str, location: str) -> bool:
    """Detect the format of the file, regardless of `ssl.*.type`: Java also accepts PKCS12 for JKS and the
    reverse.
    """
    begin = _content(role, location)[:4]
    if begin == _JCEKS_MAGIC:
        advice = _CONVERT.format(location)
        raise ValueError(f"ssl.{role}.location: {location} is a JCEKS store; convert it: {advice}")
    if begin == JKS_MAGIC:
        return False
    return settings.get(f"ssl.{role}.type", "").upper() == "PEM" or begin[:1] != b"\x30"


def _content(role: str, location: str) -> bytes:
    """Return the contents of a file. Raises ValueError unless it is a regular file: reading a pipe would not end."""
    path = Path(location)
    if path.exists() and not path.is_file():
        raise ValueError(f"ssl.{role}.location: {location} is not a file")
    with path.open("rb") as file:
        data = file.read(MAX_STORE_BYTES + 1)
    if len(data) > MAX_STORE_BYTES:
        raise ValueError(f"ssl.{role}.location: {location} has more than {MAX_STORE_BYTES} bytes")
    return data


def _trusted(location: str, password: str | None) -> str:
    """Return the certificates of a trust store in another format as PEM."""
    store = _jks(location, password)
    if store is None:
        return _pkcs12(location, password)[1]
    # As in Java: the certificate of a key entry is trusted, too, regardless of the key's password.
    return "".join([*store.trusted, *(one for key in store.keys for one in key.chain[:1])])


def _own_key(location: str, password: str | None, key_password: str | None) -> tuple[str, str]:
    """Return the first private key, empty if there is none, and its certificates of a store in another format, as
    PEM.
    """
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
    """Return the contents of a JKS store; None for another format."""
    data = Path(location).read_bytes()
    if data[: len(JKS_MAGIC)] != JKS_MAGIC:
        return None
    try:
        return read_jks(data, password or None)
    except ValueError as error:
        raise ValueError(f"{location}: {error}") from error


def _pkcs12(location: str, password: str | None) -> tuple[str, str]:
    """Return the private key, empty if there is none, and the certificates of a store, as PEM."""
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
    """Restore PEM text from one line of a properties file, whose line breaks are spaces or backslash and n."""
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
