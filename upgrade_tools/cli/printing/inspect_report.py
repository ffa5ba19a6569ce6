"""Shows people what `inspect` found: tables, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from upgrade_tools.check.inspection import FamilyFigures, StateInspection, StoreInspection
from upgrade_tools.cli.printing.documents import inspection_facts
from upgrade_tools.cli.printing.output import cells, plain_table, say, tables
from upgrade_tools.location.files import ShardFiles


def print_report(report: StateInspection) -> None:
    """Print what was found to stdout."""
    console = tables()
    parts = f"parts {', '.join(map(str, report.parts[:20]))}{', ...' if len(report.parts) > 20 else ''}"
    say(console, f"{report.path}: {report.layout.value}, {parts}")
    for name, facts in inspection_facts(report).items():
        say(console, f"{name}: {', '.join(f'{key} {_fact(value)}' for key, value in facts.items())}")
    _print_table(console, _stores(report.stores))
    if any(store.families for store in report.stores):
        _print_table(console, _families(report.stores))
    if any(store.offsets for store in report.stores):
        _print_table(console, _offsets(report.stores))
    if report.shards:
        _print_table(console, _shards(report.shards))
    for store in report.stores:
        for hint in _hints(store):
            say(console, hint)
    if report.shards and report.shards[0].pointer is None:
        say(console, "To have entries read, too, say what is committed with --checkpoint or --pointers.")


def _stores(stores: Iterable[StoreInspection]) -> Table:
    table = plain_table("store", "kind", "recorded", "databases", "bytes")
    for store in stores:
        found = store.found
        kinds = " or ".join(kind.value for kind in found.kinds) or "unknown"
        recorded = "" if found.recorded is None else found.recorded.describe()
        table.add_row(*cells(found.name, kinds, recorded, found.databases or "", found.size_bytes or ""))
    return table


def _families(stores: Iterable[StoreInspection]) -> Table:
    table = plain_table("store", "column family", "format", "entries", "with headers", "header bytes", "of value bytes")
    for store in stores:
        for name, figures in store.families.items():
            if figures.entries or name != DEFAULT_FAMILY:
                table.add_row(*cells(store.found.name, name, *_figures(figures)))
    return table


def _figures(figures: FamilyFigures) -> list[Any]:
    known = "unknown" if figures.format is None else figures.format.describe()
    entries = f"{figures.entries:,}" if figures.is_exact else f"about {figures.entries:,}"
    if figures.format is None or not figures.format.has_headers:
        return [known, entries, "", "", ""]
    share = f" ({figures.header_bytes / figures.value_bytes:.0%})" if figures.value_bytes else ""
    values = f"{figures.value_bytes:,}" + ("" if figures.is_exact else f" of {figures.entries_read:,} entries")
    return [known, entries, f"{figures.values_with_headers:,}", f"{figures.header_bytes:,}{share}", values]


def _offsets(stores: Iterable[StoreInspection]) -> Table:
    table = plain_table("store", "part", "changelog offset", "input position", "closed")
    closed = {None: "not recorded", True: "cleanly", False: "no"}
    for store in stores:
        for part, offsets in sorted(store.offsets.items()):
            changelogs = [f"{topic} {'unknown' if at is None else at}" for topic, at in offsets.changelogs.items()]
            position = [
                f"{t}-{p} {at}" for t, by_partition in offsets.position.items() for p, at in by_partition.items()
            ]
            row = (store.found.name, part, ", ".join(changelogs) or "none", ", ".join(position) or "none")
            table.add_row(*cells(*row, closed[offsets.is_closed]))
    return table


def _shards(shards: Iterable[ShardFiles]) -> Table:
    table = plain_table("shard", "committed", "oldest", "retained", "deltas", "bytes", "snapshots", "bytes")
    for shard in shards:
        table.add_row(
            *cells(
                shard.shard,
                "?" if shard.pointer is None else shard.pointer.version,
                shard.oldest_version,
                "?" if shard.retained_versions is None else shard.retained_versions,
                shard.deltas,
                f"{shard.delta_bytes:,}",
                ", ".join(map(str, shard.snapshots)) or "none",
                f"{shard.snapshot_bytes:,}",
            )
        )
    return table


def _hints(store: StoreInspection) -> list[str]:
    name = store.found.name
    hints = []
    if len(store.found.kinds) != 1:
        listed = ", ".join(kind.value for kind in store.found.kinds)
        hints.append(f"The files do not say the kind of {name}: to read it, choose one with --kind: {listed}.")
    if store.legacy_entries and store.newest_family is not None:
        moved = store.families[store.newest_family].entries
        hints.append(
            f"{name} is being upgraded: {moved:,} entries in {store.newest_family}, {store.legacy_entries:,} to go. "
            "finish-upgrade moves them."
        )
    unknown = [family for family, figures in store.families.items() if figures.format is None]
    if unknown:
        hints.append(f"{name} has unknown column families: {unknown}.")
    return hints


def _print_table(console: Console, table: Table) -> None:
    console.print()
    console.print(table)


def _fact(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
