"""What tests of task directories share: specs of the fixtures' kinds, and content in the terms of logical.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.format.keys.window_key import split_session_key, split_window_key
from statestore.format.records.header_bytes import decode_headers
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from tests.support.golden.kafka_streams import dump_task_directory

APPLICATION = "golden"
RETENTION_MS, SEGMENT_MS, WINDOW_MS, HISTORY_MS = 120_000, 60_000, 10_000, 300_000

KINDS = {
    "kv": (StoreKind.KEY_VALUE, StoreFormat.PLAIN),
    "ts-kv": (StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED),
    "headers-kv": (StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS),
    "window": (StoreKind.WINDOW, StoreFormat.PLAIN),
    "window-dup": (StoreKind.WINDOW, StoreFormat.PLAIN),
    "ts-window": (StoreKind.WINDOW, StoreFormat.TIMESTAMPED),
    "headers-window": (StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS),
    "headers-window-dup": (StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS),
    "session": (StoreKind.SESSION, StoreFormat.PLAIN),
    "headers-session": (StoreKind.SESSION, StoreFormat.WITH_HEADERS),
    "versioned": (StoreKind.VERSIONED, StoreFormat.PLAIN),
}
"""The kinds that Kafka Streams 4.3 knows, by the names of the fixtures and of ReadTaskDirectory.java."""


def spec_of(kind: str, name: str = "store") -> StoreSpec:
    """The spec of a store of one of KINDS, with the parameters that all fixtures have.

    Plain data may get headers at once, as in Kafka Streams, which wrote the fixtures.
    """
    store_kind, store_format = KINDS[kind]
    retention_ms = {StoreKind.KEY_VALUE: None, StoreKind.VERSIONED: HISTORY_MS}.get(store_kind, RETENTION_MS)
    return StoreSpec(
        name,
        store_kind,
        store_format,
        retention_ms,
        SEGMENT_MS if store_kind.is_segmented else None,
        WINDOW_MS if store_kind is StoreKind.WINDOW else None,
        retain_duplicates=kind.endswith("-dup"),
        through_timestamped=True,
    )


def logical_entries(spec: StoreSpec, store: ByteStore) -> list[dict[str, Any]]:
    """The entries of a store of any kind but versioned, as logical.json has them, in the order of the scan."""
    return [{**_logical_key(spec, key), **_logical_value(spec.format, value)} for key, value in store.range(None, None)]


def _logical_key(spec: StoreSpec, key: bytes) -> dict[str, Any]:
    if spec.kind is StoreKind.KEY_VALUE:
        return {"key": key.hex()}
    stored = key[SEGMENT_ID_SIZE:]
    if spec.kind is StoreKind.SESSION:
        plain, start_ms, end_ms = split_session_key(stored)
    else:
        plain, start_ms, _ = split_window_key(stored)
        end_ms = start_ms + WINDOW_MS
    return {"key": plain.hex(), "start": start_ms, "end": end_ms}


def _logical_value(store_format: StoreFormat, stored: bytes) -> dict[str, Any]:
    value, timestamp_ms, header_bytes = split_stored(store_format, stored)
    parts: dict[str, Any] = {"value": value.hex()}
    if timestamp_ms is not None:
        parts["timestamp"] = timestamp_ms
    if header_bytes is not None:
        headers = decode_headers(header_bytes)
        parts["headers"] = [[name, None if content is None else content.hex()] for name, content in headers]
    return parts


def as_json(position: dict[str, dict[int, int]]) -> Any:
    """A position as JSON gives it back: partitions are strings."""
    return json.loads(json.dumps(position))


def families(task: Path) -> dict[str, dict[str, dict[str, str]]]:
    """The entries below a task's directory, in hex, by database and column family."""
    return {
        database["path"]: {family["name"]: dict(family["entries"]) for family in database["columnFamilies"]}
        for database in dump_task_directory(task)
    }


def tree(task: Path) -> list[str]:
    """The directories and the files outside of databases, below a task's directory."""
    paths = [path for path in task.rglob("*") if not (path.parent / "CURRENT").exists()]
    return sorted(path.relative_to(task).as_posix() for path in paths)
