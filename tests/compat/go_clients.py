"""The programs for clients in Go: a module for each client, whose folder bears its name, and what all of them share."""

import re
from pathlib import Path

from tests.golang import build_program

HERE = Path(__file__).parent


def go_client(folder: str) -> Path:
    """The program for the client of `folder`, built if need be."""
    return build_program(HERE / folder, HERE / "goreport")


def pinned_version(folder: str, module: str) -> str:
    """The version of `module` that the program of `folder` is built with."""
    found = re.search(rf"{re.escape(module)} v(\S+)", (HERE / folder / "go.mod").read_text())
    assert found
    return found[1]
