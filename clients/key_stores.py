"""Keys and certificates of Kafka's settings, loaded into a TLS context, for clients and brokers.

PEM files and text (KIP-651) need the standard library only. PKCS12 stores, keytool's default for years under any file
name, are read with `cryptography` (`pip install barnabas[tls]`), including old ciphers; JKS stores by
`java_key_store.py`. The error for a JCEKS store contains the command that converts it.
"""

from __future__ import annotations

import base64
import math
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from .host import private_folder
from .java_key_store import MAGIC as JKS_MAGIC
from .java_key_store import JavaKeyStore, read_jks

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
MAX_STORE_BYTES = 16 << 20
"""A file of trusted certificates has some hundred KB. A larger file, or an endless device, is not read."""
_PEM_LINE = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_UTC_TIME = 0x17
_VERSION_TAG = 0xA0
_FIRST_YEAR_OF_1900 = 50
"""Two digits of a year from this number on are in the 20th century (RFC 5280, section 4.1.2.5.1)."""
_CONVERT = "keytool -importkeystore -srckeystore {} -destkeystore store.p12 -deststoretype PKCS12"


def load_trust(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    """Load the trust store of `ssl.truststore.*`; return False if none is set. Raises ValueError, OSError."""
    text = settings.get("ssl.truststore.certificates")
    location = settings.get("ssl.truststore.location")
    if text:
        pem = _joined(text)
        try:
            context.load_verify_locations(cadata=pem)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"ssl.truststore.certificates: {_trust_fault(pem)}") from error
    elif not location:
        return False
    elif _is_pem(settings, "truststore", location):
        try:
            context.load_verify_locations(cafile=location)
        except ssl.SSLError as error:
            pem = _content("truststore", location).decode("latin-1")
            raise ValueError(f"ssl.truststore.location: {location}: {_trust_fault(pem)}") from error
    else:
        certificates = _trusted(location, settings.get("ssl.truststore.password"))
        context.load_verify_locations(cadata=certificates)
    return True


def load_key(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    """Load the key store of `ssl.keystore.*`; return False if none is set. Raises ValueError, OSError."""
    chain, location = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.location")
    password = settings.get("ssl.key.password")
    if chain:
        pem = _joined(settings.get("ssl.keystore.key") or "") + "\n" + _joined(chain)
        _load_text(context, pem, password, "ssl.keystore.key and ssl.keystore.certificate.chain")
    elif not location:
        return False
    elif _is_pem(settings, "keystore", location):
        try:
            # Without a password OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(location, password=password or "")
        except (ssl.SSLError, ValueError) as error:
            pem = _content("keystore", location).decode("latin-1")
            raise ValueError(f"ssl.keystore.location: {location}: {_key_fault(pem, password, error)}") from error
    else:
        key, certificates = _own_key(location, settings.get("ssl.keystore.password"), password)
        if not key:
            raise ValueError(f"ssl.keystore.location: {location} has no private key")
        _load_text(context, key + certificates, None, f"ssl.keystore.location: {location}")
    return True


def own_certificate(settings: Mapping[str, str]) -> bytes | None:
    """Return the certificate of the key store of `ssl.keystore.*` in DER, None without one. Errors as `load_key`."""
    chain, location = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.location")
    if chain:
        pem = _joined(chain)
    elif not location:
        return None
    elif _is_pem(settings, "keystore", location):
        pem = _content("keystore", location).decode("latin-1")
    else:
        pem = _own_key(location, settings.get("ssl.keystore.password"), settings.get("ssl.key.password"))[1]
    found = next((content for kind, content in _pem_blocks(pem)[0] if kind in _CERTIFICATES), None)
    return None if found is None else base64.b64decode(found)


def expiry_time(certificate: bytes | None) -> float:
    """Return the end of the validity of a certificate in DER, in seconds since 1970; infinity without a certificate.

    The standard library has no function for a certificate that no connection has verified.
    """
    if certificate is None:
        return math.inf
    try:
        # Certificate, TBSCertificate, its version if there is one, serial number, algorithm, issuer, validity.
        at = _der(certificate, _der(certificate, 0)[1])[1]
        if certificate[at] == _VERSION_TAG:
            at = _der(certificate, at)[2]
        for _ in range(3):
            at = _der(certificate, at)[2]
        not_before_end = _der(certificate, _der(certificate, at)[1])[2]
        tag, start, end = _der(certificate, not_before_end)
        text = certificate[start:end].decode("ascii")
        if tag == _UTC_TIME:
            text = ("19" if int(text[:2]) >= _FIRST_YEAR_OF_1900 else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except (IndexError, ValueError):
        return math.inf


def _der(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the value at a position in DER, and the start and the end of its content."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(data[start : start + count], "big"), start + count
    return tag, start, start + length


def _pem_blocks(pem: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return kind and content of each block, and the kinds of the blocks without an END line.

    One pass over the text: a client that may alter settings can send megabytes of BEGIN lines.
    """
    blocks, unended = list[tuple[str, str]](), list[str]()
    begin: re.Match[str] | None = None
    for line in _PEM_LINE.finditer(pem):
        if line[1] == "END" and begin is not None and begin[2] == line[2]:
            blocks.append((line[2], pem[begin.end() : line.start()]))
            begin = None
        elif line[1] == "BEGIN":
            if begin is not None:
                unended.append(begin[2])
            begin = line
    if begin is not None:
        unended.append(begin[2])
    return blocks, unended


def _key_fault(pem: str, password: str | None, error: Exception) -> str:
    """Return the fault of PEM text of a private key and its certificates that OpenSSL rejects."""
    blocks, unended = _pem_blocks(pem)
    kinds = [kind for kind, _ in blocks]
    if unended:
        return f"the block BEGIN {unended[0]} has no line END {unended[0]}"
    if not kinds:
        return "there is no PEM block in it; expected BEGIN PRIVATE KEY and BEGIN CERTIFICATE"
    if not any(kind.endswith("PRIVATE KEY") for kind in kinds):
        return "the private key (BEGIN PRIVATE KEY) is missing"
    if not any(kind in _CERTIFICATES for kind in kinds):
        return "the certificate (BEGIN CERTIFICATE) is missing"
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate"
    if "ENCRYPTED PRIVATE KEY" in kinds or "Proc-Type: 4,ENCRYPTED" in pem:
        fault = "ssl.key.password is wrong" if password else "the private key is encrypted; set ssl.key.password"
        return f"{fault}, or the key is damaged"
    return "a PEM block in it is damaged"


def _trust_fault(pem: str) -> str:
    """Return the fault of PEM text of trusted certificates that OpenSSL rejects."""
    blocks, unended = _pem_blocks(pem)
    kinds = [kind for kind, _ in blocks]
    if unended:
        return f"the block BEGIN {unended[0]} has no line END {unended[0]}"
    if not any(kind in _CERTIFICATES for kind in kinds):
        return f"there is no certificate (BEGIN CERTIFICATE) in it{f', only {kinds[0]}' if kinds else ''}"
    return "a certificate in it is damaged"


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
    try:
        store = pkcs12.load_pkcs12(Path(location).read_bytes(), password.encode() if password else None)
    except ValueError as error:
        raise ValueError(f"{location}: wrong password, or not a PKCS12 store: {error}") from error
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


def _load_text(context: ssl.SSLContext, pem: str, password: str | None, source: str) -> None:
    """Load a private key and its certificates. Raises ValueError that begins with `source`."""
    # The standard library reads keys from files only.
    file = private_folder("barnabas-tls-") / "key.pem"
    try:
        file.touch(mode=0o600)
        file.write_text(pem)
        context.load_cert_chain(str(file), password=password or "")
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{source}: {_key_fault(pem, password, error)}") from error
    finally:
        file.unlink(missing_ok=True)
        file.parent.rmdir()
