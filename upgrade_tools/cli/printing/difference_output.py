"""Shows how two states differ: lines for people, JSON for scripts."""

from __future__ import annotations

from typing import Any

from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.byte_text import text_of
from upgrade_tools.check.comparison import Comparison, EntryDifference
from upgrade_tools.cli.printing.entry_documents import entry_fields
from upgrade_tools.cli.printing.entry_output import entry_line, headers_text, times_text


def difference_line(spec: StoreSpec, found: EntryDifference) -> str:
    """Return a difference on a line: - is only in the first state, + only in the other, ~ in both."""
    if found.second is None:
        return f"- {found.store}  {entry_line(spec, found.entry)}"
    if found.first is None:
        return f"+ {found.store}  {entry_line(spec, found.entry)}"
    first, second = found.first, found.second
    changes = [f"{what} {_part(first, what)} => {_part(second, what)}" for what in found.changed]
    parts = [f"~ {found.store}", text_of(first.key), times_text(spec, first), *changes]
    return "  ".join(part for part in parts if part)


def difference_json(spec: StoreSpec, found: EntryDifference) -> dict[str, Any]:
    """Return a difference as `diff --json` prints it, one a line."""
    entry = found.entry
    document: dict[str, Any] = {"store": found.store, "key": entry.key.hex()}
    if LAYOUTS[spec.kind].keeps_versions:
        document["timestamp"] = entry.start_ms
    elif entry.start_ms is not None:
        document.update(start=entry.start_ms, end=entry.end_ms)
    sides = {"first": found.first, "other": found.second}
    document["in"] = next(
        (name for name, other in (("other", "first"), ("first", "other")) if sides[other] is None), "both"
    )
    document["changed"] = list(found.changed)
    document.update((name, None if side is None else entry_fields(spec, side)) for name, side in sides.items())
    return document


def summary_lines(comparison: Comparison) -> list[str]:
    """Return how many entries there are, of each store, and whether they are the same."""
    lines = []
    for store in comparison.stores:
        first, second = store.entries
        counts = f"{first:,} entries" if first == second else f"{first:,} entries in the first, {second:,} in the other"
        lines.append(f"{store.name}: {counts}, {'the same' if store.is_same else 'different'}")
    for names, where in zip(comparison.only_in, ("first", "other"), strict=True):
        lines += [f"{name}: in the {where} alone" for name in names]
    return lines


def _part(entry: StoredEntry, what: str) -> str:
    if what == "value":
        return text_of(entry.value)
    if what == "headers":
        return headers_text(entry.header_bytes or b"") or "none"
    time_ms = entry.timestamp_ms if what == "timestamp" else entry.end_ms
    return "now" if time_ms is None else str(time_ms)
