"""The principal of a certificate: its distinguished name in Java's form, and `ssl.principal.mapping.rules` (KIP-371).

Kafka's SslPrincipalMapper. A rule is `RULE:pattern/replacement/`, followed by `L` or `U` for lower or upper case, or
`DEFAULT`, the unchanged name. The first rule that matches the whole name applies; without one, the client is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..config.keys.validators import ConfigError

KEY = "ssl.principal.mapping.rules"
DEFAULT = "DEFAULT"
_RULE = re.compile(r"RULE:(?P<pattern>(?:\\.|[^/\\])*)/(?P<replacement>(?:\\.|[^/\\])*)/(?P<case>[LU]?)")
_GROUP = re.compile(r"\$(\d)")
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The attributes with a keyword in RFC 2253."""
_OIDS = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),
    "serialNumber": ("2.5.4.5", 0x13),
    "surname": ("2.5.4.4", 0x0C),
    "givenName": ("2.5.4.42", 0x0C),
    "title": ("2.5.4.12", 0x0C),
    "dnQualifier": ("2.5.4.46", 0x13),
}
"""The attributes without a keyword: their OID, and the tag of their usual ASN.1 string type."""

Subject = Sequence[Sequence[tuple[str, str]]]
"""A subject in the form of Python's ssl module: sets of attributes, the most general first."""


def distinguished_name(subject: Subject) -> str:
    """Return the name in the form of Java's X500Principal.getName() (RFC 2253)."""
    return ",".join("+".join(_attribute(*pair) for pair in names) for names in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    if kind in _SHORT:
        return f"{_SHORT[kind]}={_escaped(value)}"
    oid, tag = _OIDS.get(kind, (kind, 0x0C))
    data = value.encode()
    size = bytes((len(data),)) if len(data) < 0x80 else bytes((0x82,)) + len(data).to_bytes(2, "big")
    return f"{oid}=#{(bytes((tag,)) + size + data).hex()}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text


class SslPrincipalMapper:
    """The rules of a listener in their order. Raises ConfigError for an invalid rule."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []
        rest = text.strip()
        while rest:
            if rest.startswith(DEFAULT):
                self._rules.append(None)
                rest = rest[len(DEFAULT) :]
            else:
                rest = rest[self._add(text, rest) :]
            if rest.strip() and not rest.lstrip().startswith(","):
                raise ConfigError(KEY, text, f"no comma before {rest}")
            rest = rest.strip().removeprefix(",").strip()

    def _add(self, text: str, rest: str) -> int:
        """Add the rule at the beginning of `rest`, and return its length."""
        found = _RULE.match(rest)
        if found is None:
            raise ConfigError(KEY, text, f"invalid rule: {rest}")
        try:
            pattern = re.compile(found["pattern"])
            replacement = _GROUP.sub(r"\\g<\1>", found["replacement"].replace("\\/", "/"))
            pattern.sub(replacement, "")
        except (re.error, IndexError) as error:
            raise ConfigError(KEY, text, f"{found['pattern']}: {error}") from None
        self._rules.append((pattern, replacement, found["case"]))
        return found.end()

    def name_of(self, distinguished: str) -> str | None:
        """Return the principal's name; None if no rule matches."""
        for rule in self._rules:
            if rule is None:
                return distinguished
            pattern, replacement, case = rule
            match = pattern.fullmatch(distinguished)
            if match is not None:
                name = match.expand(replacement)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        return None
