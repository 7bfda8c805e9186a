"""The decoding process: it reads schemas and bytes, and writes text.

Both are untrusted, and the libraries that parse them are written in C, C++ and Rust: input that makes them loop, grow
or crash affects this process only (`clients/worker_process.py`).
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from ...protocol.errors import ProtocolError
from ...protocol.varint import decode_varint
from ..json_text import parse_text, pieces, truncate_pieces
from ..worker_process import serve

MAX_ANSWER_CHARS = 4 << 20
KEPT_SCHEMAS = 32
HEAD_BYTES = 5
"""Bytes of Confluent's frame: a zero and the schema's id."""
_REASON_CHARS = 300
_AROUND = "__barnabas_value"
_MODULES = ("fastavro", "protoxy", "google.protobuf.json_format", "google.protobuf.message_factory")
_LIBRARIES = {"AVRO": "fastavro", "PROTOBUF": "protobuf and protoxy"}

Decode = Callable[[bytes, bool], Any]
"""Converts bytes, and whether they have Confluent's frame, to the input of `json_text.pieces`."""


def main() -> None:
    """Handle requests until the input ends, or memory is exhausted: the caller then does not repeat the request for a
    while.
    """
    for name in _MODULES:  # importing takes a while, and no request should wait for it
        with suppress(ModuleNotFoundError):
            import_module(name)
    serve(partial(_answer, known={}))


def _answer(asked: Mapping[str, Any], known: dict[bytes, Decode]) -> dict[str, Any]:
    """Return `{"rows": [[text or None, reason or None, whether it was truncated]…]}`, or one `error` for the schema."""
    schema = asked["schema"]
    key = sha256(json.dumps(schema).encode()).digest()
    try:
        decode = known.pop(key, None) or decoder_of(schema)
    except ModuleNotFoundError:
        return {"error": f"{_LIBRARIES[schema['kind']]} is not installed: pip install 'barnabas[console]'"}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries raise any exception for untrusted schemas
        return {"error": f"the schema: {_reason(error)}"}
    known[key] = decode
    while len(known) > KEPT_SCHEMAS:
        del known[next(iter(known))]
    rows, left = list[tuple[str | None, str | None, bool]](), MAX_ANSWER_CHARS
    for data, frame in asked["data"]:
        try:
            value = _value(decode, base64.b64decode(data), frame)
            text, is_cut = truncate_pieces(pieces(value, asked["indent"]), min(asked["most"], left))
            left -= len(text)
            rows.append((text, None, is_cut))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries raise any exception for untrusted bytes
            rows.append((None, _reason(error), False))
    return {"rows": rows}


def _value(decode: Decode, data: bytes, frame: bool | None) -> Any:
    """Decode with a frame, without one, or with None: try without a frame first."""
    if frame is None:
        try:
            return decode(data, False)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the bytes had a frame
            frame = True
    return decode(data[HEAD_BYTES:] if frame else data, frame)


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_REASON_CHARS]


def decoder_of(schema: Mapping[str, Any], read_message: Callable[[Any], Any] | None = None) -> Decode:
    """Create the decoder for `kind`: AVRO, PROTOBUF, DESCRIPTORS or JSON. Raises the library's exceptions, and
    ModuleNotFoundError.

    `read_message` converts a message of Protobuf, by default to the values of its JSON form.
    """
    text, references = schema["text"], schema["references"]
    match schema["kind"]:
        case "AVRO":
            return _avro(text, references)
        case "PROTOBUF":
            return _protobuf(descriptors_of(text, references), read_message)
        case "DESCRIPTORS":
            return _protobuf(base64.b64decode(text), read_message)
        case "JSON":
            return lambda data, is_framed: parse_text(data)
    raise ValueError(f"unknown schema type {schema['kind']}. Expected Avro, Protobuf or JSON")


def _avro(text: str, references: Iterable[tuple[str, str]]) -> Decode:
    import fastavro

    names: dict[str, Any] = {}
    for _, other in references:
        fastavro.parse_schema(json.loads(other), named_schemas=names, _ignore_default_error=True)
    # A record adds no byte around its field, and fastavro keeps the types of references with a record only: a union, an
    # array or a map at the top would lose them. Defaults are not needed, and fastavro rejects some that Java accepts.
    whole = {"type": "record", "name": _AROUND, "fields": [{"name": "value", "type": json.loads(text)}]}
    parsed = fastavro.parse_schema(whole, named_schemas=names, _ignore_default_error=True)

    def decode(data: bytes, is_framed: bool) -> Any:
        stream = BytesIO(data)
        value = fastavro.schemaless_reader(stream, parsed, None)["value"]
        if stream.tell() < len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes remain after the value")
        return value

    return decode


def descriptors_of(text: str, references: Iterable[tuple[str, str]]) -> bytes:
    """Build a set of descriptors of a `.proto`, which may import the others, after its dependencies.

    Each is text, or a base64 descriptor, as Python's serializers register it.
    """
    from google.protobuf import descriptor_pb2

    others = list(references)
    main = registered_descriptor(text)
    if main is None:
        return _compiled(text, others)
    found: dict[str, Any] = {}
    for index, (name, other) in enumerate(others):
        registered = registered_descriptor(other)
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


def registered_descriptor(text: str) -> Any:
    """Return the descriptor that a base64 text contains; None for another text."""
    from google.protobuf import descriptor_pb2, message

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, message.DecodeError):
        return None


def _add_googles(name: str, found: dict[str, Any]) -> None:
    """Add one of Google's own files, which are not registered, and its imports."""
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
    """Build a set of descriptors of a `.proto`, which may import the others."""
    import protoxy

    with tempfile.TemporaryDirectory(prefix="barnabas-schema-") as folder:
        main = Path(folder) / "barnabas-main.proto"
        for name, other in [(main.name, text), *references]:
            inside = PurePosixPath(name)
            if inside.is_absolute() or ".." in inside.parts:
                raise ValueError(f"{name}: invalid name of an imported file")
            path = Path(folder) / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(other)
        compiled: bytes = protoxy.compile_bin([main], [folder], include_source_info=False)
        return compiled


def _protobuf(descriptors: bytes, read_message: Callable[[Any], Any] | None) -> Decode:
    """Decode with the last file of a set, which follows its imports; the first message unless framed."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    pool = descriptor_pool.DescriptorPool()
    for one in files:
        pool.Add(one)
    main = files[-1]
    to_json = partial(json_format.MessageToDict, preserving_proto_field_name=True, descriptor_pool=pool)
    convert = read_message or to_json

    def decode(data: bytes, is_framed: bool) -> Any:
        path, start = _message_indexes(data) if is_framed else ([0], 0)
        at, name = main.message_type[path[0]], main.package
        for index in [None, *path[1:]]:
            at = at if index is None else at.nested_type[index]
            name = f"{name}.{at.name}" if name else at.name
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.ParseFromString(data[start:])
        return convert(message)

    return decode


def _message_indexes(data: bytes) -> tuple[list[int], int]:
    """Return the message type of Confluent's message index, and the start of the message. Raises ValueError."""
    at, numbers = 0, list[int]()
    try:
        while not numbers or len(numbers) <= numbers[0]:
            number, at = decode_varint(data, at)
            numbers.append(number)
    except ProtocolError as error:
        raise ValueError("the message index is missing") from error
    if min(numbers) < 0:
        raise ValueError("the message index is missing")
    return numbers[1:] or [0], at


if __name__ == "__main__":
    main()
