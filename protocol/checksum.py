"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _load() -> Callable[..., int]:
    """Load the function from the wheel's extension module, without its package.

    The package looks up its own version when it is imported, through modules that take as long to load as the rest of a
    broker. For a wheel with another layout, the package is imported as usual.
    """
    package = find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", locations)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as packaged

        return packaged
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _load()
"""`crc32c(data, value=0)`: the checksum of `data`, continued from `value`, the checksum of the bytes before it."""
