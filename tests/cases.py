"""A decorator that runs many cases as one test and lists the cases that fail."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 100


def in_one_test(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each case, as `pytest.mark.parametrize` does, but as one pytest item.

    Each item costs time in every collection. Use this decorator for dozens of cases, for example all versions of all
    APIs. The cases share the fixtures of the test. Two decorators on one test run all combinations of their cases.
    """
    arguments = [names] if isinstance(names, str) else list(names)
    all_values = [(case,) if isinstance(names, str) else case for case in cases]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def test_all(**fixtures: Any) -> None:
            failed = []
            for values in all_values:
                case = dict(zip(arguments, values, strict=True))
                try:
                    test(**fixtures, **case)
                except (Exception, SystemExit, pytest.fail.Exception) as error:
                    shown = ", ".join(f"{name}={SHORT.repr(value)}" for name, value in case.items())
                    failed.append(f"{shown}: {type(error).__name__}: {error}")
            assert all_values, "there are no cases"
            if failed:
                pytest.fail("\n".join([f"{len(failed)} of {len(all_values)} cases failed", *failed]))

        signature = inspect.signature(test)
        others = [value for name, value in signature.parameters.items() if name not in arguments]
        test_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return test_all

    return decorate
