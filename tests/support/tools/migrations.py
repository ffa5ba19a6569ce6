"""What tests of migrations share: golden directories as sources, what must come of them, and untouched files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statestore.bytestore.kinds.store_spec import StoreType
from tests.support.golden.kafka_streams import Fixture
from upgrade_tools.cli.printing.entry_documents import Document, document_of
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat
from upgrade_tools.rows.selection import EVERYTHING, select_entries
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import OpenStore, StateOptions

NEWEST = {
    StoreType.KV: StoreType.HEADERS_KV,
    StoreType.TS_KV: StoreType.HEADERS_KV,
    StoreType.WINDOW: StoreType.HEADERS_WINDOW,
    StoreType.WINDOW_DUP: StoreType.HEADERS_WINDOW_DUP,
    StoreType.TS_WINDOW: StoreType.HEADERS_WINDOW,
    StoreType.SESSION: StoreType.HEADERS_SESSION,
}
"""The newest format that Kafka Streams knows of those kinds that have an older one."""


def kind_of(fixture: Fixture) -> StoreType:
    """The kind of the store that is in a golden directory, in the newest format of which it has entries."""
    return StoreType(fixture.fixture.get("writtenAs", fixture.fixture["kind"]))


def said_of(fixture: Fixture, kind: StoreType | None = None) -> StateOptions:
    """What a user says of a golden directory that its bytes do not tell."""
    parameters = fixture.fixture
    kind = kind or kind_of(fixture)
    versioned = kind in (StoreType.VERSIONED, StoreType.HEADERS_VERSIONED)
    return StateOptions(
        kind=kind,
        window_size_ms=parameters["windowSizeMs"],
        retention_ms=parameters["historyRetentionMs" if versioned else "retentionMs"],
        segment_interval_ms=parameters["segmentIntervalMs"],
    )


def to_newest(fixture: Fixture, task: Path, target: Path | None = None, **more: Any) -> MigrationRequest:
    """The request that takes a golden directory to the newest format that Kafka Streams knows."""
    to = None if kind_of(fixture) is StoreType.VERSIONED else TargetFormat.HEADERS
    wanted: dict[str, Any] = {"to": to, "through_timestamped": True, "store_options": {None: said_of(fixture)}, **more}
    return MigrationRequest(str(task), None if target is None else str(target), **wanted)


def in_format_of(kind: StoreType, entries: list[Document]) -> list[Document]:
    """Entries of logical.json as a store of `kind` has them, which lack what their own has no room for."""
    if kind in (StoreType.VERSIONED, StoreType.HEADERS_VERSIONED):
        return entries
    lacking: dict[str, Any] = {}
    if kind in (
        StoreType.TS_KV,
        StoreType.HEADERS_KV,
        StoreType.TS_WINDOW,
        StoreType.HEADERS_WINDOW,
        StoreType.HEADERS_WINDOW_DUP,
    ):
        lacking["timestamp"] = -1
    if kind.value.startswith("headers"):
        lacking["headers"] = []
    return [{**lacking, **entry} for entry in entries]


def documents_of(path: Path, options: StateOptions, part: int = 0) -> list[Document]:
    """The entries of the only store at `path`, read anew."""
    state = open_state(str(path), options)
    spec = state.the_spec()
    with state.open(part, [spec]) as stores:
        return entry_documents(stores[spec.name])


def entry_documents(store: OpenStore) -> list[Document]:
    """All entries of a store, in its order."""
    return [document_of(store.spec, found) for found in select_entries(store, EVERYTHING)]


def tree(directory: Path) -> Mapping[str, tuple[int, bytes]]:
    """Each file below a directory, with the time of its last change and its bytes."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
