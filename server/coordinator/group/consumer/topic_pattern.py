"""The regular expressions by which members of groups name topics (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from .....protocol.errors import ErrorCode, KafkaError


def topics_of(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Those of these topics that are meant. Raises KafkaError INVALID_REGULAR_EXPRESSION, whatever the topics."""
    # Loaded with the first of them, as Unicode's tables come along, of which few groups have a use.
    from ....patterns.linear_pattern import LinearPattern
    from ....patterns.regex_syntax import RegexSyntaxError

    try:
        pattern = LinearPattern(regex)
        return frozenset(name for name in names if pattern.matches(name))
    except RegexSyntaxError as error:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
