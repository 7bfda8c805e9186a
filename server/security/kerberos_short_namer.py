"""The user names of Kerberos principals (`sasl.kerberos.principal.to.local.rules`).

Kafka's KerberosName, KerberosRule and KerberosShortNamer. A rule is `DEFAULT`, the first part of a name in the broker's
realm, or `RULE:[n:format](pattern)s/from/to/g/L` for names of n parts. The first rule that matches applies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..config.keys.validators import ConfigError

KEY = "sasl.kerberos.principal.to.local.rules"
_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU]?)"
)
_PARAMETER = re.compile(r"\$(\d+)")
_NOT_SIMPLE = re.compile("[/@]")


class _Rule:
    """One rule for names with a number of parts (Kafka's KerberosRule)."""

    def __init__(self, text: str) -> None:
        """Raises ValueError, re.error, IndexError."""
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError("it is not a rule")
        self._parts = int(found["parts"] or -1)
        self._format = found["format"]
        self._match = re.compile(found["match"]) if found["match"] is not None else None
        self._old = re.compile(found["old"]) if found["old"] is not None else None
        self._new = _PARAMETER.sub(r"\\g<\1>", found["new"] or "")
        self._count = 0 if found["all"] else 1
        self._case = found["case"]
        if self._old is not None:
            self._old.sub(self._new, "")
        if any(int(number) > self._parts for number in _PARAMETER.findall(self._format)):
            raise ValueError("its format uses a part that the name does not have")

    def apply(self, realm: str, parts: Sequence[str]) -> str | None:
        if len(parts) != self._parts:
            return None
        all_parts = (realm, *parts)
        name = _PARAMETER.sub(lambda found: all_parts[int(found[1])], self._format)
        if self._match is not None and not self._match.fullmatch(name):
            return None
        if self._old is not None:
            name = self._old.sub(self._new, name, count=self._count)
        return name.lower() if self._case == "L" else name.upper() if self._case == "U" else name


class KerberosShortNamer:
    """The rules of a listener in their order. Raises ConfigError for an invalid rule."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        self._default_realm = default_realm
        self._rules: list[_Rule | None] = []
        for text in rules:
            try:
                self._rules.append(None if text == "DEFAULT" else _Rule(text))
            except (ValueError, re.error, IndexError) as error:
                raise ConfigError(KEY, text, str(error)) from None

    def name_of(self, principal: str) -> str | None:
        """Return the user name; None if no rule matches, or its result still has parts or a realm."""
        found = _NAME.fullmatch(principal)
        if found is None:
            return None
        realm, parts = found[3], [part for part in found.groups()[:2] if part is not None]
        for rule in self._rules:
            if rule is None:
                name = parts[0] if realm == self._default_realm else None
            else:
                name = rule.apply(realm, parts)
            if name is not None:
                return None if not name or _NOT_SIMPLE.search(name) else name
        return None
