"""The process that decodes: it reads schemas and bytes, and writes text.

Both may be a stranger's, and the libraries that read them are written in C, C++ and Rust: what makes them loop, grow or
fall over costs this process. Frames on both pipes are four bytes of length and JSON.
"""

from __future__ import annotations

import base64
import json
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path, PurePosixPath
from struct import Struct
from typing import Any, BinaryIO

from ....protocol.errors import ProtocolError
from ....protocol.varint import decode_varint
from .beginning import beginning

MEMORY_BYTES = 1 << 30
"""Of addresses, libraries included."""
MOST_ANSWER_CHARS = 4 << 20
KEPT_SCHEMAS = 32
LENGTH = Struct(">I")
HEAD_BYTES = 5
"""Of Confluent's wire format: a zero and the schema's number."""
_REASON_CHARS = 300
_MODULES = ("fastavro", "protoxy", "google.protobuf.json_format", "google.protobuf.message_factory")
_LIBRARIES = {"AVRO": "fastavro", "PROTOBUF": "protobuf and protoxy"}

Decode = Callable[[bytes, bool], Any]
"""Bytes, and whether they were framed as Confluent's serializers do, to what JSON can hold."""


def main() -> None:
    """Answer until the input ends, or the memory does: whoever asks then does not ask that again for a while."""
    with_limits()
    for name in _MODULES:  # it may take a while, and no question should have to wait for it
        with suppress(ModuleNotFoundError):
            import_module(name)
    known: dict[bytes, Decode] = {}
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while (frame := _read(source)) is not None:
        answer = json.dumps(_answer(json.loads(frame), known)).encode()
        sink.write(LENGTH.pack(len(answer)) + answer)
        sink.flush()


def with_limits() -> None:
    """Have this process live with little memory, and leave no core where it falls over."""
    for kind, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    return source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def _answer(asked: Mapping[str, Any], known: dict[bytes, Decode]) -> dict[str, Any]:
    """`{"rows": [[text or None, reason or None, whether it was cut]…]}`, or one `error` for the schema."""
    schema = asked["schema"]
    key = sha256(json.dumps(schema).encode()).digest()
    try:
        decode = known.pop(key, None) or decoder_of(schema)
    except ModuleNotFoundError:
        return {"error": f"{_LIBRARIES[schema['kind']]} is not here: pip install 'barnabas[console]'"}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a library makes of a stranger's schema
        return {"error": f"the schema: {_reason(error)}"}
    known[key] = decode
    while len(known) > KEPT_SCHEMAS:
        del known[next(iter(known))]
    encoder = json.JSONEncoder(indent=asked["indent"], ensure_ascii=False, default=plain)
    rows, left = list[tuple[str | None, str | None, bool]](), MOST_ANSWER_CHARS
    for data, frame in asked["data"]:
        try:
            value = _value(decode, base64.b64decode(data), frame)
            text, is_cut = beginning(encoder.iterencode(value), min(asked["most"], left))
            left -= len(text)
            rows.append((text, None, is_cut))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library makes of a stranger's bytes
            rows.append((None, _reason(error), False))
    return {"rows": rows}


def _value(decode: Decode, data: bytes, frame: bool | None) -> Any:
    """With a frame in front, without, or None: who has no number's schema tries as it is first."""
    if frame is None:
        try:
            return decode(data, False)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - then it was a frame
            frame = True
    return decode(data[HEAD_BYTES:] if frame else data, frame)


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_REASON_CHARS]


def plain(value: object) -> str:
    """What Avro has and JSON has not; bytes in hex."""
    if isinstance(value, bytes):
        return value.hex()
    isoformat = getattr(value, "isoformat", None)
    return str(value if isoformat is None else isoformat())


def decoder_of(schema: Mapping[str, Any]) -> Decode:
    """By `kind`: AVRO, PROTOBUF, DESCRIPTORS or JSON. Raises what its library does, and ModuleNotFoundError."""
    text, references = schema["text"], schema["references"]
    match schema["kind"]:
        case "AVRO":
            return _avro(text, references)
        case "PROTOBUF":
            return _protobuf(descriptors_of(text, references))
        case "DESCRIPTORS":
            return _protobuf(base64.b64decode(text))
        case "JSON":
            return lambda data, is_framed: json.loads(data)
    raise ValueError(f"{schema['kind']} is none of Avro, Protobuf and JSON")


def _avro(text: str, references: Iterable[tuple[str, str]]) -> Decode:
    import fastavro

    names: dict[str, Any] = {}
    for _, other in references:
        fastavro.parse_schema(json.loads(other), named_schemas=names)
    parsed = fastavro.parse_schema(json.loads(text), named_schemas=names, expand=True)

    def decode(data: bytes, is_framed: bool) -> Any:
        stream = BytesIO(data)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() < len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left behind what the schema says")
        return value

    return decode


def descriptors_of(text: str, references: Iterable[tuple[str, str]]) -> bytes:
    """A set of descriptors of a `.proto`, which may import the others, behind those that it needs.

    Each is text, or as Python's serializers register it, a descriptor in base64.
    """
    from google.protobuf import descriptor_pb2

    others = list(references)
    main = _registered_descriptor(text)
    if main is None:
        return _compiled(text, others)
    found: dict[str, Any] = {}
    for index, (name, other) in enumerate(others):
        registered = _registered_descriptor(other)
        if registered is None:
            files = list(descriptor_pb2.FileDescriptorSet.FromString(_compiled(other, others[:index])).file)
        else:
            files = [registered]
            for needed in registered.dependency:
                _add_googles(needed, found)
        files[-1].name = name
        found.update((one.name, one) for one in files)
    for name in main.dependency:
        _add_googles(name, found)
    main.name = main.name or "barnabas-main.proto"
    whole_set: bytes = descriptor_pb2.FileDescriptorSet(file=[*found.values(), main]).SerializeToString()
    return whole_set


def _registered_descriptor(text: str) -> Any:
    """The descriptor that a text is in base64; None if it is none."""
    from google.protobuf import descriptor_pb2, message

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, message.DecodeError):
        return None


def _add_googles(name: str, found: dict[str, Any]) -> None:
    """One of Google's own files, which nobody registers, and what it imports itself."""
    from google.protobuf import descriptor_pb2

    if name in found or not name.startswith("google/"):
        return
    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for needed in file.dependency:
        _add_googles(needed, found)
    found[name] = file


def _compiled(text: str, references: Iterable[tuple[str, str]]) -> bytes:
    """A set of descriptors of a `.proto`, which may import the others."""
    import protoxy

    with tempfile.TemporaryDirectory(prefix="barnabas-schema-") as folder:
        main = Path(folder) / "barnabas-main.proto"
        for name, other in [(main.name, text), *references]:
            inside = PurePosixPath(name)
            if inside.is_absolute() or ".." in inside.parts:
                raise ValueError(f"{name} is no name of a file to import")
            path = Path(folder) / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(other)
        compiled: bytes = protoxy.compile_bin([main], [folder], include_source_info=False)
        return compiled


def _protobuf(descriptors: bytes) -> Decode:
    """By the last file of a set, as it comes behind those that it imports; the first message unless framed."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    pool = descriptor_pool.DescriptorPool()
    for one in files:
        pool.Add(one)
    main = files[-1]
    to_json = partial(json_format.MessageToDict, preserving_proto_field_name=True, descriptor_pool=pool)

    def decode(data: bytes, is_framed: bool) -> Any:
        path, start = _message_indexes(data) if is_framed else ([0], 0)
        at, name = main.message_type[path[0]], main.package
        for index in [None, *path[1:]]:
            at = at if index is None else at.nested_type[index]
            name = f"{name}.{at.name}" if name else at.name
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.ParseFromString(data[start:])
        return to_json(message)

    return decode


def _message_indexes(data: bytes) -> tuple[list[int], int]:
    """Which message of a schema it is, as Confluent's serializers tell, and where it begins. Raises ValueError."""
    at, numbers = 0, list[int]()
    try:
        while not numbers or len(numbers) <= numbers[0]:
            number, at = decode_varint(data, at)
            numbers.append(number)
    except ProtocolError as error:
        raise ValueError("which message it is is not told") from error
    if min(numbers) < 0:
        raise ValueError("which message it is is not told")
    return numbers[1:] or [0], at


if __name__ == "__main__":
    main()
