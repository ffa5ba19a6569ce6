"""What a store needs to know of the record that is processed, and many writes at once, in columns."""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import Flags, Integers
from statestore.format.key_groups import are_last
from statestore.headers.record_columns import RecordColumns


class RecordContext(Protocol):
    """The record that a store is written for: changelog records carry its timestamp and headers."""

    @property
    def timestamp_ms(self) -> int:
        """The record's timestamp, in milliseconds since the epoch."""

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""


class ProcessingContext(RecordContext, Protocol):
    """A RecordContext of a task, which can be brought to each of many records in turn."""

    def rows(self, records: RecordColumns) -> Generator[int, None, None]:
        """Make each record the current one in turn, and yield its row; to be closed, which leaves all as it was."""


class NoRecord:
    """Stands for the record where nothing is being processed."""

    timestamp_ms = -1
    header_bytes = b""

    def rows(self, records: RecordColumns) -> Generator[int, None, None]:
        """Yield the row of each record."""
        yield from range(len(records))


class WrittenRow(NamedTuple):
    """The record that one row of columns is written for."""

    timestamp_ms: int
    header_bytes: bytes


class RowChanges:
    """Writes in rows, in order, each for the record in the row beside it. Nothing in it is ever changed.

    keys, logged_keys    where the store keeps each entry, and what its changelog calls it
    values               stored bytes; null deletes
    times_ms             to where each row brings the time of a store of windows or sessions; None for other stores
    """

    def __init__(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        records: RecordColumns,
        *,
        logged_keys: pa.BinaryArray | None = None,
        times_ms: Integers | None = None,
    ) -> None:
        self.keys = keys
        self.logged_keys = keys if logged_keys is None else logged_keys
        self.values = values
        self.records = records
        self.times_ms = times_ms

    def __len__(self) -> int:
        return len(self.keys)

    def filter(self, mask: Flags) -> RowChanges:
        """Return the rows for which `mask` is true."""
        where = pa.array(mask)
        keys, values, logged = (column.filter(where) for column in (self.keys, self.values, self.logged_keys))
        times_ms = None if self.times_ms is None else self.times_ms[mask]
        return RowChanges(keys, values, self.records.filter(where), logged_keys=logged, times_ms=times_ms)

    @cached_property
    def last(self) -> dict[bytes, bytes | None]:
        """The last write of each key, in their order: all that stays of the rows, and of a log that is compacted."""
        return dict(zip(self._lasts_of(self.keys), self._lasts_of(self.values), strict=True))

    @property
    def last_logged(self) -> dict[bytes, bytes | None]:
        """The same by logged keys."""
        if self.logged_keys is self.keys:
            return self.last
        return dict(zip(self._lasts_of(self.logged_keys), self.last.values(), strict=True))

    def record_of(self, place: int) -> WrittenRow:
        """Return the record that the nth of `last` is written for."""
        row, records = self._last_rows[place], self.records
        return WrittenRow(records.timestamp_ms[row].as_py(), records.headers[row].as_py())

    @cached_property
    def _last_rows(self) -> Integers:
        if self.keys is self.records.key:
            return np.sort(self.records.by_key.last_rows)
        return np.flatnonzero(are_last(self.logged_keys))

    def _lasts_of(self, column: pa.BinaryArray) -> list[Any]:
        rows = self._last_rows
        lasts: list[Any] = (column if len(rows) == len(self) else column.take(pa.array(rows))).to_pylist()
        return lasts
