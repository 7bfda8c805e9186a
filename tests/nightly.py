"""Parameters of tests: `make verify` runs the first few, and `make nightly` runs the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")


def mark_rest_nightly(parameters: Sequence[T], count: int) -> list[T | ParameterSet]:
    """Return all parameters, and mark every parameter after the first `count` with `nightly`."""
    rest = parameters[count:]
    assert rest, "no parameter is left for the nightly run"
    return [*parameters[:count], *(pytest.param(parameter, marks=pytest.mark.nightly) for parameter in rest)]
