"""An argparse parser for `start` and `coordinator`, whose errors have the form of the errors of all commands."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """A parser that prints an error as one line. The help has the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the error on standard error, and exit with status 2."""
        print(f"{self.prog}: {message}. See {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)
