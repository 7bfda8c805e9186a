"""A worker process that does what a hostile input makes a library do: allocate, loop, crash, write without end."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

from barnabas.clients import worker_process
from barnabas.clients.worker_process import serve


def answer(question: Mapping[str, Any]) -> Mapping[str, Any]:
    match question["do"]:
        case "allocate":
            return {"allocated": len(bytearray(question["bytes"]))}
        case "allocate in small parts":
            parts = [bytes(1 << 16) for _ in range(question["bytes"] >> 16)]
            return {"allocated": len(parts)}
        case "loop":
            while True:
                pass
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "answer":
            return {"text": "x" * question["bytes"]}
        case "be slow":
            worker_process.CPU_SECONDS = question["seconds"]
    return {"pid": os.getpid()}


if __name__ == "__main__":
    serve(answer)
