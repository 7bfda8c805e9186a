"""Text of a .proto file as a descriptor, by Google's compiler in a process of its own (grpcio-tools)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_SECONDS = 30
_MAIN = "registered.proto"


def compile_text(text: str, imported: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    """The descriptor of a file that may import these. Raises ValueError with what the compiler says."""
    if find_spec("grpc_tools") is None:
        raise ValueError("Protobuf as text needs grpcio-tools: pip install 'barnabas[schema-registry]'")
    with tempfile.TemporaryDirectory(prefix="barnabas-protoc-") as folder:
        place = Path(folder)
        (place / _MAIN).write_text(text, encoding="utf-8", errors="surrogatepass")
        known = FileDescriptorSet(file=imported.values())
        (place / "imported").write_bytes(known.SerializeToString())
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", *(f"-I{path}" for path in _included())]
        command += [f"--descriptor_set_in={place / 'imported'}"] if imported else []
        command += [f"--descriptor_set_out={place / 'out'}", _MAIN]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise ValueError(f"it is not compiled in {_SECONDS} s") from None
        if done.returncode:
            raise ValueError(done.stderr.decode(errors="replace").strip().replace(f"{_MAIN}:", "") or "it is refused")
        return FileDescriptorSet.FromString((place / "out").read_bytes()).file[-1]


def _included() -> list[str]:
    """Where Google's own types are: with the compiler, and with googleapis-common-protos where that is installed."""
    places = [f"{root}/_proto" for root in _locations("grpc_tools")]
    return places + [str(Path(root).parent.parent) for root in _locations("google.type")]


def _locations(package: str) -> list[str]:
    spec = find_spec(package)
    return [] if spec is None else list(spec.submodule_search_locations or ())
