"""What tests of migrations share: golden directories as sources, what must come of them, and untouched files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_streams_golden import Fixture
from statestore.bytestore.kinds.kind_names import Kind
from upgrade_tools.cli.entry_documents import Document, entry_documents
from upgrade_tools.migration import MigrationRequest, TargetFormat
from upgrade_tools.states import StateOptions, open_state

NEWEST = {
    Kind.KV: Kind.HEADERS_KV,
    Kind.TS_KV: Kind.HEADERS_KV,
    Kind.WINDOW: Kind.HEADERS_WINDOW,
    Kind.WINDOW_DUP: Kind.HEADERS_WINDOW_DUP,
    Kind.TS_WINDOW: Kind.HEADERS_WINDOW,
    Kind.SESSION: Kind.HEADERS_SESSION,
}
"""The newest format that Kafka Streams knows of those kinds that have an older one."""


def kind_of(fixture: Fixture) -> Kind:
    """The kind of the store that is in a golden directory, in the newest format of which it has entries."""
    return Kind(fixture.fixture.get("writtenAs", fixture.fixture["kind"]))


def said_of(fixture: Fixture, kind: Kind | None = None) -> StateOptions:
    """What a user says of a golden directory that its bytes do not tell."""
    parameters = fixture.fixture
    kind = kind or kind_of(fixture)
    versioned = kind in (Kind.VERSIONED, Kind.HEADERS_VERSIONED)
    return StateOptions(
        kind=kind,
        window_size_ms=parameters["windowSizeMs"],
        retention_ms=parameters["historyRetentionMs" if versioned else "retentionMs"],
        segment_interval_ms=parameters["segmentIntervalMs"],
    )


def to_newest(fixture: Fixture, task: Path, target: Path | None = None, **more: Any) -> MigrationRequest:
    """The request that takes a golden directory to the newest format that Kafka Streams knows."""
    to = None if kind_of(fixture) is Kind.VERSIONED else TargetFormat.HEADERS
    wanted: dict[str, Any] = {"to": to, "through_timestamped": True, "store_options": {None: said_of(fixture)}, **more}
    return MigrationRequest(str(task), None if target is None else str(target), **wanted)


def in_format_of(kind: Kind, entries: list[Document]) -> list[Document]:
    """Entries of logical.json as a store of `kind` has them, which lack what their own has no room for."""
    if kind in (Kind.VERSIONED, Kind.HEADERS_VERSIONED):
        return entries
    lacking: dict[str, Any] = {}
    if kind in (Kind.TS_KV, Kind.HEADERS_KV, Kind.TS_WINDOW, Kind.HEADERS_WINDOW, Kind.HEADERS_WINDOW_DUP):
        lacking["timestamp"] = -1
    if kind.value.startswith("headers"):
        lacking["headers"] = []
    return [{**lacking, **entry} for entry in entries]


def documents_of(path: Path, options: StateOptions, part: int = 0) -> list[Document]:
    """The entries of the only store at `path`, read anew."""
    state = open_state(str(path), options)
    spec = state.the_spec()
    with state.open(part, [spec]) as stores:
        return list(entry_documents(stores[spec.name]))


def tree(directory: Path) -> Mapping[str, tuple[int, bytes]]:
    """Each file below a directory, with the time of its last change and its bytes."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
