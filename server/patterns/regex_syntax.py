"""Parses regular expressions in RE2's syntax, as far as matching single-line names requires.

A set of characters is a bit mask: the printable ASCII characters (`ALPHABET`), and one bit for all others, which `.`
and negated sets contain; no expression can name a single one of them. Captures and greediness do not matter, because
only matches of whole names count. Constructs that RE2 rejects are rejected: back references, lookaround, possessive
repetition.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from .unicode_scripts import SCRIPTS

ALPHABET = "".join(map(chr, range(ord(" "), ord("~") + 1)))
OTHERS = 1 << len(ALPHABET)
EVERYTHING = OTHERS | OTHERS - 1
MAX_REPETITIONS = 1000
"""The limit for the product of all repetitions around a part of an expression, as in RE2."""
MAX_NESTING = 100
"""The limit for the depth of parentheses."""
LAST_CHARACTER = 0x10FFFF


class RegexSyntaxError(ValueError):
    """The text is not a regular expression of RE2."""


class Anchor(Enum):
    """An assertion about a position in a name."""

    BEGIN = "begin"
    END = "end"
    WORD_EDGE = "word edge"
    NO_WORD_EDGE = "no word edge"


class Chars(NamedTuple):
    """One character of a set."""

    mask: int


class Sequence(NamedTuple):
    """A sequence of nodes."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """A choice between nodes."""

    options: tuple[Node, ...]


class Repeat(NamedTuple):
    """A repetition; `most` is None for no limit."""

    part: Node
    least: int
    most: int | None
    times: int
    """The highest number of repetitions of a part of it."""


Node = Chars | Sequence | Choice | Repeat | Anchor


def mask_of(accepts: Callable[[str], bool]) -> int:
    """Return the characters of the alphabet for which `accepts` holds."""
    return sum(1 << number for number, character in enumerate(ALPHABET) if accepts(character))


_UPPER, _LOWER = mask_of(str.isupper), mask_of(str.islower)
_LOWER_BY = ord("a") - ord("A")
"""The distance of a letter from its capital, here as in ASCII."""
_THIRD_FORMS = ((ord("\u017f"), mask_of("sS".__contains__)), (ord("\u212a"), mask_of("kK".__contains__)))
"""Two letters have one, if capitals do not matter."""
_DIGITS = mask_of(str.isdigit)
_WORDS = mask_of(lambda character: character.isalnum() or character == "_")
_SPACE = mask_of(str.isspace)
_PRINTED = EVERYTHING & ~OTHERS
_PERL = {"d": _DIGITS, "w": _WORDS, "s": _SPACE}
_POSIX = {
    "alnum": mask_of(str.isalnum),
    "alpha": mask_of(str.isalpha),
    "ascii": _PRINTED,
    "blank": _SPACE,
    "cntrl": 0,
    "digit": _DIGITS,
    "graph": _PRINTED & ~_SPACE,
    "lower": _LOWER,
    "print": _PRINTED,
    "punct": mask_of(lambda character: character in string.punctuation),
    "space": _SPACE,
    "upper": _UPPER,
    "word": _WORDS,
    "xdigit": mask_of(lambda character: character in string.hexdigits),
}
_CATEGORY_NAMES = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
_KINDS = [unicodedata.category(character) for character in ALPHABET]
_CATEGORIES = {
    name: sum(1 << number for number, kind in enumerate(_KINDS) if kind.startswith(name))
    for name in _CATEGORY_NAMES.split()
}
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_ANCHORS = {"A": Anchor.BEGIN, "z": Anchor.END, "b": Anchor.WORD_EDGE, "B": Anchor.NO_WORD_EDGE}
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\?P?<([A-Za-z0-9_]+)>")
_FLAGS = re.compile(r"\?([imsU]*)(-[imsU]+)?([:)])")
_POSIX_CLASS = re.compile(r"\[:(\^?)([a-z]+):\]")
_HEX = re.compile(r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2})")
_UNICODE = re.compile(r"\{(\^?)([A-Za-z_]+)\}|([A-Z])")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")


def parse(text: str) -> Node:
    """Parse a regular expression. Raises RegexSyntaxError."""
    parser = _Parser(text)
    node = parser.choice()
    if parser.position < len(text):
        raise RegexSyntaxError("unexpected )")
    return node


class _Parser:
    """Recursive descent; the flag `i` holds to the end of the group it is set in, the others make no difference."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0
        self._folds = False
        self._depth = 0

    def _peek(self) -> str:
        return self._text[self.position : self.position + 1]

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self.position):
            self.position += len(expected)
            return True
        return False

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def choice(self) -> Node:
        """Alternatives, up to the end of the group."""
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts += self._quoted() if self._take("\\Q") else self._atom()
            if parts:
                # Flags and empty quotes produce no node: a repetition after them applies to the node before them.
                parts.append(self._repeated(parts.pop()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        end = self._text.find("\\E", self.position)
        quoted = self._text[self.position : end if end >= 0 else len(self._text)]
        self.position += len(quoted)
        self._take("\\E")
        return [self._literal(ord(character)) for character in quoted]

    # -- repetition ------------------------------------------------------------------------------------------------

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._take("?")
        if self._bounds() is not None:
            raise RegexSyntaxError("bad repetition operator")
        least, most = bounds
        times = max(least if most is None else most, 1) * _repetitions(node)
        if times > MAX_REPETITIONS:
            raise RegexSyntaxError("invalid repetition size")
        return Repeat(node, least, most, times)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Return the repetition at the current position; None if there is none. A `{` without a count is literal."""
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(symbol):
                return bounds
        count = self._match(_COUNT)
        if count is None:
            return None
        least = _number(count[1])
        most = least if count[2] is None else _number(count[3]) if count[3] else None
        if least > MAX_REPETITIONS or (most is not None and not least <= most <= MAX_REPETITIONS):
            raise RegexSyntaxError("invalid repetition size")
        return least, most

    # -- atoms -----------------------------------------------------------------------------------------------------

    def _atom(self) -> list[Node]:
        """Return one thing, or nothing where flags are set."""
        if self._bounds() is not None:
            raise RegexSyntaxError("no argument for repetition operator")
        character = self._peek()
        if character == "[":
            return [Chars(self._class())]
        self.position += 1
        return self._group() if character == "(" else [self._single(character)]

    def _single(self, character: str) -> Node:
        match character:
            case ".":
                return Chars(EVERYTHING)
            case "^":
                return Anchor.BEGIN
            case "$":
                return Anchor.END
            case "\\":
                return self._escape()
            case _:
                return self._literal(ord(character))

    def _group(self) -> list[Node]:
        folds = self._folds
        if self._peek() == "?" and self._match(_GROUP) is None:
            flags = self._match(_FLAGS)
            if flags is None:
                raise RegexSyntaxError("invalid perl operator")
            if "i" in flags[1]:
                self._folds = True
            if flags[2] is not None and "i" in flags[2]:
                self._folds = False
            if flags[3] == ")":
                return []
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise RegexSyntaxError("nesting too deep")
        node = self.choice()
        self._depth -= 1
        if not self._take(")"):
            raise RegexSyntaxError("missing closing )")
        self._folds = folds
        return [node]

    def _escape(self) -> Node:
        anchor = _ANCHORS.get(self._peek())
        if anchor is not None:
            self.position += 1
            return anchor
        mask = self._class_escape()
        return Chars(mask) if mask is not None else self._literal(self._escaped_character())

    def _literal(self, code: int) -> Chars:
        return Chars(self._range(code, code))

    def _range(self, low: int, high: int) -> int:
        first, last = ord(ALPHABET[0]), ord(ALPHABET[-1])
        count = min(high, last) - max(low, first) + 1
        mask = self._folded((1 << count) - 1 << max(low, first) - first) if count > 0 else 0
        for third, letters in _THIRD_FORMS:
            if self._folds and low <= third <= high:
                mask |= letters
        return mask

    def _class_escape(self) -> int | None:
        """Return the characters of an escape like `\\d` or `\\pL`, None for another kind of escape."""
        kind = self._peek()
        if kind.lower() in _PERL and kind:
            self.position += 1
            mask = _PERL[kind.lower()]
            return mask if kind.islower() else EVERYTHING & ~mask
        if kind not in ("p", "P"):
            return None
        self.position += 1
        name = self._match(_UNICODE)
        if name is None:
            raise RegexSyntaxError("invalid character class range")
        mask = self._unicode(name[2] or name[3])
        return mask if (kind == "P") == bool(name[1]) else EVERYTHING & ~mask

    def _unicode(self, name: str) -> int:
        if name == "Any":
            return EVERYTHING
        if name in _CATEGORIES:
            return self._folded(_CATEGORIES[name])
        if name not in SCRIPTS:
            raise RegexSyntaxError(f"invalid character class range: {name}")
        letters = _POSIX["alpha"]
        return letters if name == "Latin" else EVERYTHING & ~letters if name == "Common" else 0

    def _escaped_character(self) -> int:
        """Return the code of a character after a backslash."""
        octal = self._match(_OCTAL)
        if octal is not None:
            return int(octal[0], 8)
        character = self._peek()
        self.position += 1
        if character == "x":
            digits = self._match(_HEX)
            code = int(digits[1] or digits[2], 16) if digits is not None else LAST_CHARACTER + 1
            if code > LAST_CHARACTER:
                raise RegexSyntaxError("invalid escape sequence")
            return code
        if character in _ESCAPES:
            return _ESCAPES[character]
        if not character or not character.isascii() or character.isalnum():
            raise RegexSyntaxError(f"invalid escape sequence: \\{character}" if character else "trailing \\")
        return ord(character)

    # -- classes ---------------------------------------------------------------------------------------------------

    def _class(self) -> int:
        self.position += 1
        is_negated = self._take("^")
        mask, is_first = 0, True
        while is_first or self._peek() != "]":
            if not self._peek():
                raise RegexSyntaxError("missing closing ]")
            mask |= self._class_item()
            is_first = False
        self.position += 1
        return EVERYTHING & ~mask if is_negated else mask

    def _class_item(self) -> int:
        posix = self._match(_POSIX_CLASS)
        if posix is not None:
            if posix[2] not in _POSIX:
                raise RegexSyntaxError(f"invalid character class range: {posix[0]}")
            mask = self._folded(_POSIX[posix[2]])
            return EVERYTHING & ~mask if posix[1] else mask
        if self._peek() == "\\":
            self.position += 1
            escaped = self._class_escape()
            if escaped is not None:
                return escaped
            self.position -= 1
        low = high = self._class_character()
        if self._peek() == "-" and self._text[self.position + 1 : self.position + 2] not in ("]", ""):
            self.position += 1
            high = self._class_character()
            if high < low:
                raise RegexSyntaxError("invalid character class range")
        return self._range(low, high)

    def _class_character(self) -> int:
        character = self._peek()
        if not character:
            raise RegexSyntaxError("missing closing ]")
        self.position += 1
        return self._escaped_character() if character == "\\" else ord(character)

    def _folded(self, mask: int) -> int:
        """Return the set with the other form of each letter if case does not matter."""
        if not self._folds:
            return mask
        return mask | (mask & _UPPER) << _LOWER_BY | (mask & _LOWER) >> _LOWER_BY


def _number(digits: str) -> int:
    return int(digits) if len(digits) <= 4 else MAX_REPETITIONS + 1


def _repetitions(node: Node) -> int:
    """Return the highest number of repetitions of a part of a node."""
    match node:
        case Repeat(times=times):
            return times
        case Sequence(parts) | Choice(parts):
            return max(map(_repetitions, parts), default=1)
        case _:
            return 1
