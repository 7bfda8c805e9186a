"""Record values: incompressible bytes, and text that compresses like typical events."""

import os
import random

WORDS = (
    "tail",
    "carrier",
    "origin",
    "dest",
    "delayed",
    "true",
    "false",
    "air_time",
    "2013-01-01T05:00:00Z",
    "EWR",
    "JFK",
)


def payloads(size: int, count: int = 1000, *, compressible: bool = False) -> list[bytes]:
    """Return `count` values of `size` bytes. Compressible values are words and numbers that shrink to half or less."""
    if not compressible:
        return [os.urandom(size) for _ in range(count)]
    chance = random.Random(7)
    made = []
    for _ in range(count):
        value = "".join(f'"{chance.choice(WORDS)}":{chance.randrange(10**6)},' for _ in range(size // 8 + 1))
        made.append(value[:size].encode())
    return made
