"""How a byte store in memory ends: with the scans that it has handed out."""

from __future__ import annotations

import weakref
from collections.abc import Generator

from statestore.bytestore.protocol import Pair


class ScannedStore:
    """A byte store of which scans may be under way when it is closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._scans: weakref.WeakSet[Generator[Pair, None, None]] = weakref.WeakSet()
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""
        return not self._closed

    def _hand_out(self, scan: Generator[Pair, None, None]) -> Generator[Pair, None, None]:
        """Return a scan, which is closed with the store."""
        self._scans.add(scan)
        return scan

    def close(self) -> None:
        """Close the store and its scans."""
        self._closed = True
        for scan in list(self._scans):
            scan.close()
