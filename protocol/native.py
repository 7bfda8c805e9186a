"""The compiled twins of Python functions, if they are installed: `native` is their module, or None.

They are an optional acceleration: each caller has an equivalent Python function, and the tests require the same results
from both.
"""

from __future__ import annotations

__all__ = ["native"]

_REVISION = 15
"""Version in `speedups/module.c`: increase both when a signature changes.

In an updated checkout without a new installation, the old functions are not used.
"""

try:
    from . import _speedups as native
except ImportError:
    native = None  # type: ignore[assignment]
else:
    if native.REVISION != _REVISION:
        native = None  # type: ignore[assignment]
