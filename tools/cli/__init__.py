"""The `barnabas` command. Each sub-command is a separate module, loaded when it is called.

`start` and `coordinator` are checked first and load only the modules that the process needs: loading modules is most of
the time from the shell to the first connection.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status: 0 success, 1 failure, 2 wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["start"] and not {"-h", "--help"} & set(arguments):
        from .start import main as start

        return start(arguments[1:])
    if arguments[:1] == ["coordinator"] and not {"-h", "--help"} & set(arguments):
        from .coordinator import main as coordinator

        return coordinator(arguments[1:])
    from .app import main as other

    return other(arguments)
