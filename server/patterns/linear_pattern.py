"""Regular expressions from clients and operators: RE2's syntax, matched in linear time.

An expression becomes a graph of steps that are all followed in parallel (Thompson), so that no path is tried twice; the
successor of a set of steps and a character is computed once. Python's own `re` would backtrack.
"""

from __future__ import annotations

from collections.abc import Iterator

from .regex_syntax import ALPHABET, OTHERS, Anchor, Chars, Choice, Node, RegexSyntaxError, Repeat, Sequence, parse

MAX_STEPS = 5000
"""The limit for the steps in the graph of one expression."""
MAX_PARTS = 50_000
"""The limit for the parts that are read to build the graph. Empty groups have no steps, but cost time when repeated."""
MAX_CHARACTERS = 20_000
"""The limit for the length of one expression: the parser reads each character."""
MAX_WORK = 200_000
"""The limit for the steps that are followed for one expression, for all names together: a fraction of a second."""

_BITS = {character: 1 << number for number, character in enumerate(ALPHABET)}
_WORD = frozenset(character for character in ALPHABET if character.isalnum() or character == "_")

_ANOTHER = "\0"
"""Stands for any character that is not in the alphabet, so that names full of them are no more work."""

_Point = tuple[frozenset[int], bool, bool, str]
"""Steps, whether a name begins here, whether the last character belongs to a word; the next one, empty at the end."""


class LinearPattern:
    """A regular expression. Raises RegexSyntaxError, also later if it turns out to be too much work."""

    def __init__(self, text: str) -> None:
        self._follows: list[tuple[Chars | Anchor | None, tuple[int, ...]]] = []
        """The accepted characters of each step (None if it consumes none), and its next steps."""
        self._known: dict[_Point, frozenset[int]] = {}
        self._parts = 0
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        """Equal sets share one object, so that a set is found by identity instead of a comparison of all its steps."""
        self._work = 0
        if len(text) > MAX_CHARACTERS:
            raise RegexSyntaxError("it is too large")
        node = parse(text)
        self._accepted = self._step(None, ())
        self._first = frozenset({self._build(node, self._accepted)})

    def matches(self, name: str) -> bool:
        """Return whether the expression matches the whole name. Raises RegexSyntaxError."""
        steps, was_word = self._first, False
        for position, character in enumerate(name):
            if character not in _BITS:
                character = _ANOTHER
            steps = self._after((steps, position == 0, was_word, character))
            if not steps:
                return False
            was_word = character in _WORD
        return self._accepted in self._after((steps, not name, was_word, ""))

    # -- the graph -------------------------------------------------------------------------------------------------

    def _step(self, takes: Chars | Anchor | None, then: tuple[int, ...]) -> int:
        if len(self._follows) >= MAX_STEPS:
            raise RegexSyntaxError("it is too large")
        self._follows.append((takes, then))
        return len(self._follows) - 1

    def _build(self, node: Node, then: int) -> int:
        """Return the first step of a node that is followed by `then`."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise RegexSyntaxError("it is too large")
        match node:
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Choice(options):
                return self._step(None, tuple(self._build(option, then) for option in options))
            case Repeat(part, least, most):
                return self._build_repeat(part, least, most, then)
            case _:
                return self._step(node, (then,))

    def _build_repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            again = self._step(None, ())
            self._follows[again] = None, (self._build(part, again), then)
            then = again
        else:
            end = then
            for _ in range(most - least):
                then = self._step(None, (self._build(part, then), end))
        for _ in range(least):
            then = self._build(part, then)
        return then

    # -- following it ----------------------------------------------------------------------------------------------

    def _after(self, point: _Point) -> frozenset[int]:
        """Return the possible steps after a character; at the end the reached steps."""
        known = self._known.get(point)
        if known is None:
            steps = self._work_out(*point)
            known = self._known[point] = self._sets.setdefault(steps, steps)
        return known

    def _work_out(self, steps: frozenset[int], is_begin: bool, was_word: bool, character: str) -> frozenset[int]:
        holds = set(_places(is_begin, was_word, character))
        reached: set[int] = set()
        waiting = list(steps)
        while waiting:
            step = waiting.pop()
            if step in reached:
                continue
            reached.add(step)
            takes, then = self._follows[step]
            if takes is None or takes in holds:
                waiting += then
        self._work += len(reached)
        if self._work > MAX_WORK:
            raise RegexSyntaxError("it takes too much work")
        if not character:
            return frozenset(reached)
        bit = _BITS.get(character, OTHERS)
        return frozenset(
            self._follows[step][1][0]
            for step in reached
            if isinstance(takes := self._follows[step][0], Chars) and takes.mask & bit
        )


def _places(is_begin: bool, was_word: bool, character: str) -> Iterator[Anchor]:
    if is_begin:
        yield Anchor.BEGIN
    if not character:
        yield Anchor.END
    yield Anchor.WORD_EDGE if was_word != (character in _WORD) else Anchor.NO_WORD_EDGE
