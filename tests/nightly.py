"""Tests with many parameters of one kind: `make verify` takes the first ones, `make nightly` the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")


def others_at_night(parameters: Sequence[T], count: int) -> list[T | ParameterSet]:
    """All of them; those after the first `count` are marked `nightly`."""
    rest = parameters[count:]
    assert rest, "nothing is left for the night"
    return [*parameters[:count], *(pytest.param(one, marks=pytest.mark.nightly) for one in rest)]
