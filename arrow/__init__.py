"""Topics and segment files as Arrow: record batches for Polars, DuckDB, pandas and pyarrow, without Spark or a JVM.

`read_topic` reads from brokers, `read_folder` from Kafka's files. Both return a `RecordStream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "Avro",
    "Json",
    "Protobuf",
    "RecordStream",
    "RegistryValues",
    "read_folder",
    "read_topic",
    "scan_barnabas",
]

if TYPE_CHECKING:
    from .folder_source import read_folder
    from .polars_scan import scan_barnabas
    from .record_stream import RecordStream
    from .topic_source import read_topic
    from .value_types import Avro, Json, Protobuf, RegistryValues

_MODULES = {
    "RecordStream": "record_stream",
    "read_folder": "folder_source",
    "read_topic": "topic_source",
    "scan_barnabas": "polars_scan",
} | dict.fromkeys(("Avro", "Json", "Protobuf", "RegistryValues"), "value_types")


def __getattr__(name: str) -> Any:
    """Import pyarrow and numpy only when they are needed."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        packages = {"pyarrow": "'barnabas[arrow]'", "numpy": "'barnabas[arrow]'", "polars": "polars"}
        if error.name not in packages:
            raise
        message = f"{error.name} is not installed: pip install {packages[error.name]}"
        raise ModuleNotFoundError(message, name=error.name) from None
