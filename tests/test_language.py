"""Search every text that readers of Barnabas meet for constructions that a native reader has to decode.

The texts are docstrings, comments and prose strings of the product (error messages, log formats, help, descriptions of
settings) and of the modules directly in `tests`, the texts of the console, and the documentation. `RULES` lists the
constructions and their replacements. `language_baseline.json` holds the number of findings that each file still has.
That number may only fall:

    python -m tests.test_language                       # findings per file and per rule
    python -m tests.test_language --list FILE [FILE …]  # each finding with its line
    python -m tests.test_language --write               # lower the baseline to the current findings
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tests" / "language_baseline.json"
ROOMS = (
    "common",
    "native",
    "protocol",
    "storage",
    "server",
    "clients",
    "arrow",
    "table",
    "spark",
    "tools",
    "simulation",
    "testing",
    "bench",
    "soak",
)
TEST_MODULES = "tests/*.py"
"""The support modules of all tests. This module is exempt, because it contains bad examples."""
PAGES = ("*.md", "*/README.md", "docs/**/*.md", ".github/**/*.md", ".github/**/*.yml")
PEOPLE = (
    r"operators?|users?|readers?|developers?|engineers?|persons?|people|authors?|contributors?|maintainers?|attackers?"
)


@dataclass(frozen=True)
class Rule:
    """A construction to avoid: the expression that finds it in a sentence, and its replacement."""

    name: str
    pattern: str
    instead: str
    allowed: str = ""
    """Matches of the pattern that are acceptable."""


RULES = (
    Rule(
        "pronoun-who",
        r"\b(?:who|whom|whoever|whomever|nobody|somebody|everybody|someone|no one)\b",
        "name the client, the broker, the request, the record",
        rf"\b(?:{PEOPLE}),? who\b",
    ),
    Rule("whose-opening", r"^Whose\b", "name the owner: the broker's …, the record's …"),
    Rule(
        "pronoun-what", r"\bwhat(?:ever)?\b", "name the thing: the value, the request, the settings", r"\bwhat to \w+"
    ),
    Rule(
        "pronoun-those",
        r"\bthose\b(?= (?:of|that|who|which|whose|are|is|in|with|by|from|have|had|do|to|for|on|at|without|before)\b)"
        r"|\bthose(?=[.,;:)]|$)",
        "repeat the noun",
    ),
    Rule("pronoun-one", r"\bone (?:that|who|whose|which|is|has|was|may|can)\b", "repeat the noun"),
    Rule(
        "software-that-speaks",
        r"\b(?:tells?|told|telling|hears?|heard|hearing|says|said|saying|asks|asked|asking|knows|believes|believed"
        r"|speaks|spoke|speaking|thinks?)\b"
        r"|\b(?:clients|brokers|followers|leaders|members|consumers|producers|others|programs|they|may|must|can|to) "
        r"(?:ask|hear|say|know|believe|speak)\b",
        "reports, returns, receives, sets, requires, supports, logs",
    ),
    Rule(
        "verb-of-motion",
        r"\b(?:goes|gone|stays?|stayed|staying|comes?|came|coming|lies|lie|lay|stands?|stood|standing)\b(?!-)",
        "is deleted, expires, is kept, arrives, is stored, is in",
        r"\bstands? for\b|\bfirst[- ]come|\bstanding replicas?\b",
    ),
    Rule("rights", r"\brules? of access\b|\brights?\b(?= (?:of|to|are|is|on)\b)|\brights\b", "ACLs, permissions"),
    Rule(
        "is-no",
        r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|later\b|earlier\b|greater\b|larger\b"
        r"|smaller\b|older\b|newer\b|slower\b|faster\b)\w+|\b(?:is|are) none of\b",
        "is not a valid …; expected one of …",
    ),
    Rule(
        "so-many",
        r"\bso (?:many|long|much|few|often)\b|\b(?:their|its|the) like\b|\band such\b|\bof such\b|\bsuch(?=[.,;:)]|$)",
        "the noun and the number",
        r"\bso long as\b|\bas such\b",
    ),
    Rule(
        "beside",
        r"\b(?:beside|behind|anew|meanwhile|at once|henceforth|thereby|wherever|to and fro)\b",
        "next to, compared with, after, again, immediately, together",
        r"\bbehind (?:a|the) (?:proxy|load balancer|NAT|firewall)\b",
    ),
    Rule(
        "rate-with-a",
        r"\b(?:\d+|bytes?|times|once|twice|records?|requests?|messages?|connections?|changes|entries|lines?|symlinks?"
        r"|objects?|fdatasync|calls?|slots?|files?|numbers?|threads?|[KMG]i?B|[mµn]?s|cpu-s)"
        r" an? (?:second|minute|hour|day|line|GB|GiB|MB|record|request|partition|batch|key|file|topic|member|turn"
        r"|room|API|disk|round|connection)\b",
        "per second, per line, per GB",
    ),
    Rule("we", r"\b(?:[Ww]e|[Oo]urs?|us|ourselves)\b", "Barnabas, the broker", r"\bbut we wanted an endpoint\b"),
    Rule(
        "metaphor",
        r"\b(?:doors?|office|strangers?|seats?|errands?|patience|alike|crowds?|crowded|heirs?|doomed|wish(?:es|ed)?"
        r"|heeds?|heeded|fro|lends?|lent|begets|begat|befalls|dwell\w*)\b",
        "the plain noun of the role: listener, controller, unauthenticated client, request",
    ),
    Rule("here", r"\b(?:led|held|hosted|kept|known|is|are|it) here\b", "on this broker"),
    Rule("to-be-had", r"\bto be (?:seen|had|got|told)\b|\b(?:can|may) be (?:had|seen|got)\b", "is shown, is available"),
    Rule(
        "by-itself",
        r"\bof (?:itself|themselves)\b|\bof old\b(?=[.,;:)]| with\b|$)|\bas ever\b|\bfor ever\b",
        "reports, earlier, forever",
    ),
)

_ANY = re.compile("|".join(f"(?:{rule.pattern})" for rule in RULES), re.IGNORECASE)
"""A single search skips the texts without findings, which are most."""
_COMPILED = [
    (
        rule,
        re.compile(rule.pattern, 0 if rule.name == "we" else re.IGNORECASE),
        re.compile(rule.allowed or r"(?!)", re.I),
    )
    for rule in RULES
]
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{1,}[,;:]? [a-z(`{]")
"""Three words in a row: a string for people, not a key or code."""
_CODE = re.compile(r"`[^`\n]*`|\{[^{}\n]*\}|%\(?[\w.]*\)?[sdrf]\b|https?://\S+")
"""Names and placeholders within a text."""
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\s\|\s?|\n\s*[*-] ")
_QUESTION = re.compile(r"\?[\"')*]*$")


@dataclass(frozen=True)
class Finding:
    """A phrase that a rule matched, and the line of the text that holds it."""

    line: int
    rule: Rule
    phrase: str
    sentence: str


def findings_in(text: str, line: int = 1) -> Iterator[Finding]:
    """Yield the findings in a text that begins on the given line, skipping questions."""
    if _ANY.search(text) is None:
        return
    text = _CODE.sub(lambda match: "X" * len(match[0]), text)
    start = 0
    for end in [*(match.start() for match in _SENTENCE.finditer(text)), len(text)]:
        sentence = text[start:end].strip(" \n|*-#>\"'")
        if _ANY.search(sentence) is not None and not _QUESTION.search(sentence):
            for rule, pattern, allowed in _COMPILED:
                fine = [match.span() for match in allowed.finditer(sentence)]
                for match in pattern.finditer(sentence):
                    if not any(first <= match.start() and match.end() <= last for first, last in fine):
                        at = text.find(sentence, start)
                        row = line + text.count("\n", 0, at + match.start())
                        yield Finding(row, rule, match[0], " ".join(sentence.split()))
        start = end


_PYTHON = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<prefix>\b[rRbBfFuU]{1,2})?(?P<quote>\"{3}|'{3}|"|')(?P<body>(?:\\[\s\S]|(?!(?P=quote))[^\\])*)(?P=quote)""",
    re.VERBOSE,
)
"""Comments and strings in file order. Searching a file is ten times cheaper than building its syntax tree."""


def texts_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, prose strings and comments with their line numbers. Adjacent literals are one text."""
    line, at = 1, 0
    kind, first, text, end = "", 0, "", 0
    for match in _PYTHON.finditer(source):
        prefix = (match["prefix"] or "").lower()
        if "b" in prefix or (prefix == "r" and len(match["quote"]) == 1):
            continue
        line, at = line + source.count("\n", at, match.start()), match.start()
        now = "comment" if match["comment"] else "string"
        part = match["comment"][1:].lstrip("!") if match["comment"] else match["body"]
        if (
            kind == now
            and source[end : match.start()].strip(" ") in ("", "\n")
            and (now == "comment" or match["quote"] == '"')
        ):
            # Implicitly concatenated strings, or consecutive lines of a comment.
            text += "\n" * (line - first - text.count("\n")) + part
        else:
            if kind == "comment" or _PROSE.search(text):
                yield first, text
            kind, first, text = now, line, part
        end = match.end()
    if kind == "comment" or _PROSE.search(text):
        yield first, text


def texts_of_page(source: str) -> Iterator[tuple[int, str]]:
    """Yield the prose of a Markdown page, including table cells and the comments in code blocks."""
    source = re.sub(r"(?s)<!-- compatibility -->.*?<!-- /compatibility -->", lambda m: "\n" * m[0].count("\n"), source)

    def comments(block: re.Match[str]) -> str:
        lines = (re.search(r"(?:^|\s)# (.*)$", line) for line in block[0].split("\n"))
        return "\n\n".join(line[1] + "." if line else "" for line in lines).replace("\n\n", "\n")

    yield 1, re.sub(r"(?ms)^ *```.*?^ *```", comments, source)


def texts_of_script(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings and comments of a JavaScript file."""
    for match in re.finditer(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`(?:[^`\\]|\\.)*`|(?://|/\*) .*', source):
        if _PROSE.search(match[0]):
            yield source.count("\n", 0, match.start()) + 1, re.sub(r"\$\{[^}]*\}", "{}", match[0])


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file with their line numbers."""
    source = path.read_text()
    match path.suffix:
        case ".py":
            yield from texts_of_python(source)
        case ".js":
            yield from texts_of_script(source)
        case ".html":
            yield 1, re.sub(r"(?s)<[^>]*>", lambda m: "\n" * m[0].count("\n") + " ", source)
        case ".c" | ".h":
            for match in re.finditer(r"(?s)/\*.*?\*/|//[^\n]*", source):
                yield source.count("\n", 0, match.start()) + 1, match[0]
        case _:
            yield from texts_of_page(source)


def read_files() -> Iterator[Path]:
    """Yield every file that the rules apply to."""
    for room in ROOMS:
        for suffix in ("py", "c", "h", "js", "html"):
            yield from sorted((ROOT / room).rglob(f"*.{suffix}"))
    yield from sorted(path for path in ROOT.glob(TEST_MODULES) if path.name != Path(__file__).name)
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))


def findings(paths: Iterable[Path]) -> dict[str, list[Finding]]:
    """Return the findings of each file that has any, by path."""
    found: dict[str, list[Finding]] = {}
    for path in dict.fromkeys(paths):
        of_file = [finding for line, text in texts_of(path) for finding in findings_in(text, line)]
        if of_file:
            found[path.relative_to(ROOT).as_posix()] = sorted(of_file, key=lambda finding: finding.line)
    return found


def baseline() -> dict[str, int]:
    """Return the permitted number of findings per file."""
    return dict(json.loads(BASELINE.read_text())) if BASELINE.exists() else {}


def compare(found: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Return a line for each file whose number of findings differs from its baseline."""
    lines = []
    for name in sorted(found.keys() | allowed.keys()):
        now, before = found.get(name, 0), allowed.get(name, 0)
        if now > before:
            lines.append(f"{name}: {now} findings, {before} allowed: python -m tests.test_language --list {name}")
        elif now < before:
            lines.append(f"{name}: {now} findings, {before} allowed: python -m tests.test_language --write")
    return lines


def test_no_file_has_more_findings_than_its_baseline() -> None:
    found = {name: len(of_file) for name, of_file in findings(read_files()).items()}
    lines = compare(found, baseline())
    assert lines == [], "\n" + "\n".join(lines)


def test_no_docstring_begins_with_a_preposition() -> None:
    """Such an opening, as in "By partition, the oldest first.", leaves out the noun that the text describes."""
    opening = re.compile(r'^ *"""(?:By|For|From|With)\b.*', re.MULTILINE)
    paths = [path for path in read_files() if path.suffix == ".py"]
    found = [f"{path.relative_to(ROOT)}: {text}" for path in paths for text in opening.findall(path.read_text())]
    assert found == [], "\n" + "\n".join(found)


def test_findings_are_found_and_plain_sentences_are_not() -> None:
    bad = {
        "What is asked for again within a second is what it was.": {"pronoun-what", "software-that-speaks"},
        "A client who fetches is told to wait.": {"pronoun-who", "software-that-speaks"},
        "It is no number.": {"is-no"},
        "Three symlinks a room, 5 MB a second.": {"rate-with-a"},
        "Our clients retry at once.": {"we", "beside"},
        "The record goes, its key stays.": {"verb-of-motion"},
        "Those that lag are removed.": {"pronoun-those"},
        "Rules of access are kept behind the door.": {"rights", "beside", "metaphor"},
    }
    for text, rules in bad.items():
        assert {finding.rule.name for finding in findings_in(text)} == rules, text
    good = (
        "Responses are cached for one second.",
        "What does the log hold?",
        "An operator who changes `what` restarts the broker.",
        "There is no authentication on this listener.",
        "`told` is a name in code, not in prose.",
        "A follower that has not caught up is removed from the ISR.",
    )
    for text in good:
        assert list(findings_in(text)) == [], text


def test_texts_of_code_are_read_with_their_lines() -> None:
    source = '"""A module for whom."""\nx = 1  # nobody\n# first\n# who\nraise E(f"{x} is told by {y} what it is")\n'
    found = [
        (finding.line, finding.phrase) for line, text in texts_of_python(source) for finding in findings_in(text, line)
    ]
    assert sorted(found) == [(1, "whom"), (2, "nobody"), (4, "who"), (5, "told"), (5, "what")]
    page = "# Title\n\nText.\n\n```sh\nbarnabas top  # what is busy\n```\n\n| a | who |\n"
    assert [finding.line for line, text in texts_of_page(page) for finding in findings_in(text, line)] == [6, 9]


def test_a_number_of_findings_may_only_fall() -> None:
    assert compare({"a.py": 2, "b.py": 1}, {"a.py": 2, "b.py": 1}) == []
    rises, falls, added = compare({"a.py": 3, "b.py": 1, "c.py": 1}, {"a.py": 2, "b.py": 2})
    assert rises.startswith("a.py: 3 findings, 2 allowed") and rises.endswith("--list a.py")
    assert falls.startswith("b.py: 1 findings, 2 allowed") and falls.endswith("--write")
    assert added.startswith("c.py: 1 findings, 0 allowed")


def main() -> int:
    """Print findings or write the baseline, and return the exit status of the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.test_language", description=__doc__.split("\n")[0])
    parser.add_argument("--list", nargs="+", metavar="FILE", help="print each finding in these files or folders")
    parser.add_argument("--write", action="store_true", help="lower the baseline to the current findings")
    parser.add_argument(
        "--new-rules", action="store_true", help="with --write: accept a higher total after adding rules"
    )
    options = parser.parse_args()
    if options.list:
        given = [Path(name).resolve() for name in options.list]
        chosen = [path for path in read_files() if any(path.is_relative_to(one) for one in given)]
        for name, of_file in findings(chosen or given).items():
            for one in of_file:
                sentence = one.sentence if len(one.sentence) < 160 else one.sentence[:157] + "…"
                print(f"{name}:{one.line}: [{one.rule.name}] “{one.phrase}” → {one.rule.instead}\n    {sentence}")
        return 0
    found = findings(read_files())
    counts = {name: len(of_file) for name, of_file in found.items()}
    total, before = sum(counts.values()), sum(baseline().values())
    if options.write:
        if BASELINE.exists() and total > before and not options.new_rules:
            print(f"{total} findings, {before} in the baseline: the total may only fall")
            return 1
        entries = ",\n".join(f"  {json.dumps(name)}: {counts[name]}" for name in sorted(counts))
        BASELINE.write_text("{\n" + entries + "\n}\n")
    else:
        for name, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:5} {name}")
        by_rule = Counter(finding.rule.name for of_file in found.values() for finding in of_file)
        for rule, count in by_rule.most_common():
            print(f"{count:5} [{rule}]")
    print(f"{total} findings in {len(counts)} files; {before} in the baseline")
    return 0


if __name__ == "__main__":
    sys.exit(main())
