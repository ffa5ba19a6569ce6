"""Entries as lines for people: `KEY  TIMES  -> VALUE  timestamp N  HEADER=VALUE ...`."""

from __future__ import annotations

from typing import Final

from statestore.bytestore.kinds.contents import StoredEntry
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.byte_text import text_of
from statestore.format.records.header_bytes import decode_headers
from upgrade_tools.cli.printing.output import printable
from upgrade_tools.rows.entry_encoding import AS_FOUND, EntryEncoding, shown

_TIMES: Final = {
    StoreKind.KEY_VALUE: "",
    StoreKind.WINDOW: "window [{}, {})",
    StoreKind.SESSION: "session [{}, {}]",
    StoreKind.VERSIONED: "valid [{}, {})",
}


def entry_line(
    spec: StoreSpec, entry: StoredEntry, *, with_headers: bool = True, encoding: EntryEncoding = AS_FOUND
) -> str:
    """Return an entry of a store, or one version, on a line. Raises FormatError for its headers."""
    parts = [shown(entry.key, encoding.key), times_text(spec, entry), f"-> {shown(entry.value, encoding.value)}"]
    if entry.timestamp_ms is not None:
        parts.append(f"timestamp {entry.timestamp_ms}")
    if with_headers and entry.header_bytes is not None:
        parts.append(headers_text(entry.header_bytes))
    return "  ".join(part for part in parts if part)


def times_text(spec: StoreSpec, entry: StoredEntry) -> str:
    """Return what the times of an entry say, nothing for key-value stores. Brackets tell which ends are inclusive."""
    return _TIMES[spec.kind].format(entry.start_ms, "now" if entry.end_ms is None else entry.end_ms)


def headers_text(header_bytes: bytes) -> str:
    """Return headers in their order. Raises FormatError."""
    return "  ".join(f"{printable(key)}={text_of(value)}" for key, value in decode_headers(header_bytes))
