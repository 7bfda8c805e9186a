"""The error of a record that does not apply to the metadata before it."""

from __future__ import annotations


class MetadataError(Exception):
    """A record of the metadata log that contradicts the records before it.

    The replica of the metadata is then not the quorum's, so a broker cannot continue with it.
    """
