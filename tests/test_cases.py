"""Tests of `in_one_test`: it runs all cases, and lists the cases that fail."""

import inspect
import sys

import pytest
from tests.cases import in_one_test


def test_failing_cases_are_listed_after_all_cases_have_run() -> None:
    ran = []

    @in_one_test(("left", "right"), [(1, 1), (1, 2), (3, 3), (0, 4)])
    def are_equal(left: int, right: int) -> None:
        ran.append(left)
        assert left == right, f"not {right}"

    with pytest.raises(pytest.fail.Exception) as raised:
        are_equal()
    assert ran == [1, 1, 3, 0]
    lines = str(raised.value).splitlines()
    assert lines[0] == "2 of 4 cases failed"
    assert [line for line in lines if line.startswith("left=")] == [
        "left=1, right=2: AssertionError: not 2",
        "left=0, right=4: AssertionError: not 4",
    ]


def test_a_missing_error_and_an_exit_are_failures_of_their_case() -> None:
    @in_one_test("text", ["1", "x", "exit"])
    def is_rejected(text: str) -> None:
        if text == "exit":
            sys.exit(2)
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(pytest.fail.Exception) as raised:
        is_rejected()
    assert str(raised.value).splitlines() == [
        "2 of 3 cases failed",
        "text='1': Failed: DID NOT RAISE ValueError",
        "text='exit': SystemExit: 2",
    ]


def test_two_decorators_give_all_combinations_and_leave_the_fixtures() -> None:
    seen = []

    @in_one_test("left", [2, 3])
    @in_one_test("right", [4, 5])
    def multiply(left: int, right: int, factor: int) -> None:
        seen.append(left * right * factor)

    assert list(inspect.signature(multiply).parameters) == ["factor"]
    multiply(factor=10)
    assert seen == [80, 100, 120, 150]


def test_a_test_without_cases_fails() -> None:
    @in_one_test("number", [])
    def nothing(number: int) -> None: ...

    with pytest.raises(AssertionError, match="there are no cases"):
        nothing()
