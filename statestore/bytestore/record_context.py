"""What a store needs to know of the record that is being processed."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

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
