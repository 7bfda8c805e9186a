"""Users of the SASL listeners, from the variables of bitnami's image.

`KAFKA_CLIENT_USERS` and `KAFKA_CLIENT_PASSWORDS` are lists of the same length. The users can log in at each SASL
listener, with PLAIN and with SCRAM if `sasl.enabled.mechanisms` contains them. The inter-broker user can, too. A single
broker does not need the user of the controllers. The default passwords of bitnami's image are not used, because they
are well known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .scram_argument import ScramLogin

USERS, PASSWORDS = "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS"
INTER_BROKER_USER, INTER_BROKER_PASSWORD = "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD"
CLIENT_LISTENER, CLIENT_MECHANISM = "KAFKA_CLIENT_LISTENER_NAME", "KAFKA_CLIENT_SASL_MECHANISM"
_NAMES = (USERS, PASSWORDS, INTER_BROKER_USER, INTER_BROKER_PASSWORD, CLIENT_LISTENER, CLIENT_MECHANISM)
_WITHOUT_EFFECT = ("KAFKA_CONTROLLER_USER", "KAFKA_CONTROLLER_PASSWORD")
VARIABLES = frozenset(f"{name}{suffix}" for name in (*_NAMES, *_WITHOUT_EFFECT) for suffix in ("", "_FILE"))
"""The variables of this module. A variable with `_FILE` is the path of a file with the value."""
DEFAULT_CLIENT_LISTENER = "CLIENT"
ENABLED = "sasl.enabled.mechanisms"
DEFAULT_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SEPARATORS = re.compile(r"[,;\s]+")
_JAAS_NAME = re.compile(r"[\w.$-]+")
"""Names that a JAAS string can have as the key `user_NAME`."""


@dataclass(slots=True)
class SaslUsers:
    """The settings and users that follow from the variables."""

    properties: dict[str, str] = field(default_factory=dict)
    """Settings of the broker."""
    logins: list[ScramLogin] = field(default_factory=list)
    """Users to store in new log directories."""
    client: dict[str, str] = field(default_factory=dict)
    """The settings of a client of the listener for clients; empty without such a listener."""
    warnings: list[str] = field(default_factory=list)


def sasl_users(
    environment: Mapping[str, str],
    properties: Mapping[str, str],
    listeners: Iterable[tuple[str, str]],
    read_text: Callable[[str], str | None],
    *,
    are_required: bool,
) -> SaslUsers:
    """Translate the variables. `listeners` are names and security protocols. Raises OSError, ValueError.

    `are_required`: a listener with SASL and without users, mechanisms or JAAS strings is an error. Messages contain no
    passwords.
    """
    found = SaslUsers()
    given = {name: value for name in _NAMES if (value := _value(name, environment, read_text))}
    users, inter_broker = _users(given), _inter_broker_user(given, found.warnings)
    with_sasl = {name: protocol for name, protocol in listeners if protocol.upper().startswith("SASL_")}
    if not (users or inter_broker):
        if are_required and with_sasl and ENABLED not in properties and not any("jaas" in key for key in properties):
            text = f"required for the listener {', '.join(with_sasl)}. The image has no default password"
            raise ValueError(f"{USERS} and {PASSWORDS}: {text}")
        return found
    if not with_sasl:
        variable = USERS if users else INTER_BROKER_USER
        found.warnings.append(f"{variable}: no listener uses SASL, so the users are not needed")
        return found
    if ENABLED not in properties:
        found.properties[ENABLED] = DEFAULT_MECHANISMS
    inter_broker_listener = properties.get("inter.broker.listener.name", "").upper()
    enabled: set[str] = set()
    for listener in with_sasl:
        mechanisms = _mechanisms(listener, {**found.properties, **properties})
        enabled |= set(mechanisms)
        if "PLAIN" in mechanisms:
            own = inter_broker if listener.upper() == inter_broker_listener else {}
            key = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
            found.properties[key] = _plain_jaas({**users, **inter_broker}, own)
    if "PLAIN" in enabled and (odd := sorted(name for name in users if not _JAAS_NAME.fullmatch(name))):
        found.warnings.append(f"{USERS}: PLAIN does not support the names {', '.join(odd)}, only SCRAM does")
    for mechanism in sorted(one for one in enabled if one.startswith("SCRAM-")):
        found.logins += [ScramLogin(name, mechanism, password) for name, password in {**users, **inter_broker}.items()]
    if users:
        _add_client(found, given, {**found.properties, **properties}, with_sasl, users)
    return found


def _value(name: str, environment: Mapping[str, str], read_text: Callable[[str], str | None]) -> str:
    """Return a variable's value, which its file overrides. Raises ValueError."""
    path = environment.get(f"{name}_FILE")
    if not path:
        return environment.get(name, "")
    text = read_text(path)
    if text is None:
        raise ValueError(f"{name}_FILE={path}: no such file")
    return text.strip()


def _users(given: Mapping[str, str]) -> dict[str, str]:
    names, passwords = ([one for one in _SEPARATORS.split(given.get(key, "")) if one] for key in (USERS, PASSWORDS))
    if len(names) != len(passwords):
        raise ValueError(f"{USERS} has {len(names)} names, and {PASSWORDS} {len(passwords)} passwords")
    return dict(zip(names, passwords, strict=True))


def _inter_broker_user(given: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """Return the user with which brokers log in. Other processes may use it, a single broker does not."""
    name, password = given.get(INTER_BROKER_USER, ""), given.get(INTER_BROKER_PASSWORD, "")
    if name and password:
        return {name: password}
    if name or password:
        missing = INTER_BROKER_PASSWORD if name else INTER_BROKER_USER
        warnings.append(f"{missing} is not set: there is no inter-broker user")
    return {}


def _mechanisms(listener: str, properties: Mapping[str, str]) -> list[str]:
    text = properties.get(f"listener.name.{listener.lower()}.{ENABLED}") or properties.get(ENABLED, "")
    return [one.strip().upper() for one in text.split(",") if one.strip()]


def _plain_jaas(users: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Return the JAAS string with all users, and with the login of the broker itself."""
    options = [f"username={_quoted(name)} password={_quoted(password)}" for name, password in own.items()]
    options += [f"user_{name}={_quoted(password)}" for name, password in users.items() if _JAAS_NAME.fullmatch(name)]
    return " ".join([_MODULES["PLAIN"], "required", *options]) + ";"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _add_client(
    found: SaslUsers,
    given: Mapping[str, str],
    properties: Mapping[str, str],
    with_sasl: Mapping[str, str],
    users: Mapping[str, str],
) -> None:
    """Set the client's settings for the first user at the listener for clients, with the strongest mechanism."""
    listener = given.get(CLIENT_LISTENER, DEFAULT_CLIENT_LISTENER)
    if listener not in with_sasl:
        if CLIENT_LISTENER in given:
            found.warnings.append(
                f"{CLIENT_LISTENER}={listener}: no listener with SASL has this name. Expected {', '.join(with_sasl)}"
            )
        return
    strongest = max(_mechanisms(listener, properties), key=_strength, default="PLAIN")
    mechanism = given.get(CLIENT_MECHANISM, strongest).upper()
    name, password = next(iter(users.items()))
    module = _MODULES["SCRAM" if mechanism.startswith("SCRAM-") else "PLAIN"]
    found.client = {
        "security.protocol": with_sasl[listener].upper(),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required username={_quoted(name)} password={_quoted(password)};",
    }
    if found.client["security.protocol"] == "SASL_SSL":
        found.client |= {key: value for key, value in properties.items() if key.startswith("ssl.truststore.")}


def _strength(mechanism: str) -> int:
    order = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    return order.index(mechanism) if mechanism in order else -1
