"""The compiled twins of Python functions, where this installation has them: `native` is their module, or None.

They are an accelerator and nothing else: whoever calls one has a Python function that does the same, and the tests hold
both to the same results.
"""

from __future__ import annotations

try:
    from . import _speedups as native
except ImportError:
    native = None  # type: ignore[assignment]

__all__ = ["native"]
