"""`python -m barnabas.tools.cli.container COMMAND …`: the commands of the scripts in the container image."""

from __future__ import annotations

import sys

STARTS = ("run", "configure", "launch")


def main(arguments: list[str]) -> int:
    """Run an entry point, or a tool of Kafka by its name with or without `.sh`; return the exit status.

    A command loads only the modules that it needs, because health checks run one every few seconds.
    """
    name, rest = arguments[0].removesuffix(".sh") if arguments else "", arguments[1:]
    if name in STARTS:
        from . import broker_start

        status: int = getattr(broker_start, name)(rest)
        return status
    if name == "kafka-storage":
        from .storage_tool import main as storage

        return storage(rest)
    if name == "zookeeper-server-start":
        from .coordinator_start import main as coordinator

        return coordinator(rest)
    from . import console_tools, kafka_tools

    if name not in console_tools.TOOLS:
        print(f"{name or 'no tool'}: not in this image. Use the command barnabas", file=sys.stderr)
        return 127
    return kafka_tools.main(name, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
