"""JAAS strings of settings such as `sasl.jaas.config`: a login module, a flag, and options."""

from __future__ import annotations

import re
from collections.abc import Mapping

_OPTION = re.compile(r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")

_FLAGS = ("required", "requisite", "sufficient", "optional")


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of the first login module in the text, or an empty dict if there are none."""
    return {
        name: re.sub(r"\\(.)", r"\1", double or single) or plain
        for name, double, single, plain in _OPTION.findall(text)
    }


def check_jaas(text: str) -> None:
    """Raise ValueError unless the text is one login module with its flag and options (Kafka: JaasConfig)."""
    module, flag, options = (*text.split(None, 2), "", "", "")[:3]
    word = flag.rstrip(";")
    if not module or word.lower() not in _FLAGS:
        raise ValueError(f"expected a login module and one of {', '.join(_FLAGS)}")
    left = _OPTION.sub("", f"{flag[len(word) :]} {options}").strip()
    if not left.endswith(";"):
        raise ValueError("the login module is not terminated by a semicolon")
    if left != ";":
        # The text may hold a password: the error does not quote it.
        raise ValueError('expected options of the form name="value", and no second login module')


def kerberos_service(options: Mapping[str, str], configured: str | None) -> str | None:
    """Return the brokers' Kerberos service from `sasl.kerberos.service.name` or the option `serviceName`, or None.

    Raises ValueError if the two differ, as Kafka does.
    """
    named = options.get("serviceName")
    if named and configured and named != configured:
        raise ValueError(f"{configured}: serviceName of the JAAS string is {named}. Set both to the same service")
    return configured or named
