"""`barnabas restore`: a new data directory from a backup."""

from .backup.commands import restore_app as app

__all__ = ["app"]
