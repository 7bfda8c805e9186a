"""Regular expressions of clients: what RE2 makes of them, and that no expression takes long."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from typing import Any

import pytest
import re2

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.coordinator.group.subscription_metadata import check_regex
from barnabas.server.patterns.linear_pattern import MAX_CHARACTERS, LinearPattern
from barnabas.server.patterns.regex_syntax import RegexSyntaxError

PIECES = [
    "a", "b", "A", ".", "-", "_", "1", "\\.", "\\d", "\\w", "\\W", "\\D", "\\s", "\\S", "[a-c]", "[^a-c]", "[^\\d_]",
    "[[:alpha:]]", "[[:^upper:]]", "\\pL", "\\p{Lu}", "\\P{Latin}", "\\p{^N}", "^", "$", "\\b", "\\B", "\\A", "\\z",
    "(?i)", "(?-i)", "(?i:a)", "(?s)", "(", "(?:", "(?P<x>", "(?<y>", ")", "|", "*", "+", "?", "{2}", "{1,3}", "{0,}",
    "{,3}", "{", "}", "\\Q.*\\E", "\\Q", "\\x41", "\\x{62}", "\\101", "[a", "-z]", "]", "[]b]", "[a-]", "[^-]",
    "\\p{Greek}", "\\p{Nobody}", "(?i)[a-c]", "(?i)\\p{Lu}", "\\1", "\\\\", "\u017f", "\u212a", "(?i)\u017f", "\u00e9",
    "\n", "[[:punct:]]", "[[:space:]]", "[[:^graph:]]", "[[:print:]]", "(?i)[[:lower:]]", "(?i)[^a]", "(?=", "*?", "+?",
    "\\C"[:1],
]  # fmt: skip
LETTERS = "abAB1._-kKsS :/~"


def re2_pattern(text: str) -> re2._Regexp | None:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error:
        return None


def our_pattern(text: str) -> LinearPattern | None:
    try:
        return LinearPattern(text)
    except RegexSyntaxError:
        return None


@pytest.mark.parametrize("seed", range(8))
def test_agreement_with_re2(seed: int) -> None:
    rng = random.Random(seed)
    valid = matched = 0
    for _ in range(700):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 8)))
        theirs, ours = re2_pattern(text), our_pattern(text)
        assert (theirs is None) == (ours is None), repr(text)
        if theirs is None or ours is None:
            continue
        valid += 1
        for _ in range(12):
            name = "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 5)))
            expected = theirs.fullmatch(name) is not None
            assert ours.matches(name) is expected, f"{text!r} {name!r}"
            matched += expected
    assert valid > 200 and matched > 80


@pytest.mark.parametrize(
    ("text", "names", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("orders.*", ["orders", "orders-eu", "orders.eu"], ["Orders"]),
        (r"(?i)orders\.(eu|us)", ["orders.eu", "ORDERS.Us"], ["ordersXeu", "orders.eus"]),
        (r"[a-z]{2,3}-\d+", ["ab-1", "abc-77"], ["a-1", "abcd-1", "ab-"]),
        ("", [""], ["a"]),
        ("a|", ["a", ""], ["b"]),
        (r"\bred\b.*", ["red", "red-1"], ["reds", "red1"]),
    ],
)
def test_names(text: str, names: list[str], others: list[str]) -> None:
    assert {name for name in names + others if LinearPattern(text).matches(name)} == {*names}


@pytest.mark.parametrize(
    "text",
    [
        "a(?=b)", r"(a)\1", "a++", "(", ")", "[", "[b-a]", "a{1001}", "(a{100}){11}", "*", "a**", "\\", r"\p{Nobody}",
        "(?P=x)", "(" * 101 + ")" * 101, "((a{500}){2}|b)" * 6,
    ],
)  # fmt: skip
def test_what_is_refused_says_why(text: str) -> None:
    with pytest.raises(KafkaError, match=r"is not a valid regular expression: .+") as refused:
        check_regex(text)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_expression_takes_long() -> None:
    pattern = LinearPattern("(a*)*" * 20 + "b")
    assert not pattern.matches("a" * 249)
    heavy = LinearPattern(".*a.{200}")
    rng = random.Random(7)
    with pytest.raises(RegexSyntaxError, match="too much work"):
        for _ in range(10_000):
            heavy.matches("".join(rng.choice("ab") for _ in range(249)))


@pytest.mark.parametrize(
    "text",
    [
        "(?i)" + "a" * 19_990,
        "(?i)[" + "\u4e00" * 19_990 + "]",
        "(?i)[" + "a-z" * 6600 + "]",
        "(?i)" + r"\pL" * 6600,
        "(?i)[" + "[:alpha:]" * 2200 + "]",
        "(" * 99 + "a" * 19_700 + ")*" * 99,
        "(" + "()" * 9990 + "){1000}",
        "(){1000}" * 2500,
    ],
)  # fmt: skip
def test_no_expression_is_long_to_read(text: str) -> None:
    """Counted in calls: time would be another machine's."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        with suppress(RegexSyntaxError):
            LinearPattern(text)
    finally:
        sys.setprofile(None)
    assert calls < 50 * MAX_CHARACTERS


def test_many_names_are_no_more_work_than_one() -> None:
    pattern = LinearPattern("(orders|payments)-.*")
    assert all(pattern.matches(f"orders-{number}") for number in range(100_000))
    assert all(pattern.matches(f"payments-{chr(0x4E00 + number)}") for number in range(20_000))


def test_however_many_steps_are_followed_at_once_a_known_way_is_one_look() -> None:
    """Equal sets of thousands of steps that were two objects would be compared, step by step, at each character."""
    pattern = LinearPattern("((.?){1000}(.?){1000})*")
    assert all(pattern.matches(f"t-{number}") for number in range(200))
    found = list(pattern._known.values())
    assert max(map(len, found)) > 2000
    assert len({id(steps) for steps in found}) == len(set(found)) < len(found)


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [(".*", True), ("[^a]+", True), (r"\W+", True), (r"\w+", False), ("\u6771", False), (r"\P{Latin}+", True)],
)
def test_characters_beyond_ascii_are_what_others_are_not(text: str, is_meant: bool) -> None:
    assert LinearPattern(text).matches("\u6771\u4eac") is is_meant
