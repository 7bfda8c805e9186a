"""Errors of a request that names very many partitions: of those that say the same one is kept."""

from __future__ import annotations

from ...protocol.errors import KafkaError


class EqualErrors:
    """The errors of one request."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], KafkaError] = {}

    def like(self, error: KafkaError) -> KafkaError:
        """An error that says the same, as a result; one that says more, as of which records, is kept as it is."""
        result = error.as_result()
        return self._known.setdefault((error.code, error.message), result) if type(error) is KafkaError else result
