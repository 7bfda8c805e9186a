"""`zookeeper-server-start` in the container: Barnabas's coordinator, which serves ZooKeeper's protocol."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ....common.properties import parse_properties
from ..coordinator import main as coordinator
from ..reasons import reason

DEFAULT_PORT, DEFAULT_DATA = "2181", "/tmp/zookeeper"  # noqa: S108 - the default of Kafka's zookeeper.properties


def main(arguments: Sequence[str]) -> int:
    """Serve `clientPort` with the data of `dataDir` until SIGTERM; return the exit status."""
    files = [argument for argument in arguments if not argument.startswith("-")]
    if len(files) != 1:
        print("usage: zookeeper-server-start zookeeper.properties", file=sys.stderr)
        return 1
    try:
        properties = parse_properties(Path(files[0]).read_text(encoding="iso-8859-1"))
    except (OSError, ValueError) as error:
        print(f"zookeeper-server-start: {reason(error)}", file=sys.stderr)
        return 1
    port = properties.get("clientPort", DEFAULT_PORT).strip()
    data = properties.get("dataDir", DEFAULT_DATA).strip()
    # The port is open to other machines only if the container publishes it.
    return coordinator(["--data", data, "--listen", f"0.0.0.0:{port}", "--allow-remote"])
