"""The interface of the table formats to the follower."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from .column_renames import ColumnRename
from .offsets import TableOffsets

OFFSETS_PROPERTY = "barnabas.offsets"
"""Name of the offsets in the properties of a snapshot or table."""

MOST_BYTES = 512 << 20
"""`most_bytes` of formats that write rows to files before the commit."""


class TableConflictError(RuntimeError):
    """Another writer has changed the table since it was loaded, so that the commit had no effect."""


class Committed(NamedTuple):
    """Rows, data files, and bytes in data files that a commit has added."""

    rows: int = 0
    files: int = 0
    size: int = 0


class TableSink(Protocol):
    """A table, which one follower writes. Rows become visible with their offsets in one atomic commit.

    The methods block and are called on one thread. Unless noted they raise OSError or the errors of the library of the
    format.
    """

    most_bytes: int
    """Maximum of decoded bytes of one commit, so that the memory of the writer is bounded."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def load(self) -> TableOffsets | None:
        """Read the current state of the table; return its offsets, None for a table without offsets or without rows.

        Uncommitted rows of this process are dropped. Raises ValueError for a table that another program has written.
        """

    def schema(self) -> Any:
        """Return the columns of the table as of the last `load` or `prepare`, None if there is no table."""

    def rename(self, renames: Sequence[ColumnRename]) -> None:
        """Rename columns, inner fields first; a format that stores names only in its files may keep the old columns.

        Raises ValueError if the format cannot rename columns.
        """

    def prepare(self, schema: Any) -> Any:
        """Create the table, or add and widen columns so that it can hold these; return the columns to write.

        Raises ValueError with the name of the column for a type that the table cannot hold.
        """

    def write(self, batch: Any) -> None:
        """Add a record batch with the columns of `prepare`. Its rows are visible after `commit`."""

    def upsert(self, rows: Iterator[Any], keys: Any, key: str) -> None:
        """Remove the rows whose column `key` has one of these keys, and add record batches of new rows.

        Visible after `commit`, and called at most once before it, without `write`.
        """

    def commit(self, offsets: TableOffsets) -> Committed:
        """Make the rows visible together with the offsets. Raises TableConflictError."""

    def discard(self) -> None:
        """Drop the rows since the last commit, and a merge in progress."""

    def maintain(self, is_due: Callable[[], bool] = lambda: False) -> int:
        """Merge small files and expire old snapshots if that is due; return the number of merged files.

        `is_due` returns whether another commit is due: the merge is then interrupted, and the next call continues it.
        """
