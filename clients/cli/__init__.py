"""The `barnabas` command. Each sub-command is a module of its own, loaded when it is called.

`start` and `coordinator` are looked at first and load nothing that the process does not need: from the shell to
listening is most of what a user waits for.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 failed, 2 wrongly called."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["start"] and not {"-h", "--help"} & set(arguments):
        from .start import main as start

        return start(arguments[1:])
    if arguments[:1] == ["coordinator"] and not {"-h", "--help"} & set(arguments):
        from .coordinator import main as coordinator

        return coordinator(arguments[1:])
    from .app import main as other

    return other(arguments)
