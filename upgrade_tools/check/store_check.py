"""Strict checks of the entries in one database: reports even what stores read leniently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pyarrow as pa

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from statestore.bytestore.header_index import entries_missing
from statestore.bytestore.kafka_streams.layout import SegmentSpan, refuse_time_order
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, is_latest_key, segment_of
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreSpec, older_formats
from statestore.bytestore.kinds.versioned_rows import intervals_by_key
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import refuse_downgrade
from statestore.errors import FormatError
from statestore.errors.state import UnknownColumnFamilyError
from statestore.format.byte_text import text_of
from statestore.format.records.header_bytes import decode_headers, encode_headers
from statestore.format.records.header_columns import decode_header_column, encode_header_column
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from statestore.format.values.versioned_row import SegmentRow, decode_latest_row, decode_segment_row
from upgrade_tools.states.state import READ_AS_IT_IS

_STEP: Final = 4_096
_NAMED: Final = 20
"""How many problems of a store are named; further ones are counted."""


@dataclass
class Problems:
    """The first problems in words, and how many there are in all."""

    named: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, problem: str) -> None:
        """Note a problem."""
        self.count += 1
        if len(self.named) < _NAMED:
            self.named.append(problem)

    @property
    def not_named(self) -> int:
        """How many more there are than those that are named."""
        return self.count - len(self.named)


class StoreCheck:
    """Checks a store of `spec` in all its databases. `interval_ms` is that of its segments, None if unknown."""

    def __init__(self, spec: StoreSpec, interval_ms: int | None) -> None:
        self.spec = spec
        self.problems = Problems()
        self.entries: dict[str, int] = {}
        """How many there are in each column family."""
        self._interval_ms = interval_ms
        self._layout = layout_of(spec)
        self._formats = {family: known for known, family in FAMILIES[spec.kind].items()}

    def refuse_other_kind(self, families: Iterable[str], where: str) -> None:
        """Raise StoreFormatError or UnknownColumnFamilyError if a store of this kind and format can't have these."""
        present, spec = list(families), self.spec
        refuse_downgrade(present, spec, lambda known: FAMILIES[spec.kind][known], where, spec.name, READ_AS_IT_IS)
        formats = (spec.format, *older_formats(spec.kind, spec.format))
        known = sorted({DEFAULT_FAMILY, *(FAMILIES[spec.kind][known] for known in formats)})
        unknown = [family for family in present if family not in known]
        if unknown:
            raise UnknownColumnFamilyError(spec.name, path=where, asked=spec.describe(), unknown=unknown, known=known)

    def check(
        self,
        families: Mapping[str, ByteStore],
        where: str,
        span: SegmentSpan | None,
        index: ByteStore | None = None,
    ) -> Iterator[int]:
        """Check all entries of a database, yielding how many were read since the last time.

        If `span` is None, keys begin with their segment's id. Raises StoreFormatError, and what the database does.
        """
        if span is not None:
            for family in families.values():
                refuse_time_order(self.spec, span, family.range(None, None), where)
        inhabited = []
        for name in sorted(families, key=lambda family: self._formats[family], reverse=True):
            before = self.entries.get(name, 0)
            for count in self._check_family(name, families[name], where, span):
                self.entries[name] = self.entries.get(name, 0) + count
                yield count
            self.entries.setdefault(name, 0)
            if self.entries[name] > before:
                inhabited.append(name)
                self._check_versions(families[name], f"{where}, {name}")
        newest = FAMILIES[self.spec.kind][self.spec.format]
        if index is not None and newest in inhabited:
            for key in entries_missing(self.spec, families[newest], index):
                self.problems.add(f"{where}, {newest}: the index of headers lacks the entry {text_of(key)}")
        for name in inhabited:
            if name != newest and newest in families:
                yield from self._check_both(families[newest], families[name], where, newest, name)

    def _check_both(
        self, newer: ByteStore, older: ByteStore, where: str, newer_name: str, older_name: str
    ) -> Iterator[int]:
        for key, _ in older.range(None, None):
            if newer.get(key) is not None:
                self.problems.add(f"{where}: {text_of(key)} is both in {newer_name} and in {older_name}")
        yield 0

    def _check_family(self, name: str, store: ByteStore, where: str, span: SegmentSpan | None) -> Iterator[int]:
        store_format = self._formats[name]
        for chunk in chunks(store.range(None, None), max_rows=_STEP):
            headers: list[tuple[bytes, bytes]] = []
            for key, stored in chunk:
                try:
                    headers.extend((key, found) for found in self._check_pair(store_format, key, stored, span))
                except FormatError as error:
                    self.problems.add(f"{where}, {name}: the entry {text_of(key)}: {error}")
            self._check_headers(headers, f"{where}, {name}")
            yield len(chunk)

    def _check_pair(
        self, store_format: StoreFormat, key: bytes, stored: bytes, span: SegmentSpan | None
    ) -> Iterator[bytes]:
        """Yield the header bytes of a pair's values. Raises FormatError for what is wrong with it."""
        if self._layout.keeps_versions:
            yield from self._check_row(store_format, key, stored)
            return
        if self._layout.has_timed_keys:
            self._check_time(key, span)
        header_bytes = split_stored(store_format, stored).header_bytes
        if header_bytes:
            yield header_bytes

    def _check_time(self, key: bytes, span: SegmentSpan | None) -> None:
        inner = key if span is not None else key[SEGMENT_ID_SIZE:]
        time_ms = self._layout.put_time_ms(inner)
        if span is None:
            self._check_segment(segment_of(key), time_ms)
        elif not span.holds(time_ms):
            raise FormatError("segment", f"its time {time_ms} does not belong in the segment of {span.start_ms}")

    def _check_segment(self, segment_id: int, time_ms: int) -> None:
        if self._interval_ms is not None and time_ms // self._interval_ms != segment_id:
            raise FormatError("segment", f"its time {time_ms} does not belong in segment {segment_id}")

    def _check_row(self, store_format: StoreFormat, key: bytes, row: bytes) -> Iterator[bytes]:
        if is_latest_key(key):
            values = [decode_latest_row(row)[1]]
        else:
            decoded = decode_segment_row(row)
            self._check_segment(segment_of(key), decoded.next_timestamp_ms)
            _refuse_no_versions(decoded)
            values = [version.value for version in decoded.versions if version.value is not None]
        for value in values:
            header_bytes = split_stored(store_format, value).header_bytes
            if header_bytes:
                yield header_bytes

    def _check_versions(self, store: ByteStore, where: str) -> None:
        """Note keys with two versions that are valid at one time, unless a problem was found before."""
        if not self._layout.keeps_versions or self.problems.count:
            return
        for key, intervals in intervals_by_key(self.spec, store):
            found = [interval for interval in intervals if interval.stored is not None]
            for older, newer in pairwise(found):
                if older.valid_to_ms is None or older.valid_to_ms > newer.valid_from_ms:
                    self.problems.add(
                        f"{where}: {text_of(key)} has two versions that are valid at {newer.valid_from_ms}"
                    )

    def _check_headers(self, found: list[tuple[bytes, bytes]], where: str) -> None:
        """Note headers that are not encoded as Kafka Streams does; checks them one by one only if some differ."""
        if not found:
            return
        column = pa.array([header_bytes for _, header_bytes in found], pa.binary())
        try:
            if encode_header_column(decode_header_column(column)).equals(column):
                return
        except (FormatError, ValueError, pa.ArrowException):
            pass  # found one by one below
        for key, header_bytes in found:
            try:
                if encode_headers(decode_headers(header_bytes)) != header_bytes:
                    self.problems.add(
                        f"{where}: the entry {text_of(key)}: its headers are not written as Kafka Streams writes them: "
                        "bytes follow them, a key is not UTF-8, or a length takes more bytes than it needs"
                    )
            except (FormatError, ValueError) as error:
                self.problems.add(f"{where}: the entry {text_of(key)}: {error}")


def _refuse_no_versions(row: SegmentRow) -> None:
    if row.is_degenerate and row.versions[0].value is not None:
        raise FormatError("versions of a segment", "a version ends when it begins")
