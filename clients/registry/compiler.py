"""Text of a .proto file as descriptors, by protox in a process of its own: what it makes of a stranger's costs that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

_SECONDS = 30


def compile_text(text: str, imported: Mapping[str, str]) -> bytes:
    """A set of descriptors, the file's last; it may import the others. Raises ValueError: what the compiler says."""
    asked = json.dumps({"text": text, "references": list(imported.items())}).encode()
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise ValueError(f"it is not compiled in {_SECONDS} s") from None
    if done.returncode:
        raise ValueError(done.stderr.decode(errors="replace").strip() or "the compiler fell over it")
    return done.stdout


def main() -> None:
    """One question on standard input, its answer on standard output."""
    from ..console.decoding.worker import descriptors_of, with_limits

    asked = json.load(sys.stdin)
    with_limits()
    try:
        sys.stdout.buffer.write(descriptors_of(asked["text"], asked["references"]))
    except ModuleNotFoundError as error:
        sys.exit(f"Protobuf needs {error.name}: pip install 'barnabas[schema-registry]'")
    except Exception as error:  # noqa: BLE001 - whatever a library makes of a stranger's schema
        sys.exit(str(error) or type(error).__name__)


if __name__ == "__main__":
    main()
