"""Java's .properties format, by its rules and against Java itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.common.properties import PropertiesError, format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3\nd\t=\t4\ne\f:5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("  a = 1  ", {"a": "1  "}),
        ("# comment \\\n! another\n\n \t\na=1", {"a": "1"}),
        ("a=1,\\\n    2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\r\n   2\rb=3", {"a": "12", "b": "3"}),
        ("a=1\\\n# no comment here", {"a": "1# no comment here"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b\\ c = d", {"a:b c": "d"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=caf\\u00e9 \\u4e2d\\ud83d\\ude00", {"a": "café 中😀"}),
        ("key", {"key": ""}),
        ("=value", {"": "value"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
        ("\\", {"": ""}),
        ("log.dirs=C:\\\\kafka\\\\logs", {"log.dirs": "C:\\kafka\\logs"}),
        ("sasl.jaas.config=X required \\\n  username=\"u\" \\\n  password=\"p#1\";",
         {"sasl.jaas.config": 'X required username="u" password="p#1";'}),
    ],
)  # fmt: skip
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1", "a=\\u+123"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(PropertiesError):
        parse_properties(text)


def test_what_is_written_gives_back_what_it_was_made_of() -> None:
    chance = random.Random(21)
    letters = " \t\n\r\f\\=:#!au\0é中😀"
    texts = ["".join(chance.choices(letters, k=chance.randrange(6))) for _ in range(2000)]
    properties = dict(zip(texts, reversed(texts), strict=True))
    text = format_properties(properties)
    assert text.isascii()
    assert parse_properties(text) == properties
    assert format_properties({"listeners": "A://127.0.0.1:1"}) == "listeners=A://127.0.0.1:1\n"


@pytest.mark.java
def test_any_text_is_read_as_java_reads_it() -> None:
    chance = random.Random(20)
    pieces = [
        "\\",
        "\\\\",
        "=",
        ":",
        "#",
        "!",
        " ",
        "\t",
        "\f",
        "\n",
        "\r",
        "\r\n",
        "u",
        "\\u0041",
        "\\u00e9",
        "n",
        "t",
    ]
    pieces += ["a", "b", "é", ""]
    # A whole last line: what Java makes of a lone backslash just before the end depends on its buffer.
    texts = ["".join(chance.choices(pieces, k=chance.randrange(24))) + "\nz=1" for _ in range(8000)]
    classpath = jars("com.fasterxml.jackson.core:jackson-databind:2.16.2")
    sources = Path(__file__).parent / "config_oracle" / "properties"
    classes = compile_java(sources, classpath)
    lines = "\n".join(json.dumps(text) for text in texts)
    result = run_java("PrintProperties", [classes, *classpath], stdin=lines, timeout=60)
    assert result.returncode == 0, result.stderr
    theirs = [json.loads(line) for line in result.stdout.splitlines()]
    ours: list[dict[str, str] | None] = []
    for text in texts:
        try:
            ours.append(parse_properties(text))
        except PropertiesError:
            ours.append(None)
    assert len(theirs) == len(texts)
    assert [(t, o, j) for t, o, j in zip(texts, ours, theirs, strict=True) if o != j] == []
