"""JAAS strings as they stand in settings: a login module, a flag, and options (`sasl.jaas.config`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

_OPTION = re.compile(r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def jaas_options(text: str) -> dict[str, str]:
    """The options of the (first) login module that the text names; a text without any has none."""
    return {
        name: re.sub(r"\\(.)", r"\1", double or single) or plain
        for name, double, single, plain in _OPTION.findall(text)
    }


def kerberos_service(options: Mapping[str, str], configured: str | None) -> str | None:
    """The brokers' service, by `sasl.kerberos.service.name` or the option `serviceName`; None if neither says it.

    Raises ValueError if they contradict each other, as Kafka does.
    """
    named = options.get("serviceName")
    if named and configured and named != configured:
        raise ValueError(f"it is {configured}, and serviceName of the JAAS string is {named}")
    return configured or named
