"""JAAS files of Java's login configuration, as far as a broker's SASL listeners use them."""

from __future__ import annotations

import re

_COMMENTS = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SECTION = re.compile(r'([\w.-]+)\s*\{((?:[^}"]|"(?:[^"\\]|\\.)*")*)\}\s*;', re.DOTALL)
_ENTRY = re.compile(r'([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b((?:[^;"]|"(?:[^"\\]|\\.)*")*);', re.I)
MECHANISMS = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}


def read_jaas_section(text: str, name: str) -> dict[str, str]:
    """Return the entries of a section by SASL mechanism, each in the form that `sasl.jaas.config` has."""
    plain = _COMMENTS.sub(lambda found: found[1] or " ", text)
    entries: dict[str, str] = {}
    for section, body in _SECTION.findall(plain):
        if section != name:
            continue
        for module, options in _ENTRY.findall(body):
            for mechanism in MECHANISMS.get(module.rpartition(".")[2], ()):
                entries[mechanism] = f"{module} required {' '.join(options.split())};"
    return entries
