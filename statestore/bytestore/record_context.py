"""What a store needs to know of the record that is being processed."""

from __future__ import annotations

from typing import Protocol


class NoRecord:
    """Stands for the record where nothing is being processed."""

    timestamp_ms = -1
    header_bytes = b""


class RecordContext(Protocol):
    """The record that a store is written for: changelog records carry its timestamp and headers."""

    @property
    def timestamp_ms(self) -> int:
        """The record's timestamp, in milliseconds since the epoch."""
        ...

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""
        ...
