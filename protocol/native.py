"""The compiled twins of Python functions, where this installation has them: `native` is their module, or None.

They are an accelerator and nothing else: whoever calls one has a Python function that does the same, and the tests hold
both to the same results.
"""

from __future__ import annotations

__all__ = ["native"]

_REVISION = 14
"""What `speedups/module.c` says: raise both when a function changes what it takes or gives.

In a checkout that was updated and not installed anew, the functions of before are left alone.
"""

try:
    from . import _speedups as native
except ImportError:
    native = None  # type: ignore[assignment]
else:
    if native.REVISION != _REVISION:
        native = None  # type: ignore[assignment]
