"""What commands report, as `--json` prints it: one document, its fields in camelCase.

A store is an object in the list `stores`, with its `name`; a state's identity is its `stateId`; bytes are lower-case
hex; spans and sizes have their unit in the name. Entries of stores are in `entry_documents`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.errors.readable import without_secrets
from statestore.recovery.making.rescale import RescaleReport
from statestore.recovery.snapshots.garbage import GarbageFile
from upgrade_tools.check.comparison import Comparison, EntryDifference
from upgrade_tools.check.inspection import FamilyFigures, PartOffsets, StateInspection, StoreInspection
from upgrade_tools.check.state_check import CheckReport
from upgrade_tools.cli.printing.difference_output import difference_json
from upgrade_tools.location.files import ShardFiles
from upgrade_tools.migration.report import MigrationReport
from upgrade_tools.rows.exchange import Exchanged

Document = dict[str, Any]


def camel_case(name: str) -> str:
    """Return a field's name as documents have it."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def inspection_document(report: StateInspection) -> Document:
    """Return what `inspect --json` prints."""
    return {
        "path": report.path,
        "layout": report.layout.name.lower().replace("_", "-"),
        "parts": list(report.parts),
        "stores": [_store(store) for store in report.stores],
        **inspection_facts(report),
        **({"shardFiles": [_shard(shard) for shard in report.shards]} if report.shards else {}),
    }


def inspection_facts(report: StateInspection) -> dict[str, Document]:
    """Return what a local copy's marker, or a state location's metadata, records of the whole."""
    if report.marker is not None:
        marker = report.marker
        held = {"stateId": marker.state_id, "shard": marker.shard, "delta": marker.delta, "version": report.version}
        return {"copy": held}
    if report.metadata is not None:
        metadata = report.metadata
        return {
            "state": {
                "stateId": metadata.state_id,
                "shards": metadata.shards,
                "shardBy": metadata.shard_by,
                "topology": [node["name"] for node in metadata.topology],
                "initialState": metadata.initial_state,
            }
        }
    return {}


def check_document(report: CheckReport) -> Document:
    """Return what `verify --json` prints of one state."""
    stores = [
        {"name": check.spec.name, "kind": StoreType.of(check.spec).value, "entries": check.entries}
        for check in report.stores
    ]
    return {
        "path": report.path,
        "sound": report.is_sound,
        "problems": report.all_problems(),
        "stores": stores,
        "notes": report.notes,
    }


def comparison_document(
    first: str, other: str, comparison: Comparison, differences: int, named: Iterable[EntryDifference]
) -> Document:
    """Return what `verify --json` prints of two states: the number of differences, and the first of them."""
    return {
        "path": first,
        "other": other,
        "same": comparison.is_same,
        "stores": [
            {"name": s.name, "entries": s.entries[0], "otherEntries": s.entries[1], "same": s.is_same}
            for s in comparison.stores
        ],
        "onlyInFirst": comparison.only_in[0],
        "onlyInOther": comparison.only_in[1],
        "differences": differences,
        "firstDifferences": [difference_json(comparison.spec_of(found), found) for found in named],
    }


def migration_document(report: MigrationReport) -> Document:
    """Return what `migrate --json`, `downgrade --json` and `finish-upgrade --json` print."""
    return {
        "source": report.source,
        "target": report.target,
        "layout": report.layout,
        "dryRun": report.dry_run,
        "stores": [
            {"name": store.name, "from": store.kind.value, "to": store.migrated.value, "entries": store.entries}
            for store in report.stores
        ],
        "leftOut": list(report.left_out),
        "parts": list(report.parts),
        "entries": report.entries,
        "elapsedMs": round(report.elapsed_s * 1000),
        "sizeBytes": report.size_bytes,
        "neededBytes": report.needed_bytes,
        "freeBytes": report.free_bytes,
        "stateId": report.state_id,
        "backups": list(report.backups),
        "notes": list(report.notes),
    }


def exchange_document(done: Exchanged) -> Document:
    """Return what `export --json` and `import --json` print."""
    return {
        "path": done.path,
        "stores": [{"name": name, "rows": rows} for name, rows in done.rows.items()],
        "rows": sum(done.rows.values()),
        "parts": done.parts,
        "stateId": done.state_id,
        "expired": done.expired,
        "notes": list(done.notes),
    }


def rescale_document(source: str, target: str, report: RescaleReport) -> Document:
    """Return what `rescale --json` and `rollback --json` print."""
    return {
        "source": without_secrets(source),
        "target": without_secrets(target),
        "dryRun": report.state_id is None,
        "fromStateId": report.from_state_id,
        "fromShards": report.from_shards,
        "stateId": report.state_id,
        "shards": report.shards,
        "stores": [
            {"name": name, "entries": list(store.entries), "sizeBytes": list(store.size_bytes)}
            for name, store in report.stores.items()
        ],
        "entries": report.entries,
        "elapsedMs": round(report.elapsed_s * 1000),
    }


def garbage_document(path: str, found: list[GarbageFile], *, removed: bool) -> Document:
    """Return what `gc --json` prints."""
    return {
        "path": without_secrets(path),
        "removed": removed,
        "sizeBytes": sum(file.size_bytes for file in found),
        "files": [{"name": file.name, "sizeBytes": file.size_bytes, "reason": file.reason} for file in found],
    }


def _store(store: StoreInspection) -> Document:
    newest = store.newest_family
    return {
        "name": store.found.name,
        "kinds": [kind.value for kind in store.found.kinds],
        "recorded": _spec(store.found.recorded),
        "sizeBytes": store.found.size_bytes,
        "databases": store.found.databases,
        "families": [_family(name, figures) for name, figures in store.families.items()],
        "upgrade": None
        if newest is None
        else {"entries": store.families[newest].entries, "legacyEntries": store.legacy_entries},
        "parts": [{"part": part, **_offsets(offsets)} for part, offsets in sorted(store.offsets.items())],
    }


def _spec(spec: StoreSpec | None) -> Document | None:
    return None if spec is None else {camel_case(name): value for name, value in spec.to_json().items()}


def _family(name: str, figures: FamilyFigures) -> Document:
    return {
        "name": name,
        "format": None if figures.format is None else figures.format.describe(),
        "entries": figures.entries,
        "exact": figures.is_exact,
        "entriesRead": figures.entries_read,
        "valueBytes": figures.value_bytes,
        "headerBytes": figures.header_bytes,
        "valuesRead": figures.values_read,
        "valuesWithHeaders": figures.values_with_headers,
    }


def _offsets(offsets: PartOffsets) -> Document:
    position = {topic: {str(p): offset for p, offset in sorted(at.items())} for topic, at in offsets.position.items()}
    return {"changelogs": offsets.changelogs, "position": position, "closedCleanly": offsets.is_closed}


def _shard(files: ShardFiles) -> Document:
    pointer = files.pointer
    return {
        "shard": files.shard,
        "deltas": files.deltas,
        "deltaBytes": files.delta_bytes,
        "versions": [files.versions[0], files.versions[-1]] if files.versions else None,
        "snapshots": files.snapshots,
        "snapshotBytes": files.snapshot_bytes,
        "committedVersion": None if pointer is None else pointer.version,
        "oldestVersion": files.oldest_version,
        "retainedVersions": files.retained_versions,
        "streamTimeMs": None if pointer is None else pointer.stream_time_ms,
        "skippedRecords": None if pointer is None else pointer.skipped_records,
    }
