"""Outcomes of the topics, groups or partitions that a request acts on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import code_of

Outcome = KafkaError | None
"""The error of an item; None for success."""


def outcome(code: int, message: str | None) -> Outcome:
    """Return the error that a response reports, None for success."""
    return None if code == ErrorCode.NONE else KafkaError(code_of(code), message or "")


def raise_error(code: int, message: str | None) -> None:
    """Raise the error that a response reports, if any."""
    raise_first({None: outcome(code, message)})


def raise_first(outcomes: Mapping[Any, Outcome]) -> None:
    """Raise the first error among the outcomes, if there is one."""
    for outcome in outcomes.values():
        if outcome is not None:
            raise outcome
