"""Prints entries of a store as they are read: as one JSON document, or as lines for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType
from statestore.format.byte_text import text_of
from statestore.format.records.header_bytes import decode_headers
from upgrade_tools.cli.printing.entry_documents import Document, document_of
from upgrade_tools.cli.printing.output import entry_bar, json_text, printable
from upgrade_tools.cli.selecting import checked_selection
from upgrade_tools.rows.entry_encoding import AS_FOUND, EntryEncoding, shown
from upgrade_tools.rows.selection import Found, Selection, select_entries
from upgrade_tools.states.state import OpenStore, State

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
    """Return the times of an entry, empty for key-value stores. Square brackets are inclusive ends."""
    return _TIMES[spec.kind].format(entry.start_ms, "now" if entry.end_ms is None else entry.end_ms)


def headers_text(header_bytes: bytes) -> str:
    """Return headers in their order. Raises FormatError."""
    return "  ".join(f"{printable(key)}={text_of(value)}" for key, value in decode_headers(header_bytes))


def print_entries(
    state: State,
    asked: Selection,
    parts: Sequence[int],
    *,
    with_headers: bool,
    as_json: bool,
    encoding: EntryEncoding = AS_FOUND,
) -> int:
    """Print the selected entries of the state's one store in these parts; return how many entries or versions.

    Memory does not grow with the entries. The limit is for all parts together.
    """
    spec = state.the_spec()
    asked = checked_selection(asked, spec)
    output = (_Document if as_json else _Lines)(spec, with_headers, encoding)
    left, entries = asked.limit, 0
    # On a terminal the entries themselves show progress.
    read = [state] if asked.reads_all_of(spec) else []
    with entry_bar("reading", *read, opening=len(parts), shown=not sys.stdout.isatty()) as advance:
        for number, part in enumerate(parts):
            with state.open(part, [spec]) as stores:
                if number == 0:
                    output.begin(stores[spec.name] if len(parts) == 1 else None)
                for found in select_entries(stores[spec.name], replace(asked, limit=left), advance):
                    output.add(found)
                    entries += len(found.entries)
                    left = None if left is None else left - 1
            if left == 0:
                break
        output.end()
    return entries


class _Lines:
    """Lines for people."""

    def __init__(self, spec: StoreSpec, with_headers: bool, encoding: EntryEncoding) -> None:
        self._spec = spec
        self._with_headers = with_headers
        self._encoding = encoding
        self._write = sys.stdout.write

    def begin(self, store: OpenStore | None) -> None:
        """Print what precedes the entries; `store` is theirs, None if they are from several parts."""

    def add(self, found: Found) -> None:
        """Print an entry, or the versions of a key."""
        for entry in found.entries:
            self._write(f"{self._line(entry)}\n")

    def _line(self, entry: StoredEntry) -> str:
        return entry_line(self._spec, entry, with_headers=self._with_headers, encoding=self._encoding)

    def end(self) -> None:
        """Print what follows the last entry."""


class _Document(_Lines):
    """One document, as in `entry_documents`."""

    _separator = "\n"

    def begin(self, store: OpenStore | None) -> None:
        head: Document = {"kind": StoreType.of(self._spec).value, "store": self._spec.name}
        if store is not None:
            head.update(_offsets(store))
        self._write(json_text(head).removesuffix("}") + ', "entries": [')

    def add(self, found: Found) -> None:
        document = document_of(self._spec, found, with_headers=self._with_headers, encoding=self._encoding)
        self._write(self._separator + json_text(document))
        self._separator = ",\n"

    def end(self) -> None:
        self._write("\n]}\n")


def _offsets(store: OpenStore) -> Document:
    position = {
        topic: {str(partition): offset for partition, offset in sorted(offsets.items())}
        for topic, offsets in sorted(store.position.items())
    }
    return {"committedOffset": store.changelog_offset, "position": position}
