"""Opens a table by its location, such as `iceberg:///var/lake#db.orders`."""

from __future__ import annotations

from pathlib import Path

from .parquet_files import TableSettings
from .sink import TableSink

_EXPECTED = (
    "expected iceberg:///FOLDER#NAMESPACE.TABLE, iceberg://CATALOG#NAMESPACE.TABLE, delta:///FOLDER, "
    "parquet:///FOLDER, or duckdb:FILE#TABLE"
)
_EXTRAS = {"iceberg": "iceberg", "delta": "delta", "parquet": "arrow", "duckdb": "duckdb"}


def open_table(location: str, settings: TableSettings | None = None) -> TableSink:
    """Return the sink for a table, which need not exist. Raises ValueError, also if its package is not installed."""
    settings = settings or TableSettings()
    kind, _, rest = location.partition(":")
    place, _, name = rest.partition("#")
    if kind not in _EXTRAS or not place.strip("/"):
        raise ValueError(f"{location!r}: {_EXPECTED}")
    try:
        match kind:
            case "parquet":
                from .parquet_table import ParquetTable

                return ParquetTable(_folder(place, location), settings)
            case "delta":
                from .delta_table import DeltaLakeTable

                return DeltaLakeTable(_folder(place, location), settings)
            case "duckdb":
                from .duckdb_table import DuckDBTable

                if not name:
                    raise ValueError(f"{location!r}: the name of the table is missing; {_EXPECTED}")
                return DuckDBTable(_folder(place, location), name, settings)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is not installed: pip install 'barnabas[{_EXTRAS[kind]}]'") from None
    if "." not in name:
        raise ValueError(f"{location!r}: the namespace and name of the table are missing; {_EXPECTED}")
    try:
        from .iceberg_table import IcebergTable, catalog_at
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is not installed: pip install 'barnabas[iceberg]'") from None
    is_name = place.startswith("//") and not place.startswith("///")
    where = place.removeprefix("//") if is_name else _folder(place, location)
    return IcebergTable(catalog_at(where, dict(settings.options)), name, settings)


def _folder(place: str, location: str) -> Path:
    """Return the path of `///var/table`, `/var/table` or `table`. Raises ValueError for the URL of another machine."""
    if place.startswith("//") and not place.startswith("///"):
        raise ValueError(f"{location!r}: {place[2:].partition('/')[0]!r} is not a folder on this machine; {_EXPECTED}")
    if "://" in place:
        raise ValueError(f"{location!r}: only folders on this machine are supported; {_EXPECTED}")
    return Path(place.removeprefix("//")).absolute()
