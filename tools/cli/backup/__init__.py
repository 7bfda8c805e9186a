"""`barnabas backup`: copies of a running broker in a folder or an object store."""

from .commands import app

__all__ = ["app"]
