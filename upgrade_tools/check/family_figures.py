"""How much is in a column family: entries, and bytes of values and of their headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kinds.segments import is_latest_key
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreKind
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from statestore.format.values.versioned_row import decode_latest_row, decode_segment_row

_FORMATS: Final = {family: known for families in FAMILIES.values() for known, family in families.items()}
_OF_VERSIONS: Final = FAMILIES[StoreKind.VERSIONED][StoreFormat.WITH_HEADERS]
_STEP: Final = 1_000


def format_of_family(family: str) -> StoreFormat | None:
    """Return the format of the values in a column family, None for an unknown family."""
    return _FORMATS.get(family)


@dataclass
class FamilyFigures:
    """What a column family holds in all databases that were opened. Only what was read is added up."""

    format: StoreFormat | None
    is_of_versions: bool = False
    """Whether its entries are rows of versions; those without headers can't be told apart, and count as values."""
    entries: int = 0
    """How many entries there are; RocksDB's estimate where not all were read."""
    is_exact: bool = True
    entries_read: int = 0
    value_bytes: int = 0
    """Size of the values that were read, without headers and timestamps."""
    header_bytes: int = 0
    """Size of the headers of these values, including their length fields."""
    values_read: int = 0
    """One for each entry that was read; in a versioned store with headers, one for each version."""
    values_with_headers: int = 0

    def read(self, store: ByteStore, at_most: int | None, on_entries: Callable[[int], None]) -> None:
        """Add the family of a database, reading at most this many entries; None reads all. Raises FormatError."""
        pairs = store.range(None, None)
        read = 0
        for chunk in chunks(islice(pairs, at_most), max_rows=_STEP):
            self._add(chunk)
            read += len(chunk)
            on_entries(len(chunk))
        self.entries_read += read
        if at_most is None or read < at_most or next(pairs, None) is None:
            self.entries += read
        else:
            self.is_exact = False
            self.entries += max(store.approximate_num_entries(), read + 1)

    def _add(self, pairs: Iterable[Pair]) -> None:
        if self.format in (None, StoreFormat.PLAIN):
            sizes = [len(value) for _, value in pairs]
            self.value_bytes += sum(sizes)
            self.values_read += len(sizes)
            return
        assert self.format is not None
        for stored in self._values(pairs):
            parts = split_stored(self.format, stored)
            self.values_read += 1
            self.value_bytes += len(parts.value)
            if parts.header_bytes is not None:
                timestamp_bytes = 0 if parts.timestamp_ms is None else 8
                self.header_bytes += len(stored) - len(parts.value) - timestamp_bytes
                self.values_with_headers += bool(parts.header_bytes)

    def _values(self, pairs: Iterable[Pair]) -> Iterator[bytes]:
        """Yield the values of entries; for rows of versions, the value of each version."""
        if not self.is_of_versions:
            yield from (value for _, value in pairs)
            return
        for key, row in pairs:
            if is_latest_key(key):
                yield decode_latest_row(row)[1]
            else:
                yield from (version.value for version in decode_segment_row(row).versions if version.value is not None)

    @classmethod
    def of(cls, family: str) -> FamilyFigures:
        """Return empty figures for a family of this name."""
        return cls(format_of_family(family), family == _OF_VERSIONS)
