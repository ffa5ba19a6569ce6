"""Files of rows: Parquet and JSON lines. Both describe their stores, so they can be read back on their own.

Parquet has the columns of `rows.ROWS`, and in its schema's metadata under `statestore` a JSON object. In a file of JSON
lines that object is the first line, and every other line a row: keys, values and header values in lower-case hex.

    {"format": 1, "parts": int, "shard_by": "key" | "partition" | null, "stores": [StoreSpec as JSON, ...],
     "global": [str, ...], "keys": {store: str, ...}}

`retention_ms` and `segment_interval_ms` of a store are missing if they were unknown when the file was written. `global`
names the stores of which each part has all, and `keys` says what keys are made of, as a state's nodes do; older
releases wrote neither.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from statestore.bytestore.chunks import DEFAULT_ROWS, chunks, slices
from statestore.format.binary_columns import row_sizes
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.metadata.state_metadata import MAX_SHARDS, ShardBy
from upgrade_tools.errors import RowFileError, RowFileExistsError
from upgrade_tools.rows.rows import ROWS

_FORMAT: Final = 1
_METADATA_KEY: Final = b"statestore"
_ROW_GROUP_ROWS: Final = 100_000
_ROW_GROUP_BYTES: Final = 64 << 20
"""Writer and reader hold a row group in memory."""
_LINE_LIMIT_BYTES: Final = 256 << 20
_BYTES: Final = ("key", "value")


class FileFormat(str, Enum):
    """What a file of rows can be."""

    PARQUET = "parquet"
    JSON_LINES = "jsonl"

    @classmethod
    def of(cls, path: Path) -> FileFormat | None:
        """Return the format that a file's suffix stands for, None if it is another suffix."""
        return {".parquet": cls.PARQUET, ".jsonl": cls.JSON_LINES, ".ndjson": cls.JSON_LINES}.get(path.suffix.lower())


@dataclass(frozen=True)
class RowFileHead:
    """What a file says about its stores."""

    parts: int
    shard_by: str | None
    stores: tuple[dict[str, Any], ...]
    """The StoreSpec of each store as JSON, without fields that were unknown."""
    global_stores: frozenset[str] = frozenset()
    """The stores of which each part has all."""
    entry_keys: Mapping[str, str] = field(default_factory=dict)
    """What the keys of stores are made of, where the library makes them."""

    def to_json(self) -> str:
        """Return the JSON object."""
        fields = {"format": _FORMAT, "parts": self.parts, "shard_by": self.shard_by, "stores": self.stores}
        return json.dumps({**fields, "global": sorted(self.global_stores), "keys": dict(self.entry_keys)})

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> RowFileHead:
        """Return what `to_json` gave. Raises RowFileError."""
        try:
            fields = json.loads(text)
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']!r}; this release knows {_FORMAT}")
            stores = tuple(dict(store) for store in fields["stores"])
            if not all(isinstance(store["name"], str) for store in stores):
                raise ValueError("a store without a name")
            parts, shard_by = whole_number(fields["parts"], 1), fields["shard_by"]
            if parts > MAX_SHARDS:
                raise ValueError(f"{parts} parts are more than {MAX_SHARDS}")
            if shard_by not in (*ShardBy, None):
                raise ValueError(f"unknown shard_by {shard_by!r}")
            entry_keys = {str(store): str(keys) for store, keys in fields.get("keys", {}).items()}
            return cls(parts, shard_by, stores, frozenset(map(str, fields.get("global", ()))), entry_keys)
        except MALFORMED as cause:
            raise RowFileError(where, problem=f"it does not say what stores it holds ({cause!r})") from cause


class RowWriter(ABC):
    """Writes a file, which gets its name only once it is whole. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Another process may be writing the same file.
        self._partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows in the schema ROWS."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
            if kind is None:
                self._publish()
        finally:
            self._partial.unlink(missing_ok=True)

    def _publish(self) -> None:
        """Give the file its name. Raises RowFileExistsError if that is taken by now."""
        try:
            os.link(self._partial, self._path)
        except FileExistsError as cause:
            raise RowFileExistsError(str(self._path)) from cause
        except OSError:  # without hard links, checking and renaming take two steps
            if self._path.exists():
                raise RowFileExistsError(str(self._path)) from None
            self._partial.replace(self._path)


class _ParquetWriter(RowWriter):
    def __init__(self, path: Path, head: RowFileHead) -> None:
        super().__init__(path)
        schema = ROWS.with_metadata({_METADATA_KEY: head.to_json().encode()})
        self._writer = pq.ParquetWriter(self._partial, schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= _ROW_GROUP_ROWS or self._held_bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=_ROW_GROUP_ROWS)
        self._held, self._held_rows, self._held_bytes = [], 0, 0


class _JsonLinesWriter(RowWriter):
    def __init__(self, path: Path, head: RowFileHead) -> None:
        super().__init__(path)
        self._file: IO[str] = open(self._partial, "w", encoding="utf-8", newline="\n")  # noqa: SIM115 - closed in close()
        self._file.write(head.to_json() + "\n")

    def write(self, rows: pa.RecordBatch) -> None:
        self._file.writelines(json.dumps(_to_json(row), ensure_ascii=False) + "\n" for row in rows.to_pylist())

    def close(self) -> None:
        self._file.close()


def refuse_existing(path: Path) -> None:
    """Raise RowFileExistsError if there is something at a path, and FileNotFoundError if its directory is not there."""
    if path.exists():
        raise RowFileExistsError(str(path))
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def write_rows(path: Path, file_format: FileFormat, head: RowFileHead) -> RowWriter:
    """Return a writer of the file `path`. Raises RowFileExistsError, OSError."""
    refuse_existing(path)
    return (_ParquetWriter if file_format is FileFormat.PARQUET else _JsonLinesWriter)(path, head)


def read_head(path: Path, file_format: FileFormat) -> RowFileHead:
    """Return the head of a file. Raises RowFileError, OSError."""
    if file_format is FileFormat.PARQUET:
        schema = _parquet(path).schema_arrow
        if schema.metadata is None or _METADATA_KEY not in schema.metadata:
            raise RowFileError(str(path), problem="it does not say what stores it holds: it was not made by export")
        if schema.remove_metadata() != ROWS:
            raise RowFileError(str(path), problem=f"its columns are {schema.names}, not {ROWS.names} with their types")
        return RowFileHead.from_json(schema.metadata[_METADATA_KEY], str(path))
    with open(path, "rb") as file:
        return RowFileHead.from_json(file.readline(_LINE_LIMIT_BYTES), str(path))


def read_rows(path: Path, file_format: FileFormat) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, some thousands at a time, fewer if they are large. Raises RowFileError, OSError."""
    if file_format is FileFormat.PARQUET:
        try:
            file = _parquet(path)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(DEFAULT_ROWS, row_groups=[group]):
                    yield from _pieces(batch)
        except (pa.ArrowException, OSError) as cause:
            if _is_of_the_system(cause):
                raise
            raise RowFileError(str(path), problem=f"it can't be read ({cause})") from cause
        return
    with open(path, "rb") as file:
        file.readline(_LINE_LIMIT_BYTES)
        read = 1
        for lines in chunks(_lines(file), lambda taken: list(map(len, taken)), max_rows=DEFAULT_ROWS):
            rows = [_row(line, path, number) for number, line in enumerate(lines, read + 1)]
            read += len(lines)
            yield _batch(rows, path, read)


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, some MB of keys and values at a time."""
    for piece in slices(row_sizes(rows.column("key")) + row_sizes(rows.column("value"))):
        yield rows.slice(piece.start, piece.stop - piece.start)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(_LINE_LIMIT_BYTES):
        yield line


def _row(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        return _from_json(json.loads(line))
    except (*MALFORMED, UnicodeDecodeError) as cause:
        raise RowFileError(str(path), problem=f"line {number} is not a row ({cause!r})") from cause


def row_count(path: Path, file_format: FileFormat) -> int | None:
    """Return how many rows a file has, None if only reading it would show that."""
    return int(_parquet(path).metadata.num_rows) if file_format is FileFormat.PARQUET else None


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as cause:
        if _is_of_the_system(cause):
            raise
        raise RowFileError(str(path), problem=f"it is not a Parquet file, or is cut off ({cause})") from cause


def _is_of_the_system(error: Exception) -> bool:
    """Return whether the operating system raised an error: Arrow raises OSError for damaged pages, too."""
    return isinstance(error, OSError) and error.errno is not None


def _batch(rows: list[dict[str, Any]], path: Path, last_line: int) -> pa.RecordBatch:
    try:
        return pa.RecordBatch.from_pylist(rows, schema=ROWS)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        problem = f"a row in the {len(rows)} lines up to {last_line} has a field of another type ({cause})"
        raise RowFileError(str(path), problem=problem) from cause


def _to_json(row: dict[str, Any]) -> dict[str, Any]:
    row.update({name: row[name].hex() for name in _BYTES if row[name] is not None})
    if row["headers"] is not None:
        row["headers"] = [
            [header["key"], None if header["value"] is None else header["value"].hex()] for header in row["headers"]
        ]
    return {name: cell for name, cell in row.items() if cell is not None or name == "value"}


def _from_json(row: dict[str, Any]) -> dict[str, Any]:
    unknown = row.keys() - set(ROWS.names)
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}")
    read = dict(row)
    read.update({name: bytes.fromhex(row[name]) for name in _BYTES if row.get(name) is not None})
    if row.get("headers") is not None:
        read["headers"] = [
            {"key": key, "value": None if value is None else bytes.fromhex(value)} for key, value in row["headers"]
        ]
    return read
