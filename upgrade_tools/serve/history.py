"""What deltas hold: who wrote one key, and what one version of a shard changed. No shard needs to be open for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.kinds.kind_layout import KindLayout, layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.kinds.versioned_rows import intervals_of_key
from statestore.errors import RecoveryError
from statestore.format.values.stored_value import split_stored
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.recovery.commit.delta import changelog_records
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.fences.history import Histories, read_fences
from statestore.recovery.fences.run_fences import head_of
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import delta_directory, parse_delta_name
from statestore.recovery.making.logical_writes import open_shard
from statestore.recovery.metadata.state_metadata import StateMetadata
from upgrade_tools.location.deltas import verified_delta
from upgrade_tools.rows.entry_encoding import AS_FOUND, EntryEncoding
from upgrade_tools.serve.content import Document, content, headers_content, key_content

HISTORY_S: Final = 2.0
_EARLIER_S: Final = 1.0
_RESTORED_BYTES: Final = 64 << 20
"""A shard whose snapshot and deltas are larger is not restored to show what was there before a change."""


class WrittenVersion(NamedTuple):
    """A retained delta of a shard, on the line of what is committed."""

    version: int
    name: str
    size_bytes: int
    time_ms: int | None
    """When the file was written, as far as the storage says it."""


@dataclass(frozen=True)
class Shown:
    """Of which state deltas are read, and how they are shown. May be used in any thread."""

    location: DurableLocation
    metadata: StateMetadata
    work_dir: str | None = None
    encoding: EntryEncoding = AS_FOUND

    @property
    def specs(self) -> dict[str, StoreSpec]:
        """The stores by name."""
        return {spec.name: spec for spec in self.metadata.stores}


def versions_of(location: DurableLocation, pointer: CommitPointer) -> list[WrittenVersion]:
    """Return the committed deltas of a shard that are still there, newest first.

    Of versions that the pointer does not name, these are deltas that are alone on the pointer's line.
    """
    entries = {entry.name: entry for entry in location.entries(delta_directory(pointer.shard))}
    found = {}
    line = Histories(read_fences(location, entries), entries).line(head_of(pointer).epoch)
    older: dict[int, list[str]] = {}
    for name in entries:
        written = parse_delta_name(name)
        if written is not None and written.version <= pointer.base_version and line.holds(written):
            older.setdefault(written.version, []).append(name)
    for version, names in older.items():
        if len(names) == 1:
            found[version] = WrittenVersion(
                version, names[0], entries[names[0]].size_bytes, entries[names[0]].modified_ms
            )
    for version, file in enumerate(pointer.deltas, pointer.base_version + 1):
        if (entry := entries.get(file.name)) is not None:
            found[version] = WrittenVersion(version, file.name, file.size_bytes, entry.modified_ms)
    return [found[version] for version in sorted(found, reverse=True)]


def key_history(shown: Shown, pointer: CommitPointer, spec: StoreSpec, key: bytes, before: int | None) -> Document:
    """Return the writes of a key in a shard's retained deltas, newest first; with `before`, only of lower versions."""
    deadline = time.monotonic() + HISTORY_S
    versions = [each for each in versions_of(shown.location, pointer) if before is None or each.version < before]
    layout, writes, more = layout_of(spec), [], None
    for number, written in enumerate(versions):
        if number and time.monotonic() > deadline:
            more = versions[number - 1].version
            break
        for record in reversed([*_records_of(shown, written, spec, key, layout)]):
            of_delta = {"version": written.version, "delta": written.name, "time": written.time_ms}
            writes.append({**of_delta, **_write(shown, spec, record)})
    oldest = versions[-1].version if versions else None
    reaches_begin = more is None and oldest == 1 and not shown.metadata.initial_state
    _with_differences(writes, layout.keeps_versions)
    return {"writes": writes, "oldestVersion": oldest, "isWhole": reaches_begin, "before": more}


def _records_of(
    shown: Shown, written: WrittenVersion, spec: StoreSpec, key: bytes, layout: KindLayout
) -> Iterator[ChangelogRecord]:
    size = layout.suffix_size
    for name, batch in _batches(shown, written):
        if name == spec.name:
            keys = batch.column("key")
            plain = keys if size == 0 else pc.binary_slice(keys, 0, -size)
            found = batch.filter(pc.equal(plain, pa.scalar(key, pa.binary())))
            if found.num_rows:
                yield from changelog_records(found)


def _batches(shown: Shown, written: WrittenVersion) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield a delta's batches; none if it was collected meanwhile. Raises DurableFileCorruptedError."""
    with verified_delta(shown.location, written.name, written.size_bytes, shown.work_dir) as delta:
        if delta is not None:
            yield from delta.batches()


def _write(shown: Shown, spec: StoreSpec, record: ChangelogRecord) -> Document:
    layout = layout_of(spec)
    place = layout.split(record.key, record.timestamp_ms)
    document: Document = {"key": key_content(place.key, shown.encoding.key)}
    if place.start_ms is not None:
        document.update(start=place.start_ms, end=place.end_ms)
    return {**document, **_held_by(shown, record)}


def _held_by(shown: Shown, record: ChangelogRecord) -> Document:
    return _held(shown, record.value, record.timestamp_ms, record.header_bytes)


def _held(shown: Shown, value: bytes | None, timestamp_ms: int | None, header_bytes: bytes | None) -> Document:
    return {
        "value": content(value, shown.encoding.value),
        "timestamp": timestamp_ms,
        "headers": headers_content(header_bytes),
        "headerBytes": len(header_bytes or b""),
    }


_COMPARED: Final = ("value", "timestamp", "headers")


def _with_differences(writes: list[Document], keeps_versions: bool) -> None:
    """Add to each write, newest first, what it made different from the one before it, where that is known."""
    later: dict[Any, Document] = {}
    for write in writes:
        place = None if keeps_versions else (write.get("start"), write.get("end"))
        if place in later:
            later[place]["changed"] = [name for name in _COMPARED if later[place][name] != write[name]]
        later[place] = write


def version_changes(
    shown: Shown, pointer: CommitPointer, written: WrittenVersion, store: str | None, skipped: int, limit: int
) -> Document:
    """Return what a version of a shard has changed, in the order of its delta: new, and old where it can be known."""
    specs, more, left = shown.specs, False, skipped
    records: list[tuple[str, ChangelogRecord]] = []
    for name, batch in _batches(shown, written):
        if name not in specs or store not in (None, name):
            continue
        if left >= batch.num_rows:
            left -= batch.num_rows
            continue
        room = limit - len(records)
        part = batch.slice(left, room)
        left, more = 0, more or batch.num_rows - left > room
        records += [(name, record) for record in changelog_records(part)]
        if len(records) >= limit and more:
            break
    old = _Old(shown, pointer, written.version)
    old.look_back({(name, record.key) for name, record in records})
    changes = []
    for name, record in records:
        before = old.of(name, record)
        fields = {} if before is None else {"old": before[0]}
        changes.append({"store": name, **_write(shown, specs[name], record), **fields})
    return {"changes": changes, "next": skipped + len(records) if more else None}


class _Old:
    """What was there before a version: in older deltas, else in the shard as it was restored, if it is small."""

    def __init__(self, shown: Shown, pointer: CommitPointer, version: int) -> None:
        self._shown = shown
        self._pointer = pointer
        self._version = version
        self._found: dict[tuple[str, bytes], tuple[Document | None]] = {}

    def look_back(self, keys: set[tuple[str, bytes]]) -> None:
        """Look for these keys of stores in older deltas for about a second, then in a small shard."""
        deadline = time.monotonic() + _EARLIER_S
        older = [each for each in versions_of(self._shown.location, self._pointer) if each.version < self._version]
        expected, missing = self._version - 1, set(keys)
        for written in older:
            if not missing or written.version != expected or time.monotonic() > deadline:
                break
            expected -= 1
            found = {
                (name, record.key): record
                for name, batch in _batches(self._shown, written)
                for record in _of_keys(batch, {key for store, key in missing if store == name})
            }
            for place, record in found.items():
                self._found[place] = (None if record.value is None else _held_by(self._shown, record),)
            missing -= set(found)
        if missing and expected == 0 and not self._shown.metadata.initial_state:
            self._found.update(dict.fromkeys(missing, (None,)))
        elif missing:
            with suppress(RecoveryError):
                self._restore(missing)

    def of(self, store: str, record: ChangelogRecord) -> tuple[Document | None] | None:
        """Return what was there before a write; None if it is not known."""
        return self._found.get((store, record.key))

    def _restore(self, missing: set[tuple[str, bytes]]) -> None:
        pointer = pointer_at(self._pointer, self._version - 1)
        if pointer is None:
            return
        shown = self._shown
        size_bytes = sum(file.size_bytes for file in pointer.deltas)
        if pointer.snapshots:
            size_bytes += read_manifest(shown.location, pointer, pointer.snapshots[-1]).size_bytes
        if size_bytes > _RESTORED_BYTES:
            return
        with open_shard(shown.location, shown.metadata, pointer, shown.work_dir) as batch:
            for name, key in missing:
                spec, store = shown.specs[name], batch.stores[name].bytes
                if layout_of(spec).keeps_versions:
                    versions = intervals_of_key(spec, store, key)
                    stored = versions[-1].stored if versions and versions[-1].valid_to_ms is None else None
                else:
                    stored = store.get(layout_of(spec).physical_key(key))
                held = None if stored is None else _held(shown, *split_stored(spec.format, stored))
                self._found[name, key] = (held,)


def _of_keys(batch: pa.RecordBatch, keys: set[bytes]) -> list[ChangelogRecord]:
    if not keys:
        return []
    found = batch.filter(pc.is_in(batch.column("key"), pa.array(sorted(keys), pa.binary())))
    return [*changelog_records(found)] if found.num_rows else []


def pointer_at(pointer: CommitPointer, version: int) -> CommitPointer | None:
    """Return what restores an older version of a shard, None if the pointer names too few files for that."""
    kept = version - pointer.base_version
    if kept < 0:
        return None
    snapshots = tuple(made for made in pointer.snapshots if made.version <= version)
    if pointer.base_version > 0:
        # Deltas begin at the second last snapshot, so there must be two.
        base = pointer.snapshots[-2]
        last = pointer.snapshots[-1]
        snapshots = (base, last if last.version <= version else base)
    return replace(pointer, version=version, deltas=pointer.deltas[:kept], snapshots=snapshots)
