"""JAAS strings as they stand in settings: a login module, a flag, and options (`sasl.jaas.config`)."""

from __future__ import annotations

import re

_OPTION = re.compile(r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def jaas_options(text: str) -> dict[str, str]:
    """The options of the (first) login module that the text names; a text without any has none."""
    return {
        name: re.sub(r"\\(.)", r"\1", double or single) or plain
        for name, double, single, plain in _OPTION.findall(text)
    }
