"""JSON as the console and the command line show it: numbers and names are those of the record."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from barnabas.clients.json_text import one_line, parse_text, pieces
from barnabas.tools.console import previews
from barnabas.tools.console.record_filter import record_filter

DIGITS = "9" * 5000
"""More than Python makes a number of."""


def random_value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        return rng.choice([1, -1.5, 'a"\\\n\u00e9{', True, None, "", [], {}])
    if kind < 0.7:
        return [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {f"{rng.choice('ab]')}{n}": random_value(rng, depth - 1) for n in range(rng.randint(0, 3))}


def test_text_has_the_spaces_of_json_dumps() -> None:
    rng = random.Random(27)
    for _ in range(300):
        value = random_value(rng, 4)
        for indent in (None, 2):
            for text in (json.dumps(value), json.dumps(value, indent=3), json.dumps(value, separators=(",", ":"))):
                shown = "".join(pieces(parse_text(text), indent))
                assert shown == json.dumps(value, indent=indent, ensure_ascii=False)


@pytest.mark.parametrize("text", ["{", "1 2", "[1,]", "'a'", "", '{"a":01}', "nan"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_text(text)


def test_a_number_that_json_has_not_is_text() -> None:
    assert one_line({"a": [float("nan"), float("-inf"), b"\xff"]}) == '{"a": ["NaN", "-Infinity", "ff"]}'
    assert one_line(parse_text('{"a":[NaN,-Infinity]}')) == '{"a": ["NaN", "-Infinity"]}'


def test_a_record_alone_is_shown_with_its_numbers_and_names() -> None:
    document = f'{{"a":12345678901234567.89,"a":0.10,"b":[1e400,{DIGITS}]}}'
    shown = previews.full(document.encode())["forms"]["json"]
    assert shown == f'{{\n  "a": 12345678901234567.89,\n  "a": 0.10,\n  "b": [\n    1e400,\n    {DIGITS}\n  ]\n}}'


@pytest.mark.parametrize(
    ("document", "path", "is_found"),
    [
        ('{"r":1.10}', "$.r = 1.10", True),
        ('{"r":1.10}', "$.r = 1.1", True),
        ('{"r":"1.10"}', "$.r = 1.1", False),
        ('{"r":1e400}', "$.r = 1e400", True),
        ('{"r":12345678901234567.89}', "$.r = 12345678901234567.89", True),
        ('{"r":12345678901234567.89}', "$.r = 12345678901234567", False),
        ('{"r":9007199254740993}', "$.r = 9007199254740992", False),
        (f'{{"r":{DIGITS}}}', f"$.r = {DIGITS}", True),
        ('{"r":1,"r":2}', "$.r = 1", True),
        ('{"r":1,"r":2}', "$.r = 2", True),
        ('{"r":1,"r":2}', "$.r = 3", False),
        ('{"r":true}', "$.r = 1", False),
        ('{"r":[1.0,{"s":null}]}', '$.r = [1, {"s": null}]', True),
        ('{"r":[1.0,{"s":null}]}', "$.r[1].s = null", True),
        ('{"r":NaN}', "$.r = NaN", True),
        ('{"r":1e99999999999999999999}', "$.r", True),
        ("\ufeff{}", "$.r", False),
    ],
)
def test_a_path_finds_a_number_as_it_is_written(document: str, path: str, is_found: bool) -> None:
    assert record_filter(path=path)(None, document.encode()) is is_found
