"""The errors in responses by API and error: Kafka's ErrorsPerSec, except for the error NONE.

Successful responses of Produce are not searched: only a response with an error is a `ProduceResponse`. In responses of
Metadata the partitions are not searched, of which there may be very many. The errors of a Fetch are counted where its
bytes are (`request_meters.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from ...protocol.apis import API_MESSAGES, ApiKey
from ...protocol.errors import code_of
from ...protocol.schema import Message, fields_of

CODE_FIELDS = ("error_code", "partition_error_code")
TOP_LISTS_ONLY = {ApiKey.METADATA}
"""APIs in whose responses the lists inside other lists are not searched."""
APART = {ApiKey.FETCH, ApiKey.API_VERSIONS}
"""APIs that `finder` returns no function for: ApiVersions has no errors but that of an unknown version, which every
newer client causes once."""


class ErrorPath(NamedTuple):
    """The place of an error code in a response: names of nested lists or structs, and of the field."""

    names: tuple[str, ...]
    code: str


def api_name(key: ApiKey) -> str:
    """Return the name of an API in metrics, as Kafka has it."""
    return key.name.title().replace("_", "")


def error_paths(key: ApiKey, version: int) -> list[ErrorPath]:
    """Return the places of error codes in the responses of one version of an API."""
    response: type = API_MESSAGES[key].response
    return list(_paths(response, version, (), most=1 if key in TOP_LISTS_ONLY else 8))


def _paths(struct: type, version: int, names: tuple[str, ...], most: int) -> Iterator[ErrorPath]:
    for field in fields_of(struct):
        if version not in field.versions:
            continue
        if field.name in CODE_FIELDS:
            yield ErrorPath(names, field.name)
        elif isinstance(field.element, type) and issubclass(field.element, Message) and len(names) < most:
            yield from _paths(cast(type, field.element), version, (*names, field.name), most)


class ErrorCounts:
    """Owned by the metrics; counts are added on the loop's thread."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[ApiKey, int]] = Counter()

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """Yield the names of the API and of the error, and the count. There is a bounded number of both."""
        sums = Counter[tuple[str, str]]()
        for (key, code), count in list(self._counts.items()):
            sums[api_name(key), code_of(code).name] += count
        for (api, error), count in sums.items():
            yield api, error, count

    def add(self, key: ApiKey, code: int) -> None:
        """Count one error."""
        self._counts[key, int(code)] += 1

    def update(self, key: ApiKey, codes: Counter[int]) -> None:
        """Count the errors that a function of `finder` has found."""
        for code, count in codes.items():
            self._counts[key, code] += count

    @staticmethod
    def finder(key: ApiKey, version: int) -> Callable[[Any], Counter[int] | None] | None:
        """Return a function that finds the errors in a response, on any thread; None if there is nothing to search.

        The function returns None for a response without errors.
        """
        paths = [] if key in APART else error_paths(key, version)
        if not paths:
            return None
        if paths == [ErrorPath((), "error_code")]:
            return _top_error

        def find(response: Any) -> Counter[int] | None:
            found: Counter[int] | None = None
            for names, code in paths:
                items = [response]
                for name in names:
                    items = [item for parent in items for item in _list_of(getattr(parent, name))]
                for item in items:
                    if number := getattr(item, code):
                        found = Counter() if found is None else found
                        found[int(number)] += 1
            return found

        return find


def _top_error(response: Any) -> Counter[int] | None:
    return Counter([int(response.error_code)]) if response.error_code else None


def _list_of(value: Any) -> Any:
    """Return the items of a list; a struct is one item, and null none."""
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)
