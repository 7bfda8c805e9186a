"""Passwords among the dynamic settings of a broker, encrypted in the metadata tree as Kafka up to 3.9 does it.

Follows Kafka's EncryptingPasswordEncoder and the password handling of DynamicBrokerConfig (toPersistentProps,
fromPersistentProps, maybeReEncodePasswords). A stored password is one line of text:
`keyFactoryAlgorithm:…,cipherAlgorithm:…,keyLength:…,salt:…,iterations:…,initializationVector:…,encryptedPassword:…,passwordLength:…`
with Base64 for bytes. The key of the cipher is derived from `password.encoder.secret` with PBKDF2.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from .keys.catalogue import BROKER_KEYS
from .keys.definition import SENSITIVE_MASK, ConfigType
from .keys.validators import ConfigError

if TYPE_CHECKING:
    from ..runtime.ports import Ports
    from .broker_config import BrokerConfig

logger = room_logger("config")

LANE = "passwords"
_SECRET, _OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"
_DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
_KEY_FACTORY_PREFIX = "PBKDF2WithHmac"
_DIGESTS = ("SHA1", "SHA224", "SHA256", "SHA384", "SHA512")
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_KEY_BITS = (128, 192, 256)
_SALT_BYTES = 256
_BLOCK_BITS, _BLOCK_BYTES = 128, 16
_GCM_IV_BYTES, _GCM_TAG_BYTES = 12, 16
_MAX_ITERATIONS = 10_000_000
"""Several seconds of processor time: a stored text with a higher count is rejected as damaged. Kafka has no limit."""
_FIELDS = frozenset(
    {"keyFactoryAlgorithm", "cipherAlgorithm", "keyLength", "salt", "iterations", "encryptedPassword", "passwordLength"}
)
_PASSWORD_KEYS = tuple(name for name, key in BROKER_KEYS.items() if key.type is ConfigType.PASSWORD)


class PasswordDecodeError(ValueError):
    """A stored password that cannot be decrypted; the message never contains the password."""


def is_password_config(name: str) -> bool:
    """Return whether a setting is a password, with or without the prefix of a listener and a SASL mechanism."""
    return name.endswith(_PASSWORD_KEYS)


def is_encoded(text: str) -> bool:
    """Return whether a stored text has the fields of an encoded password."""
    return _fields(text).keys() >= _FIELDS


def _fields(text: str) -> dict[str, str]:
    pairs = (part.strip().rpartition(":") for part in text.split(","))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


class _Cipher(NamedTuple):
    """The parameters of one encoded password, checked against the supported ciphers."""

    algorithm: str
    key_factory: str
    key_bits: int
    iterations: int

    def check(self) -> None:
        """Raise ValueError for an unsupported parameter."""
        if self.algorithm not in (_CBC, _GCM):
            raise ValueError(f"cipher algorithm {self.algorithm} is not supported, expected one of {_CBC}, {_GCM}")
        if self.key_factory.removeprefix(_KEY_FACTORY_PREFIX) not in _DIGESTS:
            supported = ", ".join(_KEY_FACTORY_PREFIX + name for name in _DIGESTS)
            raise ValueError(f"key factory {self.key_factory} is not supported, expected one of {supported}")
        if self.key_bits not in _KEY_BITS:
            raise ValueError(f"a key of {self.key_bits} bits is not valid for AES, expected one of 128, 192, 256")
        if not 1 <= self.iterations <= _MAX_ITERATIONS:
            raise ValueError(f"{self.iterations} iterations are out of range, expected 1 to {_MAX_ITERATIONS}")

    def key(self, secret: str, salt: bytes) -> bytes:
        digest = self.key_factory.removeprefix(_KEY_FACTORY_PREFIX).lower()
        return hashlib.pbkdf2_hmac(digest, secret.encode(), salt, self.iterations, self.key_bits // 8)


class PasswordEncoder:
    """Encrypts and decrypts passwords with one secret (Kafka's EncryptingPasswordEncoder).

    Stateless; each call takes some milliseconds of PBKDF2 and belongs on a lane.
    """

    def __init__(
        self,
        secret: str,
        *,
        token_bytes: Callable[[int], bytes],
        key_factory: str | None = None,
        cipher: str = _CBC,
        key_bits: int = 128,
        iterations: int = 4096,
    ) -> None:
        """Raise ValueError for algorithms or sizes that Barnabas does not support."""
        self._secret = secret
        self._token_bytes = token_bytes
        self._cipher = _Cipher(cipher, key_factory or _DEFAULT_KEY_FACTORY, key_bits, iterations)
        self._cipher.check()

    def encode(self, password: str) -> str:
        """Encrypt with a fresh salt and initialization vector. Raises ImportError without `cryptography`."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.padding import PKCS7

        data, salt = password.encode(), self._token_bytes(_SALT_BYTES)
        key = self._cipher.key(self._secret, salt)
        fields = {
            "keyFactoryAlgorithm": self._cipher.key_factory,
            "cipherAlgorithm": self._cipher.algorithm,
            "keyLength": str(self._cipher.key_bits),
            "salt": _base64(salt),
            "iterations": str(self._cipher.iterations),
            # Java's String.length(), by which Kafka recognizes a wrong secret, counts UTF-16 units.
            "passwordLength": str(_utf16_units(password)),
        }
        if self._cipher.algorithm == _GCM:
            iv = self._token_bytes(_GCM_IV_BYTES)
            encrypted = AESGCM(key).encrypt(iv, data, None)
            fields["authenticationTagLength"] = str(_GCM_TAG_BYTES * 8)
        else:
            iv = self._token_bytes(_BLOCK_BYTES)
            padder, encryptor = PKCS7(_BLOCK_BITS).padder(), Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
            encrypted = encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()
        fields |= {"initializationVector": _base64(iv), "encryptedPassword": _base64(encrypted)}
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Decrypt with the algorithms that the text names. Raises PasswordDecodeError, and ImportError as `encode`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.padding import PKCS7

        fields = _fields(text)
        try:
            cipher = _Cipher(
                fields["cipherAlgorithm"],
                fields["keyFactoryAlgorithm"],
                int(fields["keyLength"]),
                int(fields["iterations"]),
            )
            cipher.check()
            key = cipher.key(self._secret, base64.b64decode(fields["salt"], validate=True))
            iv = base64.b64decode(fields["initializationVector"], validate=True)
            encrypted = base64.b64decode(fields["encryptedPassword"], validate=True)
            if cipher.algorithm == _GCM:
                data = AESGCM(key).decrypt(iv, encrypted, None)
            else:
                decryptor, unpadder = (
                    Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor(),
                    PKCS7(_BLOCK_BITS).unpadder(),
                )
                data = unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()
            password = data.decode()
            length = int(fields["passwordLength"])
        except KeyError as error:
            raise PasswordDecodeError(f"field {error} is missing") from None
        except (ValueError, InvalidTag) as error:
            # A wrong secret shows as wrong padding, wrong tag or invalid UTF-8; none of these texts is worth more.
            raise PasswordDecodeError(f"wrong secret or damaged text ({type(error).__name__}: {error})") from None
        if _utf16_units(password) != length:
            raise PasswordDecodeError("wrong secret or damaged text (the length differs)")
        return password


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


class StoredPasswords:
    """The passwords in the stored settings of one broker. Used on the loop's thread; PBKDF2 runs on a lane."""

    def __init__(self, config: BrokerConfig, ports: Ports | None) -> None:
        """Raise ConfigError for an encoder that Barnabas does not support; without `ports` there is none."""
        self._ports = ports
        self._encoder = self._encoder_of(config, config.password_encoder_secret)
        self._old_encoder = self._encoder_of(config, config.password_encoder_old_secret)
        if self._encoder is None and self._old_encoder is not None:
            raise ConfigError(_OLD_SECRET, SENSITIVE_MASK, f"requires {_SECRET}, the new secret")
        self._decoded: dict[str, str] = {}
        """The passwords of the last settings that were decoded, by stored text: each costs milliseconds to decode."""

    def _encoder_of(self, config: BrokerConfig, secret: str | None) -> PasswordEncoder | None:
        if not secret or self._ports is None:
            return None
        try:
            return PasswordEncoder(
                secret,
                token_bytes=self._ports.token_bytes,
                key_factory=config.password_encoder_keyfactory_algorithm,
                cipher=config.password_encoder_cipher_algorithm,
                key_bits=config.password_encoder_key_length,
                iterations=config.password_encoder_iterations,
            )
        except ValueError as error:
            raise ConfigError(_SECRET, SENSITIVE_MASK, f"the password encoder cannot be built: {error}") from None

    async def from_persistent(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return stored settings with their passwords decoded.

        A password that cannot be decoded is logged and left out, as in Kafka. One in clear text, as earlier versions
        of Barnabas stored it, counts as it is.
        """
        settings = dict(stored)
        decoded: dict[str, str] = {}
        for name, text in stored.items():
            if not is_password_config(name) or not is_encoded(text):
                continue
            try:
                decoded[text] = settings[name] = self._decoded.get(text) or await self._decode(text)
            except PasswordDecodeError as error:
                logger.error("dynamic password config %s cannot be decoded and is ignored: %s", name, error)
                del settings[name]
        self._decoded = decoded
        return settings

    async def to_persistent(self, settings: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """Return settings as they are to be stored in place of `stored`: with encoded passwords.

        Raises KafkaError INVALID_REQUEST if a password is set and there is no secret. An unchanged password
        keeps its stored text, so that a broker without a secret can still change its other settings.
        """
        present = await self.from_persistent(stored)
        persistent = dict(settings)
        for name, value in settings.items():
            if not is_password_config(name):
                continue
            unchanged = present.get(name) == value
            if unchanged and (self._encoder is None or is_encoded(stored[name])):
                persistent[name] = stored[name]
            else:
                persistent[name] = await self._encode(value)
        return persistent

    async def reencoded(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return stored settings with each password encoded with the present secret (maybeReEncodePasswords).

        That concerns passwords encoded with `password.encoder.old.secret` and passwords in clear text.
        """
        renewed = dict(stored)
        clear = []
        for name, text in stored.items():
            if not is_password_config(name):
                continue
            if not is_encoded(text):
                clear.append(name)
                if self._encoder is not None:
                    renewed[name] = await self._encode(text)
            elif self._old_encoder is not None and not await self._is_current(text):
                try:
                    renewed[name] = await self._encode(await self._run(partial(self._old_encoder.decode, text)))
                except PasswordDecodeError as error:
                    logger.error("dynamic password config %s cannot be decoded with either secret: %s", name, error)
        if clear and self._encoder is None:
            names = ", ".join(sorted(clear))
            logger.warning(
                "passwords are in clear text in the metadata tree: %s. Set %s and restart the broker to encrypt them",
                names,
                _SECRET,
            )
        return renewed

    async def _is_current(self, text: str) -> bool:
        try:
            await self._decode(text)
        except PasswordDecodeError:
            return False
        return True

    async def _encode(self, password: str) -> str:
        if self._encoder is None:
            reason = f"Password encoder secret not configured: set {_SECRET} in the broker's properties and restart it."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        try:
            return await self._run(partial(self._encoder.encode, password))
        except ImportError:
            reason = f"{_SECRET} requires `pip install 'barnabas[tls]'` on the broker."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason) from None

    async def _decode(self, text: str) -> str:
        if self._encoder is None:
            raise PasswordDecodeError(f"{_SECRET} is not set")
        try:
            return await self._run(partial(self._encoder.decode, text))
        except ImportError:
            raise PasswordDecodeError(f"{_SECRET} requires `pip install 'barnabas[tls]'`") from None

    async def _run(self, job: Callable[[], str]) -> str:
        assert self._ports is not None, "an encoder is built with ports only"
        return await self._ports.work.run(LANE, job)
